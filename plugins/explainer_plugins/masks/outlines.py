"""Segmentations of COCO annotations, polygons or run lengths, to masks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from explainer_plugins.masks.places import DataError
from explainer_registry.errors import shown

_TRIANGLE: Final = 6
# Drawing walks along each edge in steps, and never ends where one is infinite.
_FAR: Final = 1e6
_FORMS: Final = 'expected polygons [[x, y, x, y, ...], ...] or run lengths {"size": [height, width], "counts": ...}'


def library() -> Any:
    """Import what draws the outlines.

    Raises:
        DataError: It is not installed.
    """
    try:
        from pycocotools import mask
    except ImportError as error:
        raise DataError(
            "COCO annotations need the package pycocotools, which is not installed; run pip install "
            '"vision-explainer[coco]"'
        ) from error
    return mask


def flaw(segmentation: Any, width: int, height: int) -> str:
    """Say what is wrong with a segmentation, as far as can be told without decoding it.

    Args:
        segmentation: Polygons or run lengths.
        width: Of the picture.
        height: Of the picture.

    Returns:
        Half a sentence; empty where nothing is wrong.
    """
    if isinstance(segmentation, list):
        return _flaw_of_polygons(segmentation)
    if not isinstance(segmentation, dict) or not segmentation.keys() >= {"size", "counts"}:
        return f"is {shown(segmentation)}; {_FORMS}"
    if segmentation["size"] != [height, width]:
        return f"has the size {shown(segmentation['size'])}; that of its picture is {[height, width]} ([height, width])"
    counts = segmentation["counts"]
    if isinstance(counts, list):
        return _flaw_of_runs(counts, width * height)
    return "" if isinstance(counts, str) else f"has the counts {shown(counts)}; expected a list of numbers or a str"


def encode(segmentation: Any, width: int, height: int) -> list[Any]:
    """Turn a segmentation into the run-length codes of pycocotools.

    Args:
        segmentation: Polygons or run lengths in which `flaw` finds nothing.
        width: Of the picture.
        height: Of the picture.

    Returns:
        Any number of codes, whose union is meant.

    Raises:
        DataError: Its run lengths are not right; half a sentence.
    """
    coco = library()
    if isinstance(segmentation, dict):
        counts = segmentation["counts"]
        runs = _runs(counts) if isinstance(counts, str) else counts
        if found := _flaw_of_runs(runs, width * height):
            raise DataError(found)
        return [coco.frPyObjects({"size": [height, width], "counts": runs}, height, width)]
    # Fewer corners enclose nothing, and four numbers would be taken for a box.
    polygons = [polygon for polygon in segmentation if len(polygon) >= _TRIANGLE]
    return coco.frPyObjects(polygons, height, width) if polygons else []


def union(codes: list[Any], width: int, height: int) -> npt.NDArray[np.bool_]:
    """Draw what `encode` returned, of any number of segmentations.

    Returns:
        [height, width], True where a pixel is in any of them.
    """
    if not codes:
        return np.zeros((height, width), dtype=np.bool_)
    # With NumPy 2 pycocotools warns of itself when it decodes, and the lengths of the runs say it all.
    runs = _runs(library().merge(codes)["counts"].decode())
    inside = np.arange(len(runs)) % 2 == 1
    return np.ascontiguousarray(np.repeat(inside, runs).reshape(width, height).T)


def _flaw_of_polygons(polygons: list[Any]) -> str:
    if not all(isinstance(polygon, list) for polygon in polygons):
        return f"is {shown(polygons)}; {_FORMS}"
    odd = next((len(polygon) for polygon in polygons if len(polygon) % 2), None)
    if odd is not None:
        return f"has a polygon with an odd number of numbers ({odd}), which are no pairs of x and y; {_FORMS}"
    for polygon in polygons:
        for number in polygon:
            if not (isinstance(number, (int, float)) and -_FAR <= number <= _FAR):
                return f"has a polygon with the coordinate {shown(number)}; {_FORMS}"
    return ""


def _flaw_of_runs(runs: list[Any], pixels: int) -> str:
    if not all(isinstance(run, int) and run >= 0 for run in runs):
        return "has run lengths that are not whole numbers from 0 on"
    return "" if sum(runs) == pixels else f"has run lengths of {sum(runs)} pixels; its picture has {pixels}"


def _runs(text: str) -> list[int]:
    """Read the lengths of runs from their compressed form.

    Each number is written five bits at a time, lowest first, as characters from "0" on; bit 32 says that more
    follows, bit 16 of the last that it is negative. From the fourth on it is the difference to the last but one
    (rleToString in maskApi.c of the COCO API).
    """
    runs: list[int] = []
    value = shift = 0
    for character in text:
        bits = ord(character) - ord("0")
        if not 0 <= bits < 64:
            raise DataError(f"has the character {character!r} in its counts, which is none of run lengths")
        value |= (bits & 31) << shift
        shift += 5
        if bits & 32:
            continue
        value -= (bits & 16) << (shift - 4)
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    if shift:
        raise DataError("has counts that break off")
    return runs
