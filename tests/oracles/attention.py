"""Attention by hand: explicit softmax matrices, one picture and one head at a time."""

from __future__ import annotations

import torch
from torch import Tensor

Pair = tuple[str, str]


def softmax_matrix(logits: Tensor) -> Tensor:
    """Row softmax of [N, M], written out: exp(x_ij - max_j) / sum_j exp(x_ij - max_j)."""
    weights = torch.exp(logits - logits.max(dim=1, keepdim=True).values)
    return weights / weights.sum(dim=1, keepdim=True)


def unit_rows(p: Tensor) -> Tensor:
    """Every row of [N, d] divided by its Euclidean length (floored at 1e-12)."""
    return p / p.pow(2).sum(dim=1, keepdim=True).sqrt().clamp_min(1e-12)


def attention_rows(a: Tensor, b: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """softmax(scale * a b^T + bias), weights [B, H, N, N] (Vaswani 2017, eq. 1).

    a, b: [B, H, N, d]. (q, k) is the model's own attention; (q, q), (k, k), (v, v) are its kin
    (SCLIP: q-q and k-k; CLIP Surgery: v-v). bias: [1 or B, H, N, N], added after scaling.
    """
    batch, heads, tokens, _ = a.shape
    weights = a.new_zeros(batch, heads, tokens, tokens)
    for i in range(batch):
        for h in range(heads):
            logits = scale * (a[i, h] @ b[i, h].T)
            if bias is not None:
                logits = logits + bias[min(i, bias.shape[0] - 1), h]
            weights[i, h] = softmax_matrix(logits)
    return weights


def branch_output(weights: Tensor, v: Tensor) -> Tensor:
    """Each head's weights [B, H, N, N] times its values [B, H, N, d]."""
    out = torch.zeros_like(v)
    for i in range(v.shape[0]):
        for h in range(v.shape[1]):
            out[i, h] = weights[i, h] @ v[i, h]
    return out


def plain_attention(q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """softmax(scale q k^T + bias) v, [B, H, N, d]."""
    return branch_output(attention_rows(q, k, scale, bias), v)


def self_self_weights(p: Tensor, beta: float | Tensor, iterations: int) -> Tensor:
    """The last softmax matrix of one head's iterated self-self attention, [N, N].

    Bousselham 2024, sec. 3: p <- p / |p|; n times p <- softmax(beta p p^T) p, each time divided by its
    length again; then softmax(beta p p^T).
    """
    p = unit_rows(p)
    for _ in range(iterations):
        p = unit_rows(softmax_matrix(beta * (p @ p.T)) @ p)
    return softmax_matrix(beta * (p @ p.T))


def self_self(p0: Tensor, v: Tensor, beta: float | Tensor, iterations: int) -> Tensor:
    """Iterated self-self attention of one start, assigned to the plain values, [B, H, N, d].

    p0, v: [B, H, N, d]. beta: a number, or one number per picture [B]. The ensemble over q, k and v is the
    mean of the three results.
    """
    out = torch.zeros_like(v)
    for i in range(v.shape[0]):
        factor = beta[i] if isinstance(beta, Tensor) else beta
        for h in range(v.shape[1]):
            out[i, h] = self_self_weights(p0[i, h], factor, iterations) @ v[i, h]
    return out


def anchor_row(weights: Tensor, anchors: Tensor, prefix: int, grid: tuple[int, int]) -> Tensor:
    """What the anchor patches attend to: [B, T, H, gh, gw] out of weights [B, H, N, N].

    anchors: [B, T] patch numbers (row major, prefix tokens not counted). The prefix columns are cut off and
    the rest is not renormalised: a map says how much of the whole attention goes to each patch.
    """
    batch, targets = anchors.shape
    heads = weights.shape[1]
    rows = weights.new_zeros(batch, targets, heads, *grid)
    for i in range(batch):
        for t in range(targets):
            for h in range(heads):
                rows[i, t, h] = weights[i, h, prefix + int(anchors[i, t]), prefix:].reshape(grid)
    return rows
