"""Where the model's input lies on the picture."""

from __future__ import annotations

import math
from dataclasses import dataclass

from explainer_registry.errors import ExplainerError


@dataclass(frozen=True)
class Frame:
    """The part of a picture that the model saw, edge to edge.

    A centre crop gives a box smaller than the picture, padding a box that reaches beyond it.
    Coordinates are edges, not pixel centres: the pixel in column x covers x to x + 1.

    Args:
        picture: Width and height of the picture in pixels, as PIL gives them.
        box: Left, top, right and bottom edge of the model's input, in pixels of the picture.

    Raises:
        ExplainerError: Sizes are not positive, the box is empty or lies wholly outside the picture.
    """

    picture: tuple[int, int]
    box: tuple[float, float, float, float]

    def __post_init__(self) -> None:
        width, height = (int(length) for length in self.picture)
        left, top, right, bottom = (float(edge) for edge in self.box)
        object.__setattr__(self, "picture", (width, height))
        object.__setattr__(self, "box", (left, top, right, bottom))
        if width < 1 or height < 1:
            raise ExplainerError(
                f"a frame needs a picture of at least 1 x 1 pixels; got width {width} and height {height}"
            )
        if not all(map(math.isfinite, self.box)) or left >= right or top >= bottom:
            raise ExplainerError(
                f"a frame's box is (left, top, right, bottom) with left < right and top < bottom; got {self.box}"
            )
        if left >= width or top >= height or right <= 0 or bottom <= 0:
            raise ExplainerError(
                f"the box {self.box} lies outside the picture, which is {width} wide and {height} high"
            )

    @classmethod
    def whole(cls, picture: tuple[int, int]) -> Frame:
        """Build the frame of a model that saw the whole picture.

        Args:
            picture: Width and height in pixels.

        Returns:
            The frame whose box is the picture.
        """
        width, height = picture
        return cls(picture, (0, 0, width, height))

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture, in the order of a tensor's last two dimensions."""
        width, height = self.picture
        return height, width

    def scaled(self, size: tuple[int, int]) -> Frame:
        """Say where the input lies once the picture has been resized.

        Args:
            size: New height and width of the picture in pixels.

        Returns:
            The frame on the resized picture; the box keeps its place relative to the picture.
        """
        height, width = size
        across, down = width / self.picture[0], height / self.picture[1]
        left, top, right, bottom = self.box
        return Frame((width, height), (left * across, top * down, right * across, bottom * down))
