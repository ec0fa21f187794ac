"""What an attention computes, as one record, whatever class of module computed it.

Shapes throughout: B pictures, H heads, N queries, M keys, d channels per head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.hooks import LayerError

if TYPE_CHECKING:
    from explainer.tape import Way


@dataclass(frozen=True)
class Form:
    """How a model lays out the output of an attention, which is [B, H, N, e] here.

    Attributes:
        to_heads: From the model's layout to [B, H, N, e].
        from_heads: Back.
    """

    to_heads: Callable[[Tensor], Tensor] = lambda given: given
    from_heads: Callable[[Tensor], Tensor] = lambda heads: heads

    def then(self, inner: Form) -> Form:
        """Lay the result of this form out by another."""
        return Form(
            lambda given: inner.to_heads(self.to_heads(given)), lambda heads: self.from_heads(inner.from_heads(heads))
        )


AS_IT_IS = Form()


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
        recorded_weights: The weights that the model's output was really computed from, where it wrote them
            out, or where that was asked for.
        altered: Whether the model did something else with the scores or the weights than scaling and adding
            (mixing heads, capping, gating). Then only the recorded weights say what it attends to.
        way: How the output travelled on to the residual stream, where asked for.
        form: How the model lays the output out.
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
    altered: bool = False
    way: Way | None = None
    form: Form = AS_IT_IS
    sequence_first: bool = False

    @property
    def weights(self) -> Tensor:
        """[B, H, N, M], the recorded ones, else computed from q, k and bias; rows sum to 1 unless `altered`."""
        if self.recorded_weights is not None:
            return self.recorded_weights
        return softmax_weights(self.query, self.key, self.scale, self.bias)

    def rows(self, tokens: Tensor) -> Tensor:
        """Give only some rows of the weights: [B, H, R, M].

        Args:
            tokens: [B, R], which queries.
        """
        if self.recorded_weights is not None:
            return _picked(self.recorded_weights, tokens)
        return rows_of(self.query, self.key, self.scale, self.bias, tokens)

    @property
    def residual(self) -> Tensor:
        """The residual stream before this attention was added to it: [B, N, C], or a map where the model has one.

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        return self._laid(self._closed_way().residual)

    @property
    def increment(self) -> Tensor:
        """What this attention, and those that are added with it, added to the residual stream.

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        return self._laid(self._closed_way().increment)

    @property
    def joined(self) -> tuple[AttentionCall, ...]:
        """The attentions that one addition takes into the residual stream, this one among them.

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        return tuple(way.subject for way in self._closed_way().joined)

    def project(self, heads: Tensor | Mapping[AttentionCall, Tensor]) -> Tensor:
        """Send other head outputs down the path that this attention's own output took.

        Args:
            heads: [B, H, N, e]; or one such tensor for each of several attentions of `joined`. Those that are
                not given keep their own output.

        Returns:
            What would have been added to the residual stream (output projection with its bias, inner norms,
            layer scale), laid out as `residual` is.

        Raises:
            LayerError: The attention's way to the residual stream was not followed or not found.
        """
        way = self._closed_way()
        given: Mapping[AttentionCall, Tensor] = {self: heads} if isinstance(heads, Tensor) else heads
        laid = [call.form.from_heads(given.get(call, call.its_output)).contiguous() for call in self.joined]
        return self._laid(way.replay(laid))

    @property
    def its_output(self) -> Tensor:
        """`output`, once the attention has run."""
        assert self.output is not None  # noqa: S101  read only once it has run
        return self.output

    def _laid(self, stream: Tensor) -> Tensor:
        if self._is_turned(stream):
            return stream.transpose(0, 1)
        # Windows have a dimension of their own in some models, also where one window is the whole picture.
        one_window = stream.dim() == 4 and stream.shape[1] == 1 and stream.shape[2] == self.query.shape[-2]
        return stream.squeeze(1) if one_window else stream

    def _is_turned(self, stream: Tensor) -> bool:
        # A block may turn its stream only for the attention: then it has B in front already.
        return self.sequence_first and tuple(stream.shape[:2]) == (self.query.shape[2], self.query.shape[0])

    def as_stream(self, laid: Tensor) -> Tensor:
        """Bring a residual stream that is laid out as `residual` into the model's own layout.

        Args:
            laid: Of the shape of `residual`.
        """
        own = self._closed_way().residual
        return laid.transpose(0, 1) if self._is_turned(own) else laid.reshape(own.shape)

    def _closed_way(self) -> Way:
        if self.way is None or not self.way.closed:
            raise LayerError(
                f"the output of attention '{self.name}' could not be followed to a residual stream, so its "
                "contribution to the patch tokens is not known; use a method that only reads attention, "
                "such as query_key"
            )
        return self.way


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


def additive(mask: Tensor | None, causal: bool, query: Tensor, key: Tensor) -> Tensor | None:
    """Write any mask as what is added before the softmax.

    Args:
        mask: What is added, or which keys each query may see, broadcastable to [B, H, N, M]; None for no mask.
        causal: Whether a query sees only the keys up to its own place.
        query: [B, H, N, d].
        key: [B, H, M, d].
    """
    if causal:
        shape = (query.shape[-2], key.shape[-2])
        mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, -math.inf)


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


def _picked(weights: Tensor, tokens: Tensor) -> Tensor:
    rows = tokens[:, None, :, None].expand(*weights.shape[:2], tokens.shape[1], weights.shape[3])
    return weights.gather(2, rows)
