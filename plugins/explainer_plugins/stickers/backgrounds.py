"""Backgrounds of sticker scenes: plain, gradients, noise, textures and blurred photographs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Pixels: TypeAlias = npt.NDArray[np.uint8]
"""A picture, [H, W, 3]."""

_LIGHT = 0.3
"""Share of plain backgrounds that are white or nearly so, as most pictures of stickers are."""


def background(rng: np.random.Generator, size: int, photos: Sequence[Image.Image]) -> Pixels:
    """Draw a background of a random kind.

    Args:
        rng: Where the randomness comes from.
        size: Height and width in pixels.
        photos: Photographs to take blurred parts of; without any, that kind is left out.

    Returns:
        The background, [size, size, 3].
    """
    kinds = ["plain", "gradient", "noise", "texture", *(["photo"] if photos else [])]
    kind = kinds[rng.integers(len(kinds))]
    if kind == "photo":
        return _photo(rng, size, photos)
    drawn = {"plain": _plain, "gradient": _gradient, "noise": _noise, "texture": _texture}[kind](rng, size)
    return drawn.clip(0, 255).astype(np.uint8)


def _plain(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    light = rng.random() < _LIGHT
    colour = rng.uniform(225, 256, 3) if light else _colour(rng)
    return np.broadcast_to(colour.astype(np.float32), (size, size, 3))


def _gradient(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    share = _ramp(rng, size)[..., None]
    return (_colour(rng) * share + _colour(rng) * (1 - share)).astype(np.float32)


def _noise(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    cells = int(rng.choice([3, 6, 12, 24, 48, size]))
    coarse = Image.fromarray(rng.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
    strength = rng.uniform(0.2, 1)
    spread = np.asarray(coarse.resize((size, size), Image.Resampling.BICUBIC), dtype=np.float32)
    return (_colour(rng) * (1 - strength) + spread * strength).astype(np.float32)


def _texture(rng: np.random.Generator, size: int) -> npt.NDArray[np.float32]:
    """Stripes, a checker board or dots in two colours: products of waves, hard or soft."""
    periods = rng.uniform(4, 32)
    waves = np.sin(2 * np.pi * periods * _ramp(rng, size) + rng.uniform(0, 2 * np.pi))
    if rng.random() < 0.5:
        waves = waves * np.sin(2 * np.pi * periods * _ramp(rng, size))
    share = (waves * rng.choice([1, 20]) / 2 + 0.5).clip(0, 1)[..., None]
    return (_colour(rng) * share + _colour(rng) * (1 - share)).astype(np.float32)


def _photo(rng: np.random.Generator, size: int, photos: Sequence[Image.Image]) -> Pixels:
    photo = photos[int(rng.integers(len(photos)))]
    edge = int(min(photo.size) * rng.uniform(0.3, 1))
    left, top = (int(rng.integers(length - edge + 1)) for length in photo.size)
    part = photo.resize((size, size), Image.Resampling.BILINEAR, (left, top, left + edge, top + edge))
    return np.asarray(part.filter(ImageFilter.GaussianBlur(rng.uniform(1, 4))))


def _ramp(rng: np.random.Generator, size: int) -> npt.NDArray[np.float64]:
    """Rise from 0 to about 1 across the picture, in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    rows, columns = np.mgrid[0:size, 0:size] / (size - 1) - 0.5
    return 0.5 + (rows * np.sin(angle) + columns * np.cos(angle)) / np.sqrt(2)


def _colour(rng: np.random.Generator) -> npt.NDArray[np.float32]:
    return rng.uniform(0, 256, 3).astype(np.float32)
