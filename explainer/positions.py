"""Learned position embeddings brought to another grid, without touching the model's own."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Interpolation = Literal["bicubic_antialias", "bilinear", "dino", "bicubic"]
"""How position embeddings are interpolated. The variants differ by several percent of the features' norm.

* bicubic_antialias: GEM, LeGrad, timm and open_clip.
* bilinear: CLIP Surgery.
* dino: bicubic by scale factors with a tenth of a cell added: SCLIP, NACLIP, ClearCLIP, ProxyCLIP.
* bicubic: without antialiasing: Grad-ECLIP, MaskCLIP.
"""


def interpolate(
    embeddings: Tensor, prefix: int, old: tuple[int, int], new: tuple[int, int], how: Interpolation
) -> Tensor:
    """Interpolate position embeddings from one grid of patches to another.

    Args:
        embeddings: [prefix + rows*columns, C], with any number of leading dimensions.
        prefix: Tokens in front that have no place on the grid; they are kept.
        old: Rows and columns of the embeddings' grid.
        new: Rows and columns wanted.
        how: The variant.

    Returns:
        [..., prefix + new rows * new columns, C], of the same dtype.
    """
    if old == new:
        return embeddings
    lead = embeddings.shape[:-2]
    flat = embeddings.detach().reshape(-1, *embeddings.shape[-2:])
    patches = flat[:, prefix:].float().transpose(1, 2).reshape(len(flat), -1, *old)
    if how == "dino":
        factors = [(n + 0.1) / o for n, o in zip(new, old, strict=True)]
        patches = F.interpolate(patches, scale_factor=factors, mode="bicubic", recompute_scale_factor=False)
    elif how == "bilinear":
        patches = F.interpolate(patches, size=new, mode="bilinear", align_corners=False)
    else:
        antialias = how == "bicubic_antialias"
        patches = F.interpolate(patches, size=new, mode="bicubic", align_corners=False, antialias=antialias)
    moved = patches.flatten(2).transpose(1, 2).to(embeddings.dtype)
    return torch.cat([flat[:, :prefix], moved], dim=1).reshape(*lead, -1, embeddings.shape[-1])
