"""Attention that a model writes out itself: a product of queries and keys, a softmax, a product with values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from explainer.attention import AS_IT_IS, Form
from explainer.einsum import read_scores, read_values

_PRODUCTS = frozenset({"matmul", "__matmul__", "bmm"})
_SCALINGS = frozenset({"mul", "__mul__", "__rmul__", "__imul__", "mul_"})
_DIVISIONS = frozenset({"div", "__truediv__", "__itruediv__", "div_", "true_divide"})
_ADDITIONS = frozenset(
    {"add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "masked_fill", "masked_fill_"}
)
_KEPT = frozenset(
    {"view", "reshape", "contiguous", "clone", "dropout", "to", "float", "type", "type_as", "unflatten", "flatten"}
)
_TRANSPOSED = frozenset({"transpose", "swapaxes"})


@dataclass(frozen=True)
class Scores:
    """What a tensor on the way from q k^T to the product with values is made of.

    Attributes:
        query: [..., N, d].
        key: [..., M, d].
        shape: [..., N, M], the shape of the scores as they were computed.
        scale: The factor on q k^T so far.
        shifted: Whether anything was added or masked.
        altered: Whether anything else was done, so that the weights are not softmax(scale * q k^T + bias).
        final: The scores just before the softmax, once it has run; None before.
        flipped: Whether the weights were transposed after the softmax.
        version: Version of the tensor that is made of all this; another one has been written over since.
    """

    query: Tensor
    key: Tensor
    shape: torch.Size
    scale: float | Tensor = 1.0
    shifted: bool = False
    altered: bool = False
    final: Tensor | None = None
    flipped: bool = False
    version: int = 0

    @property
    def bias(self) -> Tensor | None:
        """What was added before the softmax; None where nothing was, or that is not known."""
        if not self.shifted or self.altered or self.final is None:
            return None
        return self.final - self.query @ self.key.transpose(-2, -1) * self.scale


@dataclass(frozen=True)
class Found:
    """An attention, at its product with the values.

    Attributes:
        scores: What the weights are made of.
        weights: [..., N, M], as they are applied.
        value: [..., M, e].
        form: How the product is laid out by the model.
    """

    scores: Scores
    weights: Tensor
    value: Tensor
    form: Form = AS_IT_IS


_FLIPPED = Form(lambda given: given.transpose(-2, -1), lambda heads: heads.transpose(-2, -1))


class WrittenOut:
    """Watches the operations of a forward pass for attention that is written out.

    It names no module: a product of two tensors that are not parameters may be q k^T, and is one once a softmax
    over the keys has been multiplied with values. Whatever keeps every score on the way (a linear layer that
    mixes the heads, a cap, a gate) is let through and noted.
    """

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def closes(self, function: Callable[..., Any], args: Sequence[Any]) -> Found | None:
        """Recognise the product of weights and values that is about to be computed; None for any other operation."""
        if function.__name__ == "einsum":
            return self._closing_einsum(args)
        if function.__name__ not in _PRODUCTS or len(args) != 2:
            return None
        first, second = self._weights(args[0]), self._weights(args[1])
        if first is not None and not first.flipped and second is None:
            return _found(first, args[0], args[1])
        if second is not None and second.flipped and first is None:
            return _found(second, args[1].transpose(-2, -1), args[0].transpose(-2, -1), _FLIPPED)
        return None

    def saw(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Follow an operation that ran."""
        name = function.__name__
        if name == "__setitem__":
            self._partly_set(args[0])
        elif isinstance(result, Tensor) and args:
            if name in _PRODUCTS or name == "einsum":
                self._product(name, args, result)
            elif (known := self._operand(args, result)) is not None:
                after = _after(name, known[0], known[1], args, kwargs, result)
                if after is not None:
                    self._known[result] = replace(after, version=_version(result))

    def _product(self, name: str, args: Sequence[Any], result: Tensor) -> None:
        if name == "einsum":
            pair = read_scores(args)
        else:
            pair = (args[0], args[1].transpose(-2, -1)) if len(args) == 2 else None
        if pair is not None and not any(isinstance(arg, nn.Parameter) for arg in args):
            self._known[result] = Scores(*pair, result.shape, version=_version(result))

    def _partly_set(self, changed: Any) -> None:
        scores = self._before(changed)
        if scores is not None:
            after = replace(scores, shifted=True, altered=scores.altered or scores.final is not None)
            self._known[changed] = replace(after, version=_version(changed))

    def _closing_einsum(self, args: Sequence[Any]) -> Found | None:
        known = [self._weights(arg) for arg in args[1:3]]
        if len(args) != 3 or (known[0] is None) == (known[1] is None):
            return None
        place = 0 if known[0] is not None else 1
        scores = cast("Scores", known[place])
        read = read_values(args[0], args[1 + place], args[2 - place], place)
        return None if scores.flipped or read is None else _found(scores, args[1 + place], *read)

    def _weights(self, value: Any) -> Scores | None:
        """What a tensor is made of, where it is attention weights with the shape of the scores."""
        scores = self._scores(value)
        if scores is None or scores.final is None:
            return None
        shape = value.transpose(-2, -1).shape if scores.flipped else value.shape
        return scores if shape == scores.shape else None

    def _scores(self, value: Any) -> Scores | None:
        scores = self._before(value)
        if scores is None or scores.version == _version(value):
            return scores
        # Written over in a way that was not seen: what it holds now is known only where it is read.
        return replace(scores, altered=True)

    def _before(self, value: Any) -> Scores | None:
        """What was known of a tensor before an operation that has just written over it."""
        known = cast("MutableMapping[Tensor, Scores]", self._known)
        return known.get(value) if isinstance(value, Tensor) else None

    def _operand(self, args: Sequence[Any], result: Tensor) -> tuple[Scores, Any] | None:
        for place, value in enumerate(args[:2]):
            scores = self._before(value) if value is result else self._scores(value)
            if scores is not None:
                return scores, args[1 - place] if len(args) > 1 else None
        return None


def _found(scores: Scores, weights: Tensor, value: Tensor, form: Form = AS_IT_IS) -> Found | None:
    # Keys and values that all pictures share are a memory of the model's own.
    parts = (scores.query, scores.key, value)
    alike = len({(part.dim(), part.shape[0]) for part in parts}) == 1
    return Found(scores, weights, value, form) if alike else None


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _after(
    name: str, scores: Scores, other: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Tensor
) -> Scores | None:
    """Say what scores are made of after one more operation; None where they are scores no more."""
    if result.numel() != scores.shape.numel():
        return None
    if name == "softmax":
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        over_keys = axis in (-1, result.dim() - 1) and result.shape[-1] == scores.shape[-1]
        whole = result.shape == scores.shape
        return replace(scores, final=args[0], altered=scores.altered or not whole) if over_keys else None
    before_softmax = scores.final is None
    if name in _KEPT:
        return scores
    if name in _TRANSPOSED and not before_softmax and _swaps_last(args[1:3], result.dim()):
        return replace(scores, flipped=not scores.flipped)
    if before_softmax and name in _ADDITIONS:
        return replace(scores, shifted=True)
    if before_softmax and not scores.shifted and name in _SCALINGS:
        return replace(scores, scale=scores.scale * other)
    if before_softmax and not scores.shifted and name in _DIVISIONS:
        return replace(scores, scale=scores.scale / other)
    return replace(scores, altered=True)


def _swaps_last(axes: Sequence[Any], count: int) -> bool:
    return set(axes) in ({-2, -1}, {count - 2, count - 1})
