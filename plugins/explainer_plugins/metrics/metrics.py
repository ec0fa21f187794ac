"""Metrics: from a map and a true mask to a value, or a row of values, one for each setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_jaccard_index

from explainer.bench.ranking import average_precision as area
from explainer.bench.sample import Truth

if TYPE_CHECKING:
    from explainer_plugins.metrics import AveragePrecision, BestIoU, Energy, IoU, Pointing


def pointing(config: Pointing, heat: Tensor, truth: Truth) -> Tensor:
    """Tell whether the hottest pixel is on the object.

    The pointing game of Zhang et al. 2018 (arXiv:1608.00507), without the margin of 15 pixels that later works add:
    sum(hot & mask) / sum(hot), where hot are the pixels of the highest heat, so that a constant map is at chance.

    Args:
        config: No settings.
        heat: [H, W], any range.
        truth: The object, and which pixels count.

    Returns:
        A scalar in [0, 1].
    """
    values, mask = _counting(heat, truth)
    return mask[values == values.max()].double().mean()


def energy(config: Energy, heat: Tensor, truth: Truth) -> Tensor:
    """Tell which share of the heat is on the object.

    The energy-based pointing game of Wang et al. 2020 (arXiv:1910.01279): sum(heat * mask) / sum(heat). It needs
    heat that is not negative, so the coldest pixel is taken as 0. A constant map has its heat everywhere, and gets the
    object's share of the area.

    Args:
        config: No settings.
        heat: [H, W], any range.
        truth: The object, and which pixels count.

    Returns:
        A scalar in [0, 1].
    """
    values, mask = _counting(heat, truth)
    scaled = _scaled(values)
    if not scaled.any():
        scaled = torch.ones_like(scaled)
    inside, outside = scaled[mask].sum(), scaled[~mask].sum()
    return inside / (inside + outside)


def iou(config: IoU, heat: Tensor, truth: Truth) -> Tensor:
    """Compare the object with the pixels that are hot enough.

    |A and B| / |A or B| (Everingham et al. 2010, doi:10.1007/s11263-009-0275-4), of the object and the pixels whose
    heat, the coldest being 0 and the hottest 1, is at least the threshold. A constant map is 0 everywhere, as in
    ``Explanation.mask``.

    Args:
        config: The threshold.
        heat: [H, W], any range.
        truth: The object, and which pixels count.

    Returns:
        A scalar in [0, 1].
    """
    values, mask = _counting(heat, truth)
    hot = _scaled(values) >= config.threshold  # torchmetrics itself would leave out what is equal
    return binary_jaccard_index(hot.long(), mask.long(), validate_args=False)


def iou_best(config: BestIoU, heat: Tensor, truth: Truth) -> Tensor:
    """Compare the object with the pixels that are hot enough, for many thresholds.

    As `iou`, at thresholds 0, 1/steps, 2/steps, ... The threshold is then chosen over the data set, as Choe et al.
    2020 (arXiv:2001.07437) do, because no method says where its objects end. It never falls below the object's share of
    the area, which marking every pixel gives.

    Args:
        config: The number of thresholds.
        heat: [H, W], any range.
        truth: The object, and which pixels count.

    Returns:
        [steps], in [0, 1].
    """
    values, mask = _counting(heat, truth)
    thresholds = torch.arange(config.steps, dtype=torch.float64, device=values.device) / config.steps
    reached = torch.bucketize(_scaled(values), thresholds, right=True)  # how many thresholds a pixel is at least
    marked, hit = (_at_least(part, config.steps) for part in (reached, reached[mask]))
    return hit / (marked + mask.sum() - hit)


def average_precision(config: AveragePrecision, heat: Tensor, truth: Truth) -> Tensor:
    """Rank the pixels by their heat.

    The area under the curve of precision against recall, as a sum of steps, pixels of one heat counting together; on
    the raw map, as Chefer et al. 2021 (arXiv:2012.09838) do. Only the order matters. A constant map gets the object's
    share of the area.

    Args:
        config: No settings.
        heat: [H, W], any range.
        truth: The object, and which pixels count.

    Returns:
        A scalar in [0, 1].
    """
    return area(*_counting(heat, truth))


def _counting(heat: Tensor, truth: Truth) -> tuple[Tensor, Tensor]:
    """Give heat and mask [N] of the pixels that count."""
    return heat[truth.valid], truth.mask[truth.valid]


def _scaled(values: Tensor) -> Tensor:
    """Take values to [0, 1], the lowest to 0 and the highest to 1; equal ones to 0."""
    precise = values.double()
    low, high = precise.aminmax()
    return (precise - low) / (high - low).where(high > low, torch.inf)


def _at_least(reached: Tensor, steps: int) -> Tensor:
    """Count for each threshold how many pixels reach it."""
    counts = torch.bincount(reached, minlength=steps + 1)
    return counts.flip(0).cumsum(0).flip(0)[1:]
