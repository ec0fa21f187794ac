"""Scenes: pictures of one to five stickers on a background, with the exact visible mask of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

from explainer_plugins.stickers.backgrounds import Pixels, background

SIZE = 96
"""Height and width of a scene in pixels, the input of the model."""

MOST = 5
"""The most stickers in one scene."""

Mask: TypeAlias = npt.NDArray[np.bool_]
"""Where an object is seen, [H, W]."""
Drawings: TypeAlias = Mapping[str, Sequence[Image.Image]]
"""Drawings of each noun, RGBA and cut out tightly."""

_SOLID = 128
"""From this opacity on, a pixel belongs to the object."""
_TRIES = 20
_LEAST_VISIBLE = 0.6
"""Share of an object's own area that must be seen, in front of what it lies on and inside the picture."""
_LARGEST = {1: 80, 2: 56, 3: 48, 4: 44, 5: 40}
_SMALLEST = {1: 32, 2: 28, 3: 26, 4: 24, 5: 24}
_GREY = np.array([0.299, 0.587, 0.114], dtype=np.float32)


@dataclass(frozen=True)
class Scene:
    """A picture whose content is known to the pixel.

    Attributes:
        picture: [H, W, 3].
        masks: Where each noun is seen; boolean [H, W], never empty, no two overlap.
    """

    picture: Pixels
    masks: Mapping[str, Mask]

    @cached_property
    def nouns(self) -> tuple[str, ...]:
        """The nouns, from the back to the front."""
        return tuple(self.masks)

    @property
    def caption(self) -> str:
        """All nouns in one phrase, 'a cat and a pizza'."""
        return " and ".join(f"a {noun}" for noun in self.nouns)


def draw(
    rng: np.random.Generator, drawings: Drawings, photos: Sequence[Image.Image], count: int, size: int = SIZE
) -> Scene:
    """Draw a scene.

    Each sticker is scaled, flipped, rotated, and changed in colour and sharpness. Stickers may cover each other and
    reach over the border, as long as 60 % of each is seen.

    Args:
        rng: Where the randomness comes from; the same state draws the same scene.
        drawings: What may be drawn.
        photos: Photographs for blurred backgrounds; may be empty.
        count: How many stickers, 1 to 5, each of another noun.
        size: Height and width in pixels.

    Returns:
        The scene. A sticker that finds no place is left out.
    """
    nouns = list(drawings)
    picture = background(rng, size, photos).astype(np.float32)
    masks: dict[str, Mask] = {}
    areas: dict[str, int] = {}
    for choice in rng.choice(len(nouns), count, replace=False):
        noun = nouns[choice]
        for _ in range(_TRIES):
            own = drawings[noun]
            sticker = _vary(
                rng, own[int(rng.integers(len(own)))], int(rng.integers(_SMALLEST[count], _LARGEST[count] + 1))
            )
            layer, area = _place(rng, sticker, size)
            seen = layer[..., 3] >= _SOLID
            behind = {name: mask & ~seen for name, mask in masks.items()}
            if all(mask.sum() >= _LEAST_VISIBLE * areas[name] for name, mask in behind.items()) and (
                seen.sum() >= _LEAST_VISIBLE * area
            ):
                opacity = layer[..., 3:] / np.float32(255)
                picture = picture * (1 - opacity) + layer[..., :3] * opacity
                masks, areas[noun] = {**behind, noun: seen}, area
                break
    return Scene(picture.round().astype(np.uint8), masks)


def _vary(rng: np.random.Generator, drawing: Image.Image, edge: int) -> Image.Image:
    """Scale a drawing to a longer edge, and change everything that leaves its noun what it is."""
    scale = edge / max(drawing.size)
    width, height = (max(1, round(length * scale * rng.uniform(0.85, 1))) for length in drawing.size)
    sticker = drawing.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2)
    if rng.random() < 0.5:
        sticker = sticker.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    angle = rng.uniform(-180, 180) if rng.random() < 0.1 else rng.normal(0, 12)
    sticker = sticker.rotate(angle, Image.Resampling.BILINEAR, expand=True)
    if rng.random() < 0.3:
        sticker = sticker.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, 1)))
    pixels = np.asarray(sticker)
    return Image.fromarray(np.dstack([_recolour(rng, pixels[..., :3]), pixels[..., 3]]))


def _recolour(rng: np.random.Generator, colours: Pixels) -> Pixels:
    """Change saturation, contrast, brightness and tint."""
    mix = np.eye(3, dtype=np.float32) + rng.normal(0, 0.08, (3, 3)).astype(np.float32)
    saturation = np.float32(rng.uniform(0, 0.5) if rng.random() < 0.1 else rng.uniform(0.6, 1.3))
    mix = mix * saturation + np.outer(_GREY, np.ones(3, np.float32)) * (1 - saturation)
    changed = (colours @ mix - 128) * np.float32(rng.uniform(0.7, 1.2)) + 128 + np.float32(rng.normal(0, 20))
    return changed.clip(0, 255).astype(np.uint8)


def _place(rng: np.random.Generator, sticker: Image.Image, size: int) -> tuple[Pixels, int]:
    """Put a sticker somewhere on an empty layer.

    Returns:
        The layer, [size, size, 4], and how many pixels of the sticker are solid, in the picture or outside.
    """
    area = int((np.asarray(sticker)[..., 3] >= _SOLID).sum())
    over = 0.15  # how far a sticker may reach over the border
    left, top = (
        int(rng.integers(round(-over * length), max(round(size - (1 - over) * length), round(-over * length)) + 1))
        for length in sticker.size
    )
    layer = Image.new("RGBA", (size, size))
    layer.paste(sticker, (left, top))
    return np.asarray(layer), area
