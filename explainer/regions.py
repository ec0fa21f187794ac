"""From heat to masks and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from explainer.heat import lay, seen
from explainer_registry.errors import ExplainerError

if TYPE_CHECKING:
    from torch import Tensor

    from explainer.frame import Frame

Integers = npt.NDArray[np.intp]


class Box(NamedTuple):
    """A region of high heat, in pixels of the picture, edge to edge as `PIL.Image.crop` takes them.

    Args:
        left: Left edge: the first column.
        top: Upper edge: the first row.
        right: Right edge: one past the last column.
        bottom: Lower edge: one past the last row.
        score: Mean heat of the region's pixels, 0 to 1.
    """

    left: int
    top: int
    right: int
    bottom: int
    score: float


def mask(
    maps: Tensor,
    frames: Sequence[Frame],
    size: tuple[int, int],
    threshold: float | None = None,
    quantile: float | None = None,
) -> Tensor:
    """Mark the pixels of high heat.

    Args:
        maps: [B, T, h, w], float32.
        frames: Where each of the B inputs lies on its picture.
        size: Height and width of the result.
        threshold: Pixels whose min-max normalised heat is at least this, 0 to 1. 0.5 where neither
            this nor a quantile is given.
        quantile: Pixels whose heat is at least that of this share of the seen pixels, 0 to 1.

    Returns:
        [B, T, H, W], bool, on the maps' device. False where the model never looked and all over a
        constant map.

    Raises:
        ExplainerError: Both a threshold and a quantile are given, or one is outside 0 to 1.
    """
    return _hot(maps, frames, size, threshold, quantile)[0]


def boxes(
    maps: Tensor,
    frame: Frame,
    threshold: float | None = None,
    quantile: float | None = None,
    min_area: float = 0.0,
) -> list[list[Box]]:
    """Put a box around each connected region of a picture's masks; diagonal neighbours connect.

    Args:
        maps: [T, h, w], float32: the maps of one picture.
        frame: Where the input lies on the picture.
        threshold: As for `mask`.
        quantile: As for `mask`.
        min_area: Regions smaller than this share of the picture, 0 to 1, are left out.

    Returns:
        For each of the T maps its boxes, the hottest first.

    Raises:
        ExplainerError: As for `mask`, or min_area is outside 0 to 1.
    """
    if not 0 <= min_area <= 1:
        raise ExplainerError(f"min_area is a share of the picture from 0 to 1; got {min_area}")
    least = min_area * math.prod(frame.size)
    found: list[list[Box]] = []
    # One map at a time: eighty of them at the size of a photograph would not fit.
    for one in maps.detach():
        hot, values = _hot(one[None, None], [frame], frame.size, threshold, quantile)
        regions = _regions(hot[0, 0].cpu().numpy(), values[0, 0].cpu().numpy(), least)
        found.append(sorted(regions, key=lambda box: -box.score))
    return found


def _hot(
    maps: Tensor,
    frames: Sequence[Frame],
    size: tuple[int, int],
    threshold: float | None,
    quantile: float | None,
) -> tuple[Tensor, Tensor]:
    """Give the mask, and the normalised heat that it was taken from."""
    if threshold is not None and quantile is not None:
        raise ExplainerError(
            f"give a threshold or a quantile, not both; got threshold={threshold} and quantile={quantile}"
        )
    for name, value in (("threshold", threshold), ("quantile", quantile)):
        if value is not None and not 0 <= value <= 1:
            raise ExplainerError(f"{name} is a number from 0 to 1; got {value}")
    values = lay(maps, frames, size, "minmax")
    visible = seen(frames, size, maps.device)
    if quantile is None:
        hot = values >= (0.5 if threshold is None else threshold)
    else:
        hot = values >= _quantile(values, visible, quantile)
    # A map that varies reaches 1; one that is constant where the model looked stays at 0.
    return hot & visible & (values.amax((-2, -1), keepdim=True) > 0), values


def _quantile(values: Tensor, visible: Tensor, share: float) -> Tensor:
    """Find the value that this share of the visible pixels stays below, [B, T, 1, 1].

    An order statistic, not interpolated. `torch.quantile` refuses more than 16 million values, fewer
    than a camera's picture has.
    """
    levels = values.new_zeros(values.shape[:2])
    for b, shown in enumerate(visible[:, 0]):
        for t, one in enumerate(values[b]):
            ordered = one[shown].sort().values
            if len(ordered):
                levels[b, t] = ordered[min(int(share * len(ordered)), len(ordered) - 1)]
    return levels[:, :, None, None]


def _regions(hot: npt.NDArray[np.bool_], values: npt.NDArray[np.float32], least: float) -> list[Box]:
    """Box the connected regions of one mask [H, W] that have at least so many pixels."""
    steps = np.diff(np.pad(hot, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(steps == 1)
    ends = np.nonzero(steps == -1)[1]
    region, count = _connected(rows, starts, ends, hot.shape[1])
    sums = np.append(0, values.cumsum(dtype=np.float64))
    offsets = rows * hot.shape[1]
    heat_of_run = sums[offsets + ends] - sums[offsets + starts]
    area = np.bincount(region, ends - starts, count)
    score = np.bincount(region, heat_of_run, count) / area
    left, top = (_extreme(np.minimum, region, edge, count) for edge in (starts, rows))
    right, bottom = (_extreme(np.maximum, region, edge, count) for edge in (ends, rows + 1))
    return [
        Box(int(left[i]), int(top[i]), int(right[i]), int(bottom[i]), float(min(score[i], 1.0)))
        for i in np.flatnonzero(area >= least)
    ]


def _connected(rows: Integers, starts: Integers, ends: Integers, width: int) -> tuple[Integers, int]:
    """Number the regions that horizontal runs of pixels form.

    Runs are in reading order; a run ends one past its last pixel. Returns each run's region and how
    many regions there are.
    """
    stride = width + 1
    # Runs of the next row that touch a run, also by a corner, lie next to each other in reading order.
    first = np.searchsorted(rows * stride + ends, (rows + 1) * stride + starts, side="left")
    last = np.searchsorted(rows * stride + starts, (rows + 1) * stride + ends, side="right")
    touching = np.maximum(last - first, 0)
    upper = np.repeat(np.arange(len(rows)), touching)
    lower = np.arange(len(upper)) + np.repeat(first - (np.cumsum(touching) - touching), touching)
    region = np.arange(len(rows))
    while np.any(region[upper] != region[lower]):
        smaller = np.minimum(region[upper], region[lower])
        np.minimum.at(region, np.concatenate((region[upper], region[lower])), np.tile(smaller, 2))
        while np.any(region[region] != region):
            region = region[region]
    names, region = np.unique(region, return_inverse=True)
    return region, len(names)


def _extreme(smaller: np.ufunc, region: Integers, edge: Integers, count: int) -> Integers:
    """Take the least or greatest edge of each region's runs."""
    result: npt.NDArray[Any] = np.empty(count, dtype=np.intp)
    result[region] = edge
    smaller.at(result, region, edge)
    return result
