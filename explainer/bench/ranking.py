"""Average precision, which depends on the order of values alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision

_torch: Any = torch  # which declares no type of unique


def average_precision(values: Tensor, truth: Tensor) -> Tensor:
    """Compute the area under the precision-recall curve, as a sum of steps.

    torchmetrics takes values outside [0, 1] through a sigmoid, which makes distinct values equal; so it is given their
    ranks instead. Equal values have one rank, so nothing else becomes equal, and nothing equal differs.

    Args:
        values: [N], any range.
        truth: [N], bool, True at least once.

    Returns:
        A scalar in [0, 1].
    """
    places: Tensor = _torch.unique(values, return_inverse=True)[1]
    ranks = places.double() / places.max().clamp(min=1)
    return binary_average_precision(ranks, truth.long(), validate_args=False).clamp(0, 1)
