"""What an attention computes, as one record, whatever class of module computed it.

Shapes throughout: B pictures, H heads, N queries, M keys, d channels per head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.hooks import LayerError

if TYPE_CHECKING:
    from explainer.tape import Tape


@dataclass(eq=False)
class AttentionCall:
    """One evaluation of softmax(scale * q k^T + bias) v.

    Attributes:
        name: Dotted path of the module that computed it.
        query: [B, H, N, d].
        key: [B, H, M, d].
        value: [B, H, M, e].
        bias: What is added before the softmax, broadcastable to [B, H, N, M]; masked places are -inf.
            None where the attention is plain.
        scale: The factor on q k^T; a tensor where the model learns it.
        input: [B, N, C], what the module received: the normalised residual stream. None where the
            module received no tensor.
        output: [B, H, N, e], what the model went on with.
        recorded_weights: The weights that the model's output was really computed from, where asked for.
        tape: How the output travelled on to the residual stream, where asked for.
        sequence_first: Whether the module takes [N, B, C]; everything here is [B, N, C].
    """

    name: str
    query: Tensor
    key: Tensor
    value: Tensor
    bias: Tensor | None
    scale: float | Tensor
    input: Tensor | None = None
    output: Tensor | None = None
    recorded_weights: Tensor | None = None
    tape: Tape | None = None
    sequence_first: bool = False

    @property
    def weights(self) -> Tensor:
        """[B, H, N, M], rows sum to 1. The recorded ones, else computed from q, k and bias."""
        if self.recorded_weights is not None:
            return self.recorded_weights
        return softmax_weights(self.query, self.key, self.scale, self.bias)

    @property
    def residual(self) -> Tensor:
        """[B, N, C], the residual stream before this attention was added to it.

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        return self._batch_first(self._closed_tape().residual)

    @property
    def increment(self) -> Tensor:
        """[B, N, C], what this attention added to the residual stream.

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        return self._batch_first(self._closed_tape().increment)

    def project(self, heads: Tensor) -> Tensor:
        """Send other head outputs down the path that this attention's own output took.

        Args:
            heads: [B, H, N, e].

        Returns:
            [B, N, C]: what would have been added to the residual stream (output projection with its
            bias, inner norms, layer scale).

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        return self._batch_first(self._closed_tape().replay(heads))

    def _batch_first(self, stream: Tensor) -> Tensor:
        # A block may turn its stream only for the attention: then it has B in front already.
        turned = tuple(stream.shape[:2]) == (self.query.shape[2], self.query.shape[0])
        return stream.transpose(0, 1) if self.sequence_first and turned else stream

    def _closed_tape(self) -> Tape:
        if self.tape is None or not self.tape.closed:
            raise LayerError(
                f"the output of attention '{self.name}' could not be followed to a residual stream, so its "
                "contribution to the patch tokens is not known; use a method that only reads attention, "
                "such as query_key"
            )
        return self.tape


Rule = Callable[[AttentionCall], "Tensor | None"]
"""Computes [B, H, N, e] in place of softmax(scale * q k^T + bias) v; None leaves that call as it is."""


def softmax_weights(query: Tensor, key: Tensor, scale: float | Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(scale * q k^T + bias) over the keys (Vaswani et al. 2017, eq. 1).

    Args:
        query: [B, H, N, d].
        key: [B, H, M, d].
        scale: A number, or a tensor broadcastable to [B, H, N, M].
        bias: Broadcastable to [B, H, N, M].

    Returns:
        [B, H, N, M], rows sum to 1; a row that the bias masks everywhere is 0, as torch's own
        ``scaled_dot_product_attention`` has it.
    """
    scores = query @ key.transpose(-2, -1) * scale
    if bias is None:
        return torch.softmax(scores, dim=-1)
    masked = bias.isneginf().all(dim=-1, keepdim=True)
    return torch.softmax(scores + bias.masked_fill(masked, 0), dim=-1).masked_fill(masked, 0)


def ordinary(call: AttentionCall) -> Tensor:
    """The identity rule: ordinary softmax attention with the weights written out.

    Args:
        call: The attention to compute.

    Returns:
        [B, H, N, e], equal to what the model computes itself, up to rounding.
    """
    return call.weights @ call.value


def rows_of(query: Tensor, key: Tensor, scale: float | Tensor, bias: Tensor | None, tokens: Tensor) -> Tensor:
    """Compute only some rows of the attention weights; the whole matrix is never made.

    Args:
        query: [B, H, N, d].
        key: [B, H, M, d].
        scale: A number, or a tensor broadcastable to [B, H, R, M].
        bias: Broadcastable to [B, H, N, M].
        tokens: [B, R], which queries.

    Returns:
        [B, H, R, M], rows sum to 1.
    """
    batch, heads, _, width = query.shape
    picked = tokens[:, None, :, None].expand(batch, heads, tokens.shape[1], 1)
    chosen = query.gather(2, picked.expand(-1, -1, -1, width))
    if bias is not None:
        full = bias.expand(batch, heads, query.shape[2], key.shape[2])
        bias = full.gather(2, picked.expand(-1, -1, -1, key.shape[2]))
    return softmax_weights(chosen, key, scale, bias)
