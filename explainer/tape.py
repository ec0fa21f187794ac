"""The way of tensors through the model, recorded so that others can be sent down it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

_ADDITIONS = frozenset({"add", "__add__", "__radd__", "__iadd__", "add_"})
IN_PLACE = frozenset({"__iadd__", "add_"})
_LAYING_OUT = frozenset(
    {"transpose", "swapaxes", "permute", "movedim", "reshape", "view", "flatten", "unflatten", "squeeze", "unsqueeze"}
) | {"__get__"}  # .mT and .T
_PROJECTIONS = {"linear": -1, "matmul": -1, "__matmul__": -1, "conv1d": 1, "conv2d": 1}
"""Which dimension of what they take a projection mixes."""
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Slot:
    """Stands, in recorded arguments, for a tensor that depends on a followed one."""

    key: int


@dataclass(frozen=True)
class _Step:
    """One recorded operation."""

    function: Callable[..., Any]
    args: Any
    kwargs: Any
    keys: tuple[int, ...]
    origins: frozenset[int]


@dataclass(frozen=True)
class _Live:
    """A tensor that depends on followed ones. Holding it keeps its id from being given to another."""

    tensor: Tensor
    origins: frozenset[int]


@dataclass(eq=False)
class Way:
    """The way of one attention's output to the residual addition that takes it in.

    Attributes:
        subject: The attention.
        owner: Name of the module that computed it.
        depth: Number of modules being executed when it ran. An addition only counts as the residual one
            after that module has returned: positional terms are added inside it.
        start: Key of its output.
        chained: Whether it was computed from another attention of its module.
        autocast: Makes the autocast that it ran under.
        joined: The ways that the same addition takes in, in the order in which they started, this one among
            them; empty while the addition has not been found.
    """

    subject: Any
    owner: str
    depth: int
    start: int
    chained: bool = False
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    joined: tuple[Way, ...] = ()
    _steps: tuple[_Step, ...] = ()
    _end: int = 0
    _residual: Tensor | None = None
    _increment: Tensor | None = None

    @property
    def closed(self) -> bool:
        """Whether the residual addition was found."""
        return bool(self.joined)

    @property
    def length(self) -> int:
        """Number of operations on it and on those joined with it, up to the residual addition."""
        return len(self._steps)

    @property
    def residual(self) -> Tensor:
        """The other operand of the residual addition."""
        assert self._residual is not None  # noqa: S101  read only once closed
        return self._residual

    @property
    def increment(self) -> Tensor:
        """The followed operand of the residual addition."""
        assert self._increment is not None  # noqa: S101  read only once closed
        return self._increment

    def close(
        self, joined: tuple[Way, ...], steps: tuple[_Step, ...], end: int, followed: Tensor, other: Tensor
    ) -> None:
        """Note the residual addition.

        Args:
            joined: The ways that it takes in.
            steps: The operations on all of them.
            end: Key of what was made of them.
            followed: What was made of them.
            other: What it is added to.
        """
        self.joined, self._steps, self._end = joined, steps, end
        self._increment, self._residual = followed, other

    def replay(self, tensors: Sequence[Tensor]) -> Tensor:
        """Send other tensors of the same shapes down the recorded way.

        Args:
            tensors: Take the places of the followed tensors, one for each of `joined`.

        Returns:
            What would have been added to the residual stream.
        """
        # Copies, because a recorded operation may work in place.
        known = {way.start: tensor.clone() for way, tensor in zip(self.joined, tensors, strict=True)}

        def fill(value: Any) -> Any:
            return known[value.key] if isinstance(value, _Slot) else value

        with self.autocast():
            for step in self._steps:
                result = step.function(*_mapped(step.args, fill), **_mapped(step.kwargs, fill))
                known.update(zip(step.keys, _tensors_in((result,)), strict=True))
        return known[self._end]

    def until_projected(self, tensor: Tensor) -> Tensor | None:
        """Lay another tensor out as the way lays its own out, up to the first projection.

        Args:
            tensor: Takes the place of the followed one.

        Returns:
            With the dimension that is projected at the end; None where no projection was found.

        Raises:
            RuntimeError: The tensor does not fit.
        """
        known = {self.start: tensor}
        for step in self._steps:
            place = next((arg for arg in step.args if isinstance(arg, _Slot) and arg.key in known), None)
            name = step.function.__name__
            if place is None:
                continue
            if name in _PROJECTIONS:
                return known[place.key].movedim(_PROJECTIONS[name], -1)
            laid = known[place.key]
            if name in _LAYING_OUT:
                laid = step.function(*(laid if arg is place else arg for arg in step.args), **step.kwargs)
            known[step.keys[0]] = laid  # anything else keeps its place
        return None


@dataclass
class Tape:
    """Every operation between the outputs of attentions and the additions that take them in.

    Attributes:
        ends: Where these additions are, as a number of operations on the way (:attr:`Way.length`), for each
            module that attends; by default they are found by their shape and place.
    """

    ends: Mapping[str, Collection[int]] | None = None
    _ways: dict[int, Way] = field(default_factory=dict[int, Way])
    _live: dict[int, _Live] = field(default_factory=dict[int, _Live])
    _steps: list[_Step] = field(default_factory=list[_Step])

    def __bool__(self) -> bool:
        """Whether any way is still open."""
        return bool(self._ways)

    def follow(self, tensor: Tensor, subject: Any, owner: str, depth: int, sources: Sequence[Tensor]) -> Way:
        """Start to follow the output of an attention.

        Args:
            tensor: The output.
            subject: The attention.
            owner: Name of the module that computes it.
            depth: As for :class:`Way`.
            sources: What the attention was computed from.
        """
        behind = self._origins(sources)
        # What another module's attention has been turned into feeds this one: it went on without a residual
        # addition. Of the attentions of one module, one may feed the next.
        self._drop(frozenset(origin for origin in behind if self._ways[origin].owner != owner))
        chained = any(origin in self._ways for origin in behind)
        way = Way(subject, owner, depth, id(tensor), chained, _autocast_of(tensor.device.type))
        self._ways[way.start] = way
        self._live[way.start] = _Live(tensor, frozenset({way.start}))
        return way

    def before(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], depth: int
    ) -> Way | None:
        """Look at an operation that is about to run.

        Returns:
            A way that it closes, being the residual addition; None for any other operation.
        """
        if function.__name__ not in _ADDITIONS or len(args) != 2 or kwargs:
            return None
        first, second = args[0], args[1]
        if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.shape != second.shape:
            return None
        if (id(first) in self._live) == (id(second) in self._live):
            return None
        followed, other = (first, second) if id(first) in self._live else (second, first)
        origins = self._live[id(followed)].origins
        if isinstance(other, nn.Parameter) or not self._ends_at(origins, depth):
            return None
        return self._close(origins, followed, other, first if function.__name__ in IN_PLACE else None)

    def after(self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Record an operation that ran, where it took a followed tensor in."""
        origins = self._origins((*args, *kwargs.values()))
        if not origins:
            return
        results = list(_tensors_in((result,)))
        if not results:
            return  # a shape or a flag was read
        keys = tuple(id(tensor) for tensor in results)
        self._steps.append(_Step(function, _mapped(args, self._slot), _mapped(kwargs, self._slot), keys, origins))
        self._live.update({id(tensor): _Live(tensor, origins) for tensor in results})

    def _ends_at(self, origins: frozenset[int], depth: int) -> bool:
        ways = [self._ways[origin] for origin in origins]
        if self.ends is None:
            return all(depth < way.depth for way in ways)
        length = sum(step.origins <= origins for step in self._steps)
        return all(length in self.ends.get(way.owner, ()) for way in ways)

    def _close(self, origins: frozenset[int], followed: Tensor, other: Tensor, written_over: Tensor | None) -> Way:
        joined = tuple(way for start, way in self._ways.items() if start in origins)
        steps = tuple(step for step in self._steps if step.origins <= origins)
        kept = [tensor.clone() if tensor is written_over else tensor for tensor in (followed, other)]
        for way in joined:
            way.close(joined, steps, id(followed), *kept)
        self._drop(origins)
        return joined[0]

    def _drop(self, origins: frozenset[int]) -> None:
        """Follow these no longer, nor what they were joined with."""
        if not origins:
            return
        for origin in origins:
            self._ways.pop(origin, None)
        self._live = {key: live for key, live in self._live.items() if not live.origins & origins}
        self._steps = [step for step in self._steps if not step.origins & origins]

    def _origins(self, values: Sequence[Any]) -> frozenset[int]:
        origins = _NONE
        for tensor in _tensors_in(values):
            live = self._live.get(id(tensor))
            if live is not None:
                origins = origins | live.origins if origins else live.origins
        return origins

    def _slot(self, value: Any) -> Any:
        return _Slot(id(value)) if isinstance(value, Tensor) and id(value) in self._live else value


def _autocast_of(device: str) -> Callable[[], AbstractContextManager[Any]]:
    """Remember the autocast that is on, or that none is."""
    if not torch.amp.is_autocast_available(device):
        return nullcontext
    return partial(torch.autocast, device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))


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
