"""Attention that a model writes out itself: a product of queries and keys, a softmax, a product with values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

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
    """What a tensor on the way from q k^T to the softmax is made of.

    Attributes:
        query: [..., N, d].
        key: [..., M, d].
        scale: The factor on q k^T so far.
        shifted: Whether anything was added or masked.
        final: The scores just before the softmax, once it has run; None before.
        flipped: Whether the weights were transposed after the softmax.
        version: Version of the tensor that is made of all this; another one has been written over since.
    """

    query: Tensor
    key: Tensor
    scale: float | Tensor = 1.0
    shifted: bool = False
    final: Tensor | None = None
    flipped: bool = False
    version: int = 0

    @property
    def whole(self) -> bool:
        """Whether the softmax ran over the product as it was, not over a part or a fold of it."""
        return self.final is not None and self.final.shape == (*self.query.shape[:-1], self.key.shape[-2])

    @property
    def bias(self) -> Tensor | None:
        """What was added before the softmax; None where nothing was."""
        if not self.shifted or self.final is None:
            return None
        return self.final - self.query @ self.key.transpose(-2, -1) * self.scale


class WrittenOut:
    """Watches the operations of a forward pass for attention that is written out.

    It names no module: a product of two tensors that are not parameters may be q k^T, and is one once a softmax
    over its last dimension has been multiplied with values.
    """

    def __init__(self) -> None:
        self._known: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def closes(self, function: Callable[..., Any], args: Sequence[Any]) -> tuple[Scores, Tensor, Tensor] | None:
        """Recognise the product of weights and values that is about to be computed.

        Returns:
            What the weights are made of, the weights [..., N, M] and the values [..., M, e]; None for any other
            operation.
        """
        if function.__name__ not in _PRODUCTS or len(args) != 2:
            return None
        first, second = self._scores(args[0]), self._scores(args[1])
        if first is not None and first.whole and not first.flipped and second is None:
            return first, args[0], args[1]
        if second is not None and second.whole and second.flipped and first is None:
            return second, args[1].transpose(-2, -1), args[0].transpose(-2, -1)
        return None

    def saw(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Follow an operation that ran."""
        if function.__name__ == "__setitem__":
            changed = self._before(args[0])
            if changed is not None and changed.final is None:
                self._know(args[0], replace(changed, shifted=True))
            return
        if not isinstance(result, Tensor) or not args:
            return
        if function.__name__ in _PRODUCTS:
            if len(args) == 2 and not any(isinstance(arg, nn.Parameter) for arg in args):
                self._know(result, Scores(args[0], args[1].transpose(-2, -1)))
            return
        scores, rest = self._operand(args, result)
        if scores is None:
            return
        if function.__name__ == "softmax":
            axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if axis in (-1, result.dim() - 1):
                self._know(result, replace(scores, final=args[0]))
        elif (after := _after(function.__name__, scores, rest, args[1:], result)) is not None:
            self._know(result, after)

    def _know(self, tensor: Tensor, scores: Scores) -> None:
        self._known[tensor] = replace(scores, version=_version(tensor))

    def _scores(self, value: Any) -> Scores | None:
        scores = self._before(value)
        return scores if scores is not None and scores.version == _version(value) else None

    def _before(self, value: Any) -> Scores | None:
        """What was known of a tensor before an operation that has just written over it."""
        known = cast("MutableMapping[Tensor, Scores]", self._known)
        return known.get(value) if isinstance(value, Tensor) else None

    def _operand(self, args: Sequence[Any], result: Tensor) -> tuple[Scores | None, Any]:
        for place, value in enumerate(args[:2]):
            scores = self._before(value) if value is result else self._scores(value)
            if scores is not None:
                return scores, args[1 - place] if len(args) > 1 else None
        return None, None


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _after(name: str, scores: Scores, other: Any, rest: Sequence[Any], result: Tensor) -> Scores | None:
    """Say what scores are made of after one more operation; None where they are scores no more."""
    before_softmax = scores.final is None
    if name in _SCALINGS and before_softmax and not scores.shifted:
        return replace(scores, scale=scores.scale * other)
    if name in _DIVISIONS and before_softmax and not scores.shifted:
        return replace(scores, scale=scores.scale / other)
    if name in _ADDITIONS and before_softmax:
        return replace(scores, shifted=True)
    if name in _TRANSPOSED and not before_softmax and set(rest[:2]) in ({-2, -1}, {result.dim() - 2, result.dim() - 1}):
        return replace(scores, flipped=not scores.flipped)
    return scores if name in _KEPT else None
