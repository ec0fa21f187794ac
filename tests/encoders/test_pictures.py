"""Pictures in all their spellings."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from oracles.helpers import random_images
from PIL import Image

import explainer
from explainer.frame import Frame
from explainer.pictures import open_picture, read

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


def same(picture: Any, expected: Any) -> bool:
    return picture.mode == "RGB" and np.array_equal(np.asarray(picture), np.asarray(expected.convert("RGB")))


# Spellings


def test_every_spelling_gives_the_same_maps(ex: explainer.Explainer, photo: Path) -> None:
    expected = ex(Image.fromarray(noise()), 1)
    for given in (photo, str(photo), noise(), [photo], (noise(),), iter([photo]), Image.open(photo)):
        e = ex(given, 1)
        assert torch.equal(e.maps, expected.maps)
        assert same(e.pictures[0], Image.fromarray(noise()))
        assert e.frames == expected.frames == (ex.encoder.preprocess.frame(Image.fromarray(noise())),)
    tensor = ex.encoder.preprocess(Image.fromarray(noise()))
    for given in (tensor, tensor[None], tensor.double(), tensor[None].requires_grad_()):
        e = ex(given, 1)
        assert torch.allclose(e.maps, expected.maps, atol=1e-5)
        assert e.pictures == (None,)
        assert e.frames == (Frame((64, 64), (0.0, 0.0, 64.0, 64.0)),)


def test_a_list_of_different_spellings_and_sizes(ex: explainer.Explainer, photo: Path) -> None:
    given = [photo, noise(20, 70), Image.new("L", (9, 9), 77), str(photo)]
    e = ex(given, [1, 2])
    assert e.maps.shape[:2] == (4, 2)
    assert [picture.size for picture in e.pictures if picture] == [(50, 30), (20, 70), (9, 9), (50, 30)]
    assert torch.equal(e.maps[0], e.maps[3])
    for b, single in enumerate(given):
        assert torch.allclose(e.maps[b], ex(single, [1, 2]).maps[0], atol=1e-5)


def test_the_pictures_of_a_folder_by_glob(ex: explainer.Explainer, photo: Path) -> None:
    shutil.copy(photo, photo.with_name("second.png"))
    assert len(ex(photo.parent.glob("*.png"), 1)) == 2


def test_the_original_is_not_changed(ex: explainer.Explainer) -> None:
    array, picture = noise(), Image.fromarray(noise()).convert("P")
    before = picture.copy()
    ex([array, picture], 1)
    assert np.array_equal(array, noise())
    assert picture.mode == "P"
    assert picture.tobytes() == before.tobytes()


@pytest.mark.parametrize("array", [noise()[:, ::-1], np.asfortranarray(noise()), noise()[::2, ::3]])
def test_arrays_of_any_memory_layout(array: np.ndarray) -> None:
    assert np.array_equal(np.asarray(open_picture(array)), array)


def test_an_array_in_grey() -> None:
    grey = noise()[:, :, 0]
    assert np.array_equal(np.asarray(open_picture(grey)), np.repeat(grey[:, :, None], 3, axis=2))


# Modes of Pillow


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "LAB"])
def test_modes(mode: str) -> None:
    rgb = Image.fromarray(noise())
    if mode == "LAB":
        picture = Image.new("LAB", (50, 30), (120, 130, 140))
    elif mode == "PA":
        picture = rgb.convert("P").convert("PA")
    else:
        picture = rgb.convert("L").convert(mode) if mode == "LA" else rgb.convert(mode)
    assert picture.mode == mode
    assert same(open_picture(picture), picture)


def test_transparency_is_dropped_without_a_warning(tmp_path: Path) -> None:
    """Pillow warns of palettes with transparent entries, and drops the transparency all the same."""
    picture = Image.fromarray(noise()).convert("P")
    expected = picture.convert("RGB")
    picture.info["transparency"] = bytes(range(256))
    picture.save(tmp_path / "palette.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert same(open_picture(picture), expected)
        assert same(open_picture(tmp_path / "palette.png"), expected)


@pytest.mark.parametrize("dtype", ["<u2", ">u2"])
def test_sixteen_bits_keep_their_range(tmp_path: Path, dtype: str) -> None:
    """Pillow's own conversion turns everything above 255 of 65535 white."""
    values = np.linspace(0, 65535, 12, dtype=dtype).reshape(3, 4)
    picture = Image.fromarray(values)
    assert picture.mode.startswith("I;16")
    expected = np.round(values.astype(float) / 257).astype(np.uint8)
    assert np.array_equal(np.asarray(open_picture(picture))[:, :, 0], expected)
    picture.save(tmp_path / "deep.png")
    assert np.array_equal(np.asarray(open_picture(tmp_path / "deep.png"))[:, :, 2], expected)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_modes_without_a_range(tmp_path: Path, mode: str) -> None:
    text = f"a picture of mode '{mode}' says nothing about its range; scale it to 0..255 and give it as a uint8 array"
    assert message(lambda: open_picture(Image.new(mode, (5, 4)))) == text
    path = tmp_path / "float.tif"
    Image.new(mode, (5, 4)).save(path)
    assert message(lambda: open_picture(path)) == f"the picture '{path}' cannot be read: {text}"


