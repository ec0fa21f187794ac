"""GEM (Bousselham, Petersen, Ferrari, Kuehne: Grounding Everything, CVPR 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .attention import self_self
from .similarity import cosine_map, dot_map
from .towers import (
    Tower,
    attention_branch,
    first_norm,
    open_clip_tower,
    original_block,
    original_path,
    patch_tokens,
    qkv,
    timm_tower,
)


def inverse_temperature(u: Tensor, d: int) -> Tensor:
    """Adaptive beta, one per picture [B]: the mean length of the rows of LN1's output, times d^-1/2.

    The mean runs over all tokens, prefix tokens included; d is the width of one head. (The paper writes its
    reciprocal, tau = N sqrt(d) / sum |x_i|.)
    """
    betas = []
    for rows in u:
        lengths = [row.pow(2).sum().sqrt() for row in rows]
        betas.append(sum(lengths) / len(lengths) * d**-0.5)
    return torch.stack(betas)


def gem_tokens(tower: Tower, depth: int, iterations: int, temperature: float | None, ensemble: str = "vkq") -> Tensor:
    """Tokens [B, N, C] of the GEM path, before the read-out.

    The last depth - 1 blocks run twice over: the original path t as ever, and the GEM path g, which only
    collects g <- g + O(mean over p0 of self_self(p0, v)). q, k, v come from the original path, the residual
    is kept, there is no feed-forward on the GEM path. A given temperature multiplies (it is beta itself).
    """
    m = depth - 1
    t = original_path(tower, len(tower.blocks) - m)
    g = t
    for block in tower.blocks[len(tower.blocks) - m :]:
        u = first_norm(block, t)
        q, k, v = qkv(block, u, tower)
        beta = inverse_temperature(u, q.shape[-1]) if temperature is None else temperature
        total = torch.zeros_like(v)
        for start in ensemble:
            total = total + self_self({"q": q, "k": k, "v": v}[start], v, beta, iterations)
        g = g + attention_branch(block, total / len(ensemble), u)
        t = original_block(block, t, tower)
    return g


@torch.no_grad()
def gem_open_clip(
    model: nn.Module,
    images: Tensor,
    text_embeddings: Tensor,
    depth: int = 7,
    iterations: int = 1,
    temperature: float | None = None,
    pos_interp: str = "bicubic_antialias",
    ensemble: str = "vkq",
) -> Tensor:
    """GEM of an open_clip VisionTransformer: cosine maps [B, T, gh, gw], before any resizing or min-max."""
    tower = open_clip_tower(model.visual, images, pos_interp)
    tokens = tower.readout(gem_tokens(tower, depth, iterations, temperature, ensemble))
    return cosine_map(patch_tokens(tokens, tower), text_embeddings)


@torch.no_grad()
def gem_timm(
    vit: nn.Module,
    images: Tensor,
    rows: Tensor,
    depth: int = 7,
    iterations: int = 1,
    temperature: float | None = None,
    ensemble: str = "vkq",
    measure: str = "logit",
) -> Tensor:
    """GEM of a timm ViT classifier: norm, fc_norm, then each class's row, [B, T, gh, gw].

    rows: [T, C], the classifier's rows of the asked classes. measure: "logit" is the class's logit without
    its bias, "cosine" divides by both lengths.
    """
    tower = timm_tower(vit, images)
    tokens = tower.readout(gem_tokens(tower, depth, iterations, temperature, ensemble))
    features = patch_tokens(tokens, tower)
    return dot_map(features, rows) if measure == "logit" else cosine_map(features, rows)
