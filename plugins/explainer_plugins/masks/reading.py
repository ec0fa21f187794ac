"""Reading a mask picture as the numbers it holds."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL.ImageFile import ImageFile

from explainer_plugins.masks.classes import Classes, Colour, written_colours
from explainer_plugins.masks.places import DataError
from explainer_plugins.masks.upright import open_file

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

Numbers: TypeAlias = npt.NDArray[np.int64]

# Pillow spreads the few levels of small greys over 0 to 255.
_GREY_STEPS: Final = {"L;2": 85, "L;4": 17}
_BLACK_OR_WHITE: Final = frozenset({0, 255})
_SHOWN: Final = 8


def read_numbers(path: Path, classes: Classes, known: Collection[int]) -> Numbers:
    """Read the number at each pixel of a mask.

    Grey levels and indices of a palette are numbers themselves; colours stand for the numbers that the data set's
    labelmap.txt or PASCAL VOC's palette gives them.

    Args:
        path: The mask.
        classes: The classes of the data set.
        known: The numbers that masks may hold.

    Returns:
        [H, W].

    Raises:
        DataError: It cannot be read, is transparent, holds colours that stand for nothing, or can be read in two ways.
    """
    with open_file(path, "mask") as mask:
        step = _grey_step(mask)
        try:
            pixels: npt.NDArray[Any] = np.asarray(mask)
        except Exception as error:  # what a decoder of a broken file raises is not one kind
            raise DataError(f"the mask '{path}' cannot be read: {error}") from error
    if mask.mode in ("LA", "RGBA") and (pixels[..., -1] != 255).any():
        raise DataError(
            f"the mask '{path}' is transparent in places, which stands for no number; save it without transparency"
        )
    if mask.mode in ("RGB", "RGBA"):
        return _by_colour(pixels[..., :3], classes, path)
    if mask.mode == "P":
        return _by_palette(pixels.astype(np.int64), mask, classes, known, path)
    if mask.mode == "LA":
        return pixels[..., 0].astype(np.int64)
    if mask.mode in ("1", "L", "I") or mask.mode.startswith("I;16"):
        return pixels.astype(np.int64) // step
    raise DataError(
        f"the mask '{path}' is of mode '{mask.mode}'; a mask holds a number at each pixel, as grey levels or indices "
        "of a palette"
    )


def _grey_step(mask: Picture) -> int:
    # How the file is packed is known only until it is decoded; PNG says it alone, other kinds among other things.
    packed: Any = mask.tile[0][3] if isinstance(mask, ImageFile) and mask.tile else ""
    return _GREY_STEPS.get(packed if isinstance(packed, str) else str(packed[0]), 1)


def _by_colour(pixels: npt.NDArray[Any], classes: Classes, path: Path) -> Numbers:
    packed = pixels.astype(np.int64) @ np.array([1 << 16, 1 << 8, 1])
    used, places = np.unique(packed, return_inverse=True)
    colours: list[Colour] = [(colour >> 16, colour >> 8 & 255, colour & 255) for colour in used.tolist()]
    numbers = _meanings(colours, classes)
    if numbers is None:
        unknown = [colour for colour in colours if colour not in classes.colours]
        known = f"in {classes.colour_origin}" if classes.colour_origin else "in PASCAL VOC's palette"
        raise DataError(
            f"the mask '{path}' holds colours that are not {known}: {written_colours(unknown)} (red,green,blue); list "
            "the colour of each class in labelmap.txt in the folder, such as dog:64,0,128::"
        )
    return np.array(numbers)[places].reshape(packed.shape)


def _by_palette(indices: Numbers, mask: Picture, classes: Classes, known: Collection[int], path: Path) -> Numbers:
    used: list[int] = np.unique(indices).tolist()
    palette = mask.getpalette("RGB") or []
    palette += [0] * (3 * 256 - len(palette))
    colours: list[Colour] = [(palette[3 * index], palette[3 * index + 1], palette[3 * index + 2]) for index in used]
    numbers = _meanings(colours, classes)
    if numbers is None or numbers == used:
        return indices
    if classes.colour_origin and classes.colours.keys() >= set(colours):
        table = np.zeros(256, dtype=np.int64)
        table[used] = numbers
        return table[indices]
    # Black and white are how one object is mostly drawn, and grey levels or colours that name no class are there
    # to be looked at. What is left may be either: programs that make files smaller renumber a palette.
    if set(numbers) <= _BLACK_OR_WHITE or not set(numbers) <= set(known):
        return indices
    raise DataError(
        f"the mask '{path}' can be read in two ways: its pixels hold the numbers {written(used)}, but in colours that "
        f"stand for {written(numbers)}; save it as grey levels of the right numbers, or list the colour of each class "
        "in labelmap.txt in the folder, such as dog:64,0,128::"
    )


def _meanings(colours: list[Colour], classes: Classes) -> list[int] | None:
    numbers = [classes.colours[colour] for colour in colours if colour in classes.colours]
    if len(numbers) == len(colours):
        return numbers
    if all(red == green == blue for red, green, blue in colours):
        return [red for red, _, _ in colours]
    return None


def written(numbers: list[int]) -> str:
    """Write numbers for a message, the first ones of many."""
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return ", ".join(map(str, numbers[:_SHOWN])) + more
