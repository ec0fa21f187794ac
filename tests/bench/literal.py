"""The metrics and the bootstrap, written out pixel by pixel and draw by draw from their definitions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

Pixels = list[tuple[float, bool]]
"""Heat of each pixel that counts, and whether it is on the object."""


def pixels(heat: Sequence[Sequence[float]], mask: Sequence[Sequence[bool]], valid: Sequence[Sequence[bool]]) -> Pixels:
    """Go through a picture row by row."""
    return [(float(heat[y][x]), bool(mask[y][x])) for y in range(len(heat)) for x in range(len(heat[0])) if valid[y][x]]


def pointing(found: Pixels) -> float:
    hottest = max(value for value, _ in found)
    there = [on for value, on in found if value == hottest]
    return there.count(True) / len(there)


def scaled(found: Pixels) -> Pixels:
    low, high = min(value for value, _ in found), max(value for value, _ in found)
    return [((value - low) / (high - low) if high > low else 0.0, on) for value, on in found]


def energy(found: Pixels) -> float:
    inside = sum(value for value, on in scaled(found) if on)
    total = sum(value for value, _ in scaled(found))
    if total == 0:
        return [on for _, on in found].count(True) / len(found)
    return inside / total


def iou(found: Pixels, threshold: float) -> float:
    both = either = 0
    for value, on in scaled(found):
        both += value >= threshold and on
        either += value >= threshold or on
    return both / either


def average_precision(found: Pixels) -> float:
    """The sum over thresholds, from the highest value down, of precision times the recall that is gained."""
    objects = [on for _, on in found].count(True)
    area, recall = Fraction(0), Fraction(0)
    for threshold in sorted({value for value, _ in found}, reverse=True):
        marked = [on for value, on in found if value >= threshold]
        precision = Fraction(marked.count(True), len(marked))
        area += (Fraction(marked.count(True), objects) - recall) * precision
        recall = Fraction(marked.count(True), objects)
    return float(area)


Object = tuple[int, str, list[float]]
"""The number of its picture, the group of that, and a value for each setting."""


def mean(objects: Sequence[Object], setting: int) -> float:
    return sum(values[setting] for _, _, values in objects) / len(objects)


def best(objects: Sequence[Object]) -> int:
    settings = range(len(objects[0][2]))
    return max(settings, key=lambda setting: (mean(objects, setting), -setting))


def resamples(objects: Sequence[Object], drawn: Sequence[Sequence[int]], group: str = "") -> list[float]:
    """For each draw, the mean of a group at the setting that is the best for all objects of the draw."""
    pictures = sorted({picture for picture, _, _ in objects})
    means: list[float] = []
    for times in drawn:
        copies = [
            one
            for picture, count in zip(pictures, times, strict=True)
            for _ in range(count)
            for one in objects
            if one[0] == picture
        ]
        inside = [one for one in copies if not group or one[1] == group]
        if inside:
            means.append(mean(inside, best(copies)))
    return means
