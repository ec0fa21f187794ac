"""The way of one tensor through the model, recorded so that another can be sent down it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor, nn

_ADDITIONS = frozenset({"add", "__add__", "__radd__", "__iadd__", "add_"})
_IN_PLACE = frozenset({"__iadd__", "add_"})


@dataclass(frozen=True)
class _Slot:
    """Stands, in recorded arguments, for a tensor that depends on the followed one."""

    key: int


@dataclass
class Tape:
    """Every operation between an attention's output and the residual addition that takes it in.

    Attributes:
        depth: Number of modules being executed when the attention ran. An addition only counts as the
            residual one after that module has returned: positional terms are added inside it.
    """

    depth: int
    _live: dict[int, Tensor] = field(default_factory=dict[int, Tensor])
    _steps: list[tuple[Callable[..., Any], Any, Any, list[int]]] = field(default_factory=list)  # pyright: ignore[reportUnknownVariableType]
    _start: int = 0
    _end: int = 0
    _residual: Tensor | None = None
    _increment: Tensor | None = None

    @classmethod
    def following(cls, tensor: Tensor, depth: int) -> Tape:
        """Start to follow a tensor."""
        return cls(depth, {id(tensor): tensor}, _start=id(tensor))

    @property
    def closed(self) -> bool:
        """Whether the residual addition was found."""
        return self._increment is not None

    @property
    def residual(self) -> Tensor:
        """[B, N, C], the other operand of the residual addition."""
        assert self._residual is not None  # noqa: S101  read only once closed
        return self._residual

    @property
    def increment(self) -> Tensor:
        """[B, N, C], the followed operand of the residual addition."""
        assert self._increment is not None  # noqa: S101  read only once closed
        return self._increment

    def before(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], depth: int) -> bool:
        """Look at an operation that is about to run; True where it is the residual addition."""
        if function.__name__ not in _ADDITIONS or depth >= self.depth or len(args) != 2 or kwargs:
            return False
        first, second = args[0], args[1]
        if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.shape != second.shape:
            return False
        if (id(first) in self._live) == (id(second) in self._live):
            return False
        followed, other = (first, second) if id(first) in self._live else (second, first)
        if isinstance(other, nn.Parameter):
            return False
        self._end = id(followed)
        written_over = first if function.__name__ in _IN_PLACE else None
        self._increment = followed.clone() if followed is written_over else followed
        self._residual = other.clone() if other is written_over else other
        self._live.clear()
        return True

    def after(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record an operation that ran, where it took a followed tensor in."""
        if not any(id(tensor) in self._live for tensor in _tensors_in((*args, *kwargs.values()))):
            return
        results = list(_tensors_in((result,)))
        if not results:
            return  # a shape or a flag was read
        step = (function, _mapped(args, self._slot), _mapped(kwargs, self._slot), [id(tensor) for tensor in results])
        self._steps.append(step)
        # Holding the tensors keeps their ids from being given to others while they are followed.
        self._live.update({id(tensor): tensor for tensor in results})

    def replay(self, tensor: Tensor) -> Tensor:
        """Send another tensor of the same shape down the recorded way.

        Args:
            tensor: Takes the place of the followed tensor.

        Returns:
            What would have been added to the residual stream.
        """
        # A copy, because a recorded operation may work in place.
        known: dict[int, Tensor] = {self._start: tensor.clone()}

        def fill(value: Any) -> Any:
            return known[value.key] if isinstance(value, _Slot) else value

        for function, args, kwargs, keys in self._steps:
            result = function(*_mapped(args, fill), **_mapped(kwargs, fill))
            known.update(zip(keys, _tensors_in((result,)), strict=True))
        return known[self._end]

    def _slot(self, value: Any) -> Any:
        return _Slot(id(value)) if isinstance(value, Tensor) and id(value) in self._live else value


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Apply a function to everything in nested lists, tuples and mappings."""
    if isinstance(value, (list, tuple)) and not hasattr(cast("Any", value), "_fields"):
        parts = [_mapped(part, change) for part in cast("Sequence[Any]", value)]
        return parts if isinstance(value, list) else tuple(parts)
    if isinstance(value, dict):
        return {key: _mapped(part, change) for key, part in cast("dict[Any, Any]", value).items()}
    return change(value)


def _tensors_in(values: Sequence[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values, looking into lists and tuples."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors_in(cast("Sequence[Any]", value))
