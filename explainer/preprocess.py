"""From a picture to a model's input, and the place of that input on the picture."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode, functional  # pyright: ignore[reportMissingTypeStubs]

from explainer.frame import Frame
from explainer.pictures import PictureError

# torchvision declares these for tensors alone.
_functional: Any = functional
_resize, _pad, _center_crop = _functional.resize, _functional.pad, _functional.center_crop
_to_tensor, _normalize = _functional.to_tensor, _functional.normalize

MOST_PIXELS = 2**28
Fit = Literal["crop", "squash", "pad"]


@dataclass(frozen=True)
class Preprocess:
    """How a model wants its pictures, as its own configuration states it.

    Attributes:
        size: Height and width of the input.
        mean: Per channel, subtracted from values in [0, 1].
        std: Per channel, divided by.
        interpolation: Name of a resampling filter ("bilinear", "bicubic", ...).
        scaled: Height and width to scale to before the centre of `size` is cut out; equal to `size`
            where nothing is cut away.
        fit: "crop" covers `scaled` and keeps the aspect ratio, so the edges of the picture can be lost;
            "squash" stretches the picture to `scaled`; "pad" keeps it whole and fills the rest.
        fill: Colour of the padding, per channel in 0..255.
    """

    size: tuple[int, int]
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"
    scaled: tuple[int, int] | None = None
    fit: Fit = "crop"
    fill: tuple[int, ...] = (0, 0, 0)

    def __call__(self, picture: Image.Image) -> Tensor:
        """Turn a picture into a model input.

        Args:
            picture: Any mode; it is read as RGB.

        Returns:
            [3, height, width], normalised.

        Raises:
            PictureError: The picture is so elongated that scaling it would fill the memory.
        """
        size = self._scaled_size(picture)
        if math.prod(size) > MOST_PIXELS:
            raise PictureError(
                f"a picture {picture.width} wide and {picture.height} high would be scaled to {size[1]} x {size[0]} "
                "before its middle is cut out; cut it yourself first"
            )
        resized: Image.Image = _resize(picture.convert("RGB"), list(size), InterpolationMode(self.interpolation))
        padding = self._padding(resized)
        if any(padding):
            resized = _pad(resized, list(padding), fill=list(self.fill))
        return _normalize(_to_tensor(_center_crop(resized, list(self.size))), list(self.mean), list(self.std))

    def frame(self, picture: Image.Image) -> Frame:
        """Say where the model's input lies on a picture."""
        width, height = picture.size
        scaled_height, scaled_width = self._scaled_size(picture)
        # A negative margin is padding. Rounding is that of the centre crop, to the pixel.
        top, left = (
            _margin(inner, outer) for inner, outer in zip(self.size, (scaled_height, scaled_width), strict=True)
        )
        across, down = width / scaled_width, height / scaled_height
        box = (left * across, top * down, (left + self.size[1]) * across, (top + self.size[0]) * down)
        return Frame((width, height), box)

    def _scaled_size(self, picture: Image.Image) -> tuple[int, int]:
        width, height = picture.size
        target_height, target_width = self.scaled or self.size
        if self.fit == "squash":
            return target_height, target_width
        if self.fit == "crop" and target_height == target_width:
            # Same rounding as a resize of the shorter edge: the longer one is cut off, not rounded.
            short, long = min(height, width), max(height, width)
            longer = int(target_height * long / short)
            return (target_height, longer) if height <= width else (longer, target_height)
        ratios = (height / target_height, width / target_width)
        ratio = max(ratios) if self.fit == "pad" else min(ratios)
        return max(round(height / ratio), 1), max(round(width / ratio), 1)

    def _padding(self, picture: Image.Image) -> tuple[int, int, int, int]:
        missing = [max(own - got, 0) for own, got in zip(self.size, (picture.height, picture.width), strict=True)]
        top, left = (space // 2 for space in missing)
        return left, top, missing[1] - left, missing[0] - top


def _margin(inner: int, outer: int) -> int:
    if outer < inner:
        return -((inner - outer) // 2)
    return round((outer - inner) / 2)
