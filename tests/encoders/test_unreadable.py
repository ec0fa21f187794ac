"""Every way in which a picture cannot be read."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import explainer
from explainer.pictures import open_picture

from .common import message, resnet


@pytest.fixture(scope="module")
def ex() -> explainer.Explainer:
    return explainer.wrap(resnet(num_classes=4), size=(64, 64))


def noise(width: int = 50, height: int = 30) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    path = tmp_path / "photo.png"
    Image.fromarray(noise()).save(path)
    return path


def test_no_file() -> None:
    assert message(lambda: open_picture("nowhere.jpg")) == "there is no picture at 'nowhere.jpg'"
    assert message(lambda: open_picture(Path("no/where.jpg"))) == "there is no picture at 'no/where.jpg'"


def test_a_folder(tmp_path: Path) -> None:
    assert message(lambda: open_picture(tmp_path)) == (
        f"'{tmp_path}' is a folder; give the pictures in it, such as Path('{tmp_path}').glob('*.jpg')"
    )


def test_an_address() -> None:
    assert message(lambda: open_picture("https://example.org/cat.jpg")) == (
        "'https://example.org/cat.jpg' is an address, not a file; download the picture and give its path"
    )


@pytest.mark.parametrize("content", [b"", b"hello world", b"<svg></svg>"])
def test_files_that_are_no_pictures(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.jpg"
    path.write_bytes(content)
    assert message(lambda: open_picture(path)) == f"'{path}' is not a picture in a format that Pillow reads"


@pytest.mark.parametrize("ending", ["jpg", "png", "gif", "bmp", "webp", "tif"])
def test_truncated_files(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"half.{ending}"
    Image.fromarray(noise(200, 200)).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's own, of the tags that are cut off
        text = message(lambda: open_picture(path))
    unread = rf"the picture '{path}' cannot be read: .+|'{path}' is not a picture in a format that Pillow reads"
    assert re.fullmatch(unread, text)


@pytest.mark.parametrize(
    ("ending", "content"),
    [
        ("ppm", b"P6 4x 4 255 " + bytes(48)),
        ("ppm", b"P6 4 4 255 " + bytes(7)),
        ("png", b"\x89PNG\r\n\x1a\n" + bytes(40)),
    ],
)
def test_corrupt_files_whatever_the_decoder_raises(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"corrupt.{ending}"
    path.write_bytes(content)
    unread = rf"the picture '{path}' cannot be read: .+|'{path}' is not a picture in a format that Pillow reads"
    assert re.fullmatch(unread, message(lambda: open_picture(path)))


def test_a_picture_too_large_to_be_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.png"
    Image.fromarray(noise()).save(path)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 700)
    assert message(lambda: open_picture(path)) == (
        f"the picture '{path}' cannot be read: Image size (1500 pixels) exceeds limit of 1400 pixels, could be "
        "decompression bomb DOS attack."
    )


def test_one_bad_picture_among_good_ones_is_named(ex: explainer.Explainer, photo: Path) -> None:
    assert message(lambda: ex([photo, "nowhere.jpg", photo], 1)) == "there is no picture at 'nowhere.jpg'"


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_a_picture_without_pixels(size: tuple[int, int]) -> None:
    assert message(lambda: open_picture(Image.new("RGB", size))) == (
        f"a picture has at least 1 x 1 pixels; got width and height {size}"
    )


@pytest.mark.parametrize(
    ("array", "got"),
    [
        (noise().astype(np.float32) / 255, "float32 of shape [30, 50, 3]"),
        (noise().astype(np.int64), "int64 of shape [30, 50, 3]"),
        (np.zeros((30, 50, 4), np.uint8), "uint8 of shape [30, 50, 4]"),
        (np.zeros((3, 30, 50), np.uint8), "uint8 of shape [3, 30, 50]"),
        (np.zeros((0, 50, 3), np.uint8), "uint8 of shape [0, 50, 3]"),
        (np.zeros(3, np.uint8), "uint8 of shape [3]"),
        (np.array(3), "int64 of shape []"),
    ],
)
def test_arrays_that_are_no_pictures(ex: explainer.Explainer, array: np.ndarray, got: str) -> None:
    text = f"an array picture is uint8 of shape [H, W, 3] in RGB, or [H, W] in grey; got {got}"
    assert message(lambda: ex(array, 1)) == message(lambda: ex([array], 1)) == text


def test_an_array_of_several_pictures(ex: explainer.Explainer) -> None:
    both = np.stack([noise(), noise()])
    assert message(lambda: ex(both, 1)) == (
        "an array picture is uint8 of shape [H, W, 3] in RGB, or [H, W] in grey; got uint8 of shape [2, 30, 50, 3]; "
        "give several pictures as a list: list(array)"
    )
    assert len(ex(list(both), 1)) == 2


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (None, "None (NoneType)"),
        (3, "3 (int)"),
        ([["a.jpg"]], "['a.jpg'] (list)"),
        (b"a.jpg", "b'a.jpg' (bytes)"),
        ({"a.jpg": 1}, "{'a.jpg': 1} (dict)"),
    ],
)
def test_what_is_no_picture(ex: explainer.Explainer, given: Any, shown: str) -> None:
    assert message(lambda: ex(given, 1)) == (
        f"a picture is a path, a PIL picture, a uint8 array [H, W, 3] or a preprocessed tensor; got {shown}"
    )


@pytest.mark.parametrize("given", [[], (), iter(())])
def test_no_pictures(ex: explainer.Explainer, given: Any) -> None:
    assert message(lambda: ex(given, 1)) == "the list of pictures is empty; give at least one"