def test_a_mode_that_pillow_does_not_turn_into_rgb() -> None:
    text = message(lambda: open_picture(Image.new("La", (5, 4))))
    assert re.fullmatch(r"a picture of mode 'La' cannot be turned into RGB: conversion from La .+", text)


TURNS = {1: [], 2: ["FLIP_LEFT_RIGHT"], 3: ["ROTATE_180"], 6: ["ROTATE_270"], 8: ["ROTATE_90"]}


@pytest.mark.parametrize("orientation", TURNS)
def test_a_picture_is_turned_the_way_it_was_taken(ex: explainer.Explainer, tmp_path: Path, orientation: int) -> None:
    expected = Image.fromarray(noise())
    for turn in TURNS[orientation]:
        expected = expected.transpose(Image.Transpose[turn])
    exif = Image.Exif()
    exif[0x112] = orientation
    path = tmp_path / "turned.png"
    Image.fromarray(noise()).save(path, exif=exif)
    assert same(open_picture(path), expected)
    assert same(open_picture(Image.open(path)), expected)
    assert ex(path, 1).frames[0].picture == expected.size


# Tensors


@pytest.mark.parametrize(
    "shape", [(64, 64), (1, 64, 64), (2, 1, 64, 64), (2, 64, 64, 3), (1, 1, 3, 8, 8), (0, 3, 64, 64), (3, 0, 9)]
)
def test_tensors_of_another_shape(ex: explainer.Explainer, shape: tuple[int, ...]) -> None:
    shown = [1, *shape] if len(shape) == 3 else list(shape)
    assert message(lambda: ex(torch.zeros(shape), 1)) == (
        f"a tensor of pictures is [B, 3, H, W] or [3, H, W], preprocessed; got shape {shown}"
    )


@pytest.mark.parametrize(("dtype", "name"), [(torch.uint8, "uint8"), (torch.int64, "int64"), (torch.bool, "bool")])
def test_tensors_that_are_not_preprocessed(ex: explainer.Explainer, dtype: torch.dtype, name: str) -> None:
    assert message(lambda: ex(torch.zeros(1, 3, 64, 64, dtype=dtype), 1)) == (
        f"a tensor of pictures is preprocessed floating point; got {name}; give a PIL picture or a uint8 array to have "
        "it preprocessed"
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_tensors_that_are_not_finite(ex: explainer.Explainer, value: float) -> None:
    images = random_images(2, 64)
    images[1, 2, 3, 4] = value
    assert message(lambda: ex(images, 1)) == "a tensor of pictures holds NaN or infinity"


def test_a_list_of_tensors(ex: explainer.Explainer) -> None:
    images = random_images(2, 64)
    assert message(lambda: ex(list(images), 1)) == (
        "tensors are preprocessed pictures and are given as one batch: torch.stack(tensors), not in a list"
    )
    assert len(ex(torch.stack(list(images)), 1)) == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_tensors_of_another_floating_type(ex: explainer.Explainer, dtype: torch.dtype) -> None:
    batch = read(random_images(2, 64).to(dtype), ex.encoder)
    assert batch.images.dtype == torch.float32
    assert torch.equal(batch.images, random_images(2, 64).to(dtype).float())


def test_tensors_follow_the_model_to_its_device_and_type() -> None:
    half = explainer.wrap(resnet(num_classes=4).bfloat16())
    assert read(random_images(1, 64), half.encoder).images.dtype == torch.bfloat16
    assert read(Image.fromarray(noise()), half.encoder).images.dtype == torch.bfloat16
    elsewhere = explainer.wrap(resnet(num_classes=4))
    elsewhere.encoder.model.to("meta")
    assert read(random_images(1, 64), elsewhere.encoder).images.device.type == "meta"
    assert read(Image.fromarray(noise()), elsewhere.encoder).images.device.type == "meta"


def test_a_tensor_is_not_changed_and_gets_no_gradient(ex: explainer.Explainer) -> None:
    images = random_images(1, 64).requires_grad_()
    before = images.detach().clone()
    e = ex(images, 1, method="gradcam")
    assert images.grad is None
    assert torch.equal(images, before)
    assert not e.maps.requires_grad


def test_tensors_made_inside_inference_mode(ex: explainer.Explainer) -> None:
    expected = ex(random_images(1, 64), 1, method="gradcam").maps
    with torch.inference_mode():
        images = random_images(1, 64) + 0
        assert torch.equal(ex(images, 1, method="gradcam").maps, expected)
    assert torch.equal(ex(images, 1, method="gradcam").maps, expected)
