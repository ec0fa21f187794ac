"""What the numbers and the colours in masks stand for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from explainer.naming import listing
from explainer_plugins.masks.places import DataError

Colour: TypeAlias = tuple[int, int, int]

VOID: Final = 255
"""Number of the border that PASCAL VOC leaves undecided."""

VOC_CLASSES: Final = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)

LABELMAP: Final = "labelmap.txt"
NAME_FILES: Final = ("classes.txt", "class_names.txt")

_BACKGROUND: Final = frozenset({"background", "_background_", "__background__"})
_UNDECIDED: Final = frozenset({"ignore", "ignored", "void"})


def voc_colour(number: int) -> Colour:
    """Give the colour of a number in PASCAL VOC's palette.

    The lowest three bits of the number are the highest bits of red, green and blue, the next three the second
    highest, and so on (VOCcolormap of the VOC development kit).

    Args:
        number: From 0 to 255.

    Returns:
        Red, green and blue, from 0 to 255.
    """
    red, green, blue = (
        sum((number >> (3 * place + channel) & 1) << (7 - place) for place in range(3)) for channel in range(3)
    )
    return red, green, blue


VOC_COLOURS: Final = {voc_colour(number): number for number in range(256)}


@dataclass(frozen=True)
class Classes:
    """The classes of a data set.

    Attributes:
        labels: Their names; the first is number 1.
        origin: Where the names are from, to end a message with.
        colours: Numbers by colour, for masks that hold colours.
        colour_origin: Whose colours these are; empty for PASCAL VOC's, which nobody chose.
    """

    labels: tuple[str, ...]
    origin: str
    colours: dict[Colour, int] = field(default_factory=lambda: dict(VOC_COLOURS))
    colour_origin: str = ""


def read_classes(given: Sequence[str] | None, source: Path, is_voc: bool) -> Classes | None:
    """Find the names of the classes: what is given, else what a file in the folder says, else PASCAL VOC's.

    Args:
        given: The setting ``classes``.
        source: Folder of the data set.
        is_voc: It has PASCAL VOC's layout.

    Returns:
        The classes; None where nothing names them.

    Raises:
        DataError: A name is empty or there twice, or a file is not of its form.
    """
    mapped = _read_labelmap(source / LABELMAP) if (source / LABELMAP).is_file() else None
    named = next((source / name for name in NAME_FILES if (source / name).is_file()), None)
    if given is not None:
        labels, origin = _checked(given, "the setting classes"), "the setting classes"
    elif named is not None:
        labels, origin = _checked(_lines(named), f"'{named}'"), f"'{named}'"
    elif mapped is not None:
        return mapped
    elif is_voc:
        return Classes(VOC_CLASSES, "PASCAL VOC, since nothing else names the classes")
    else:
        return None
    if mapped is None:
        return Classes(labels, origin)
    return Classes(labels, origin, mapped.colours, mapped.colour_origin)


def _checked(names: Sequence[str], origin: str) -> tuple[str, ...]:
    # Lists of classes often begin with what number 0 is.
    labels = [name.strip() for name in names]
    labels = labels[1:] if labels and labels[0].lower() in _BACKGROUND else labels
    if not labels:
        raise DataError(f"{origin} names no classes; give one name for each number in the masks, from 1 on")
    for place, label in enumerate(labels):
        if not label:
            raise DataError(f"in {origin} number {place + 1} has an empty name; each class has one, in order from 1 on")
        if label in labels[:place]:
            raise DataError(
                f"in {origin} the numbers {labels.index(label) + 1} and {place + 1} are both called {label!r}; a name "
                "stands for one number"
            )
    return tuple(labels)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not a text file in UTF-8: {error}") from None


def _read_labelmap(path: Path) -> Classes:
    # As CVAT and Datumaro write it, one "name:red,green,blue:parts:actions" on a line, the colour optional.
    # Background may stand anywhere.
    names: list[str] = []
    colours: dict[Colour, int] = {}
    chosen = False
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, rest = line.partition(":")
        name, colour = name.strip(), _colour(rest.partition(":")[0], f"line {number} of '{path}'")
        if name.lower() in _BACKGROUND:
            meaning = 0
        elif name.lower() in _UNDECIDED:
            meaning = VOID
        else:
            names.append(name)
            meaning = len(names)
        if colour is None:
            continue
        if colour in colours:
            raise DataError(f"line {number} of '{path}' repeats the colour {_written(colour)}; a colour is one class")
        chosen, colours[colour] = True, meaning
    labels = _checked(names, f"'{path}'")
    if not chosen:
        return Classes(labels, f"'{path}'")
    # What these two mean everywhere else need not be said.
    return Classes(labels, f"'{path}'", {voc_colour(0): 0, voc_colour(VOID): VOID, **colours}, f"'{path}'")


def _colour(text: str, where: str) -> Colour | None:
    if not text.strip():
        return None
    try:
        red, green, blue = (int(part) for part in text.split(","))
        if not all(0 <= level <= 255 for level in (red, green, blue)):
            raise ValueError
    except ValueError:
        raise DataError(
            f"{where} holds the colour {text.strip()!r}; expected red, green and blue from 0 to 255, such as "
            "dog:64,0,128::"
        ) from None
    return red, green, blue


def _written(colour: Colour) -> str:
    return ",".join(map(str, colour))


def written_colours(colours: Sequence[Colour]) -> str:
    """Write colours for a message, the first ones of many."""
    return listing([_written(colour) for colour in colours])
