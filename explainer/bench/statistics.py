"""Means over objects and how far they can be trusted: the bootstrap over pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

RESAMPLES = 1000
LEVEL = 0.95
ALL = ""
"""The group that holds every picture."""

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Figure:
    """A mean with its confidence interval.

    Attributes:
        mean: Over the objects.
        low: Lower end of the interval.
        high: Upper end.
        setting: Number of the setting that was chosen, counted from 0; None for a metric without settings.
    """

    mean: float
    low: float
    high: float
    setting: int | None = None


@lru_cache(maxsize=2)
def resampled(pictures: int, seed: int) -> Counts:
    """Draw as many pictures as there are, with replacement, again and again.

    Args:
        pictures: P.
        seed: Another seed gives other draws.

    Returns:
        [R, P], how often each picture was drawn.
    """
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(pictures, np.full(pictures, 1 / pictures), size=RESAMPLES)
    drawn.flags.writeable = False
    return drawn


def figures(values: Floats, pictures: Sequence[int], groups: Sequence[str], seed: int) -> dict[str, Figure]:
    """Average over objects, with percentile intervals of the bootstrap over pictures.

    The objects of one picture are not independent of each other, so pictures are drawn and all their objects come
    along (cluster bootstrap; Davison and Hinkley 1997, section 3.8). Where a metric has several settings the best one
    is chosen, one for all objects; each resample chooses anew. A group is judged at the setting of all.

    Args:
        values: [N, K], of N objects at K settings.
        pictures: N numbers of the pictures that the objects are in.
        groups: N names of the groups that these pictures belong to; "" for none.
        seed: Of the draws.

    Returns:
        The figure of all objects under `ALL`, and that of each group under its name.
    """
    _, first, place = np.unique(pictures, return_index=True, return_inverse=True)
    sums = np.zeros((len(first), values.shape[1]))
    np.add.at(sums, place, values)
    objects = np.bincount(place).astype(np.float64)
    drawn = resampled(len(first), seed).astype(np.float64)
    means = (drawn @ sums) / (drawn @ objects)[:, None]
    # Settings that differ by rounding alone are equal; the first of them is taken.
    chosen = np.round(means, 12).argmax(axis=1)
    overall: Floats = sums.sum(axis=0) / objects.sum()
    setting = int(np.round(overall, 12).argmax())
    group_of = np.array(groups)[first]

    found: dict[str, Figure] = {}
    for group in (ALL, *sorted({*groups} - {ALL})):
        inside = np.ones(len(first), dtype=bool) if group == ALL else group_of == group
        mean = sums[inside, setting].sum() / objects[inside].sum()
        # A resample can hold no picture of a group; it says nothing about it then.
        with np.errstate(invalid="ignore"):
            means = (drawn[:, inside] @ sums[inside]) / (drawn[:, inside] @ objects[inside])[:, None]
        spread = means[np.arange(RESAMPLES), chosen]
        found[group] = figure(float(mean), spread, setting if values.shape[1] > 1 else None)
    return found


def figure(mean: float, spread: Floats, setting: int | None = None) -> Figure:
    """Put the percentile interval of resampled means around a mean.

    Args:
        mean: Of the pictures as they are.
        spread: [R], of the resamples; NaN where one says nothing.
        setting: Number of the chosen setting.
    """
    ends = np.nanpercentile(spread, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return Figure(mean, float(ends[0]), float(ends[1]), setting)


def precision(scores: Floats, shown: npt.NDArray[np.bool_], drawn: npt.NDArray[np.number]) -> Floats:
    """Compute the average precision of a ranking of pictures, in many resamples at once.

    The mean of the precision at each picture that shows the label, pictures of one score counting together: what
    `sklearn.metrics.average_precision_score` and torchmetrics compute, with pictures counted as often as drawn.

    Args:
        scores: [P], the higher the earlier.
        shown: [P], whether the picture shows the label.
        drawn: [R, P], how often each picture counts.

    Returns:
        [R]; NaN where no picture that shows the label was drawn.
    """
    order = np.argsort(-scores, kind="stable")
    ends = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    ordered = drawn[:, order]
    hits = np.cumsum(ordered * shown[order], axis=1)[:, ends].astype(np.float64)
    seen = np.cumsum(ordered, axis=1)[:, ends]
    gained = np.diff(hits, axis=1, prepend=0)
    with np.errstate(invalid="ignore"):
        return (gained * hits / np.maximum(seen, 1)).sum(axis=1) / hits[:, -1]
