"""CAM (Zhou et al. 2016, arXiv:1512.04150)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.encoder import Encoder
from explainer.maps import measured_map
from explainer.target import Targets

if TYPE_CHECKING:
    from explainer_plugins.cam import CAM


@torch.no_grad()
def run(config: CAM, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map M_t(x, y) = sum_k w_k^t f_k(x, y), equation 2 of the paper.

    Behind average pooling and a linear head, the mean of a map plus the bias is the class logit. For other
    heads and for joint embeddings, f is what the model's readout makes of each cell.

    Args:
        config: No settings.
        encoder: Needs features and a readout.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w], signed.
    """
    return measured_map(encoder, images, targets, encoder.needed_readout.contributions)
