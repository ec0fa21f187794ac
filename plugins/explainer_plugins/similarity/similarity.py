"""Cosine similarity of patches with targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.encoder import Encoder
from explainer.maps import measured_map
from explainer.target import Targets

if TYPE_CHECKING:
    from explainer_plugins.similarity import Similarity


@torch.no_grad()
def run(config: Similarity, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map cos(readout(x_i), t) for every patch i.

    On CLIP the map often comes out opposite, high on the background: its last layers move what the picture
    is about into patches that hold nothing else (Li et al. 2023, arXiv:2304.05653). The map is given as it is.

    Args:
        config: No settings.
        encoder: Needs features and a readout.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w] in [-1, 1].
    """
    return measured_map(encoder, images, targets, encoder.needed_readout.similarities)
