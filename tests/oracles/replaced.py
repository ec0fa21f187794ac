"""Iterated self-self attention in place of the model's own in its last blocks, and as a map."""

from __future__ import annotations

import torch
from torch import Tensor

from .attention import anchor_row, self_self, self_self_weights
from .gem import inverse_temperature
from .similarity import cosine_map, dot_map
from .towers import Tower, attention_branch, feed_forward_branch, first_norm, original_path, patch_tokens, qkv


@torch.no_grad()
def self_self_replaced(
    tower: Tower,
    directions: Tensor,
    start: str,
    iterations: int,
    temperature: float | None,
    blocks: int,
    measure: str = "cosine",
) -> Tensor:
    """Maps [B, T, gh, gw] of a tower whose last `blocks` attentions are self-self attentions.

    Each of them is otherwise an ordinary block, x + O(self_self(p0, v)) and then + FFN(LN2(x)), fed by the
    changed stream, so later q, k, v and the adaptive beta see the change. start: "q", "k", "v", or "qkv"
    for the mean of the three outputs. measure: "cosine" with the directions, or "logit", the inner product.
    """
    x = original_path(tower, len(tower.blocks) - blocks)
    for block in tower.blocks[len(tower.blocks) - blocks :]:
        u = first_norm(block, x)
        q, k, v = qkv(block, u, tower)
        beta = inverse_temperature(u, q.shape[-1]) if temperature is None else temperature
        total = torch.zeros_like(v)
        for name in start:
            total = total + self_self({"q": q, "k": k, "v": v}[name], v, beta, iterations)
        x = x + attention_branch(block, total / len(start), u)
        x = x + feed_forward_branch(block, x)
    features = patch_tokens(tower.readout(x), tower)
    return dot_map(features, directions) if measure == "logit" else cosine_map(features, directions)


@torch.no_grad()
def self_self_map(tower: Tower, anchors: Tensor, start: str, iterations: int, temperature: float | None) -> Tensor:
    """Row of the anchor patch in the last block's self-self attention matrix, heads averaged: [B, T, gh, gw].

    The model is left as it is. start "qkv": the mean of the three matrices. anchors: [B, T].
    """
    block = tower.blocks[-1]
    u = first_norm(block, original_path(tower, len(tower.blocks) - 1))
    q, k, v = qkv(block, u, tower)
    beta = inverse_temperature(u, q.shape[-1]) if temperature is None else temperature
    batch, heads, tokens, _ = q.shape
    weights = q.new_zeros(batch, heads, tokens, tokens)
    for i in range(batch):
        factor = beta[i] if isinstance(beta, Tensor) else beta
        for h in range(heads):
            for name in start:
                p0 = {"q": q, "k": k, "v": v}[name][i, h]
                weights[i, h] += self_self_weights(p0, factor, iterations) / len(start)
    return anchor_row(weights, anchors, tower.prefix, tower.grid).mean(dim=2)
