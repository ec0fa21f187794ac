"""Class activation mapping (Zhou 2016)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .similarity import dot_map
from .towers import Tower, original_path, patch_tokens


@torch.no_grad()
def cam_gap(model: nn.Module, images: Tensor, classes: Sequence[int], layout: str = "NCHW") -> Tensor:
    """Maps [B, T, h, w] of a timm network that ends in average pooling and a linear or 1x1-conv classifier.

    Eq. 2: M_c(x, y) = sum_k w_k^c f_k(x, y), without the bias, so that mean(M_c) + b_c is the logit.
    layout: of forward_features: "NCHW", "NHWC" or "NLC" (a square grid, no prefix tokens).
    """
    features = model.forward_features(images)
    if layout == "NHWC":
        features = features.permute(0, 3, 1, 2)
    elif layout == "NLC":
        side = round(features.shape[1] ** 0.5)
        features = features.permute(0, 2, 1).reshape(len(images), -1, side, side)
    weight = model.get_classifier().weight
    maps = features.new_zeros(len(images), len(classes), *features.shape[2:])
    for i in range(len(images)):
        for t, c in enumerate(classes):
            for k in range(features.shape[1]):
                maps[i, t] += weight[c, k].reshape(()) * features[i, k]
    return maps


@torch.no_grad()
def cam_tokens(tower: Tower, rows: Tensor) -> Tensor:
    """The general form on a transformer: readout(patch) . row, no bias, [B, T, gh, gw]."""
    return dot_map(patch_tokens(tower.readout(original_path(tower)), tower), rows)
