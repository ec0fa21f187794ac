"""Pictures that are stored turned: the size of the mask tells which way up it was drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from explainer_plugins.masks.upright import is_drawn_turned, open_drawn

from .common import coco, entry, folder, load, message, noise, outlined, save_turned

STORED = noise(4, 6, seed=1)
ON_ITS_SIDE = (5, 6, 7, 8)
KINDS = ("png", "webp")


def stored(path: Path, orientation: int) -> Path:
    if path.suffix == ".webp":
        exif = Image.Exif()
        exif[0x112] = orientation
        Image.fromarray(STORED).save(path, exif=exif, lossless=True)
        return path
    return save_turned(path, STORED, orientation)


def turned(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))


@pytest.mark.parametrize("orientation", ON_ITS_SIDE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_on_the_picture_as_it_is_shown(tmp_path: Path, kind: str, orientation: int) -> None:
    path = stored(tmp_path / f"a.{kind}", orientation)
    assert is_drawn_turned(path, (4, 6), "the mask")
    assert np.array_equal(np.asarray(open_drawn(path, True)), turned(path))
    assert turned(path).shape == (6, 4, 3)


@pytest.mark.parametrize("orientation", [1, *ON_ITS_SIDE])
@pytest.mark.parametrize("kind", KINDS)
def test_a_mask_on_the_picture_as_it_is_stored(tmp_path: Path, kind: str, orientation: int) -> None:
    path = stored(tmp_path / f"a.{kind}", orientation)
    assert not is_drawn_turned(path, (6, 4), "the mask")
    assert np.array_equal(np.asarray(open_drawn(path, False)), STORED)


@pytest.mark.parametrize("orientation", [0, 9])
def test_orientations_that_do_not_exist(tmp_path: Path, orientation: int) -> None:
    path = stored(tmp_path / "a.png", orientation)
    assert not is_drawn_turned(path, (6, 4), "the mask")
    assert np.array_equal(np.asarray(open_drawn(path, False)), STORED)


@pytest.mark.parametrize("orientation", [2, 3, 4])
def test_a_turn_that_the_size_does_not_tell(tmp_path: Path, orientation: int) -> None:
    folder(tmp_path, {"a": STORED[..., 0] % 2}, classes="dog")
    path = save_turned(tmp_path / "images" / "a.png", STORED, orientation)
    assert message(lambda: load(tmp_path)) == (
        f"the picture '{path}' is stored turned (EXIF orientation {orientation}), and its size does not tell whether "
        f"the mask '{tmp_path}/masks/a.png' was drawn on it as it is stored or as it is shown; run exiftool "
        f"-Orientation= '{path}' for as it is stored, or magick mogrify -auto-orient '{path}' for as it is shown"
    )


@pytest.mark.parametrize("orientation", ON_ITS_SIDE)
def test_a_square_does_not_tell_either(tmp_path: Path, orientation: int) -> None:
    path = save_turned(tmp_path / "a.png", STORED[:, :4], orientation)
    assert message(lambda: is_drawn_turned(path, (4, 4), "the mask")).startswith(
        f"the picture '{path}' is stored turned (EXIF orientation {orientation}), and its size does not tell"
    )


@pytest.mark.parametrize("orientation", [1, 3, *ON_ITS_SIDE])
def test_tiff_is_always_as_it_is_shown(tmp_path: Path, orientation: int) -> None:
    """Pillow tells no other size of it, and turns it when it is read."""
    path = save_turned(tmp_path / "a.tif", STORED, orientation)
    shown = turned(path)
    way = is_drawn_turned(path, shown.shape[1::-1], "the mask")
    assert np.array_equal(np.asarray(open_drawn(path, way)), shown)
    assert shown.shape == ((6, 4, 3) if orientation in ON_ITS_SIDE else (4, 6, 3))


def test_a_size_that_fits_neither_way(tmp_path: Path) -> None:
    folder(tmp_path, {"a": noise(5, 6)[..., 0] % 2}, classes="dog")
    path = save_turned(tmp_path / "images" / "a.png", STORED, 6)
    assert message(lambda: load(tmp_path)) == (
        f"the mask '{tmp_path}/masks/a.png' is 6 x 5 pixels, but the picture '{path}' is 6 x 4, or 4 x 6 turned by its "
        "EXIF orientation (width x height); a mask has the size of its picture"
    )


@pytest.mark.parametrize("way", ["shown", "stored"])
def test_masks_as_pictures(tmp_path: Path, way: str) -> None:
    shape = (6, 4) if way == "shown" else (4, 6)
    truth = noise(*shape)[..., 0] % 2
    path = save_turned(folder(tmp_path, {"a": truth}, classes="dog") / "images" / "a.png", STORED, 8)
    (sample,) = load(tmp_path)
    assert np.array_equal(np.asarray(sample.picture), turned(path) if way == "shown" else STORED)
    assert np.array_equal(sample.masks["dog"], truth == 1)


@pytest.mark.parametrize("way", ["shown", "stored"])
def test_outlines(tmp_path: Path, way: str) -> None:
    height, width = (6, 4) if way == "shown" else (4, 6)
    file = coco(tmp_path, [outlined(1, 1, 1, [[0, 0, 2, 0, 2, 3, 0, 3]])], [entry(1, "a.png", height, width)])
    path = save_turned(tmp_path / "a.png", STORED, 6)
    (sample,) = load(file)
    assert np.array_equal(np.asarray(sample.picture), turned(path) if way == "shown" else STORED)
    assert sample.masks["dog"].shape == (height, width)
    assert sample.masks["dog"][:3, :2].all()
    assert sample.masks["dog"].sum() == 6


def test_an_orientation_at_the_end_of_a_png_is_not_heard_of(tmp_path: Path) -> None:
    """To hear of it the whole picture had to be decoded; picture and mask are then both as stored."""
    path = save_turned(tmp_path / "a.png", STORED, 6)
    data = path.read_bytes()
    start = data.index(b"eXIf") - 4
    size = 12 + int.from_bytes(data[start : start + 4], "big")
    end = data.index(b"IEND") - 4
    path.write_bytes(data[:start] + data[start + size : end] + data[start : start + size] + data[end:])
    assert turned(path).shape == (6, 4, 3)
    assert not is_drawn_turned(path, (6, 4), "the mask")
    assert np.array_equal(np.asarray(open_drawn(path, False)), STORED)
