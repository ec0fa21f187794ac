"""Self-self attention (Bousselham et al. 2024, arXiv:2312.00878)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from explainer.attention import AttentionCall
from explainer.hooks import LayerError


def starts(call: AttentionCall, letters: Sequence[str]) -> list[Tensor]:
    """Return the queries, keys and values of an attention that the letters q, k and v name."""
    return [{"q": call.query, "k": call.key, "v": call.value}[letter] for letter in letters]


def adaptive_temperature(call: AttentionCall) -> Tensor:
    """Factor on the similarities from the norms of the tokens: mean_i ||x_i|| / sqrt(d).

    x_i are all N tokens that the attention received, prefix tokens included; d is the width of a head. It is
    the inverse of the paper's tau = N sqrt(d) / sum_i ||x_i||.

    Args:
        call: An attention over N tokens.

    Returns:
        [B, 1, 1, 1], one factor for each picture.

    Raises:
        LayerError: The attention's module received no tokens.
    """
    if call.input is None or call.input.dim() != 3:
        raise LayerError(
            f"attention '{call.name}' did not receive its tokens as one tensor, so no temperature follows from "
            "their norms; give one with temperature=..."
        )
    norms = call.input.float().norm(dim=-1).mean(dim=-1)
    return (norms * call.query.shape[-1] ** -0.5)[:, None, None, None]


def sharpen(tokens: Tensor, factor: Tensor | float, iterations: int) -> Tensor:
    """Move tokens towards the ones that resemble them: p <- softmax(beta p p^T) p, with p of unit length.

    Args:
        tokens: [B, H, N, d].
        factor: beta, a number or [B, 1, 1, 1].
        iterations: How often; 0 only normalises.

    Returns:
        [B, H, N, d], unit length.
    """
    tokens = F.normalize(tokens, dim=-1)
    for _ in range(iterations):
        tokens = F.normalize(assign(tokens, tokens, factor), dim=-1)
    return tokens


def assign(tokens: Tensor, values: Tensor, factor: Tensor | float) -> Tensor:
    """Compute softmax(beta p p^T) values without making the matrix.

    Args:
        tokens: p, [B, H, N, d], unit length.
        values: [B, H, N, e].
        factor: beta, a number or [B, 1, 1, 1].

    Returns:
        [B, H, N, e].
    """
    scaled = (tokens * factor).to(values.dtype)
    return F.scaled_dot_product_attention(scaled, tokens.to(values.dtype), values, scale=1.0)


def self_self(call: AttentionCall, letters: Sequence[str], iterations: int, temperature: float | None) -> Tensor:
    """Self-self attention of an ensemble, each with the attention's own values.

    Args:
        call: The attention whose q, k and v are used.
        letters: Which of them are compared with themselves; the results are averaged.
        iterations: See :func:`sharpen`.
        temperature: beta; None for :func:`adaptive_temperature`.

    Returns:
        [B, H, N, e], in the place of the attention's output.
    """
    factor = adaptive_temperature(call) if temperature is None else temperature
    outputs = [assign(sharpen(p, factor, iterations), call.value, factor) for p in starts(call, letters)]
    return torch.stack(outputs).mean(dim=0)
