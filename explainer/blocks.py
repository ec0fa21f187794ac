"""The attentions of a model: which of them are dense over the patches, and what stream they are added to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from explainer.attention import AS_IT_IS, AttentionCall
from explainer.layout import Grid
from explainer.lineage import Lineage, Node


@dataclass(frozen=True)
class Stream:
    """The residual stream that takes an attention in.

    Attributes:
        shape: As :attr:`AttentionCall.residual` is laid out.
        handed: Modules that receive it later, as it is but for what else is added to it; None where that is not known.
        returned: Modules that give it.
        taking: Modules whose attentions are added to it with this one, or later.
    """

    shape: tuple[int, ...]
    handed: frozenset[str] | None = None
    returned: frozenset[str] | None = None
    taking: frozenset[str] | None = None


@dataclass(frozen=True)
class AttentionStep:
    """One attention.

    Attributes:
        name: Dotted path of the module that computed it.
        start: Clock at which that module was called.
        query: Shape of the queries.
        key: Shape of the keys.
        grid: The token grid it runs over; None where it, or another attention of the same module, is not dense
            self-attention over patch tokens, or the module runs several times.
        stream: The residual stream that takes its output in; None where that was not found.
        ends: Number of operations on its way to what it is added to, be it a stream or not; None where it is added
            to nothing.
    """

    name: str
    start: int
    query: tuple[int, ...]
    key: tuple[int, ...]
    grid: Grid | None
    stream: Stream | None = None
    ends: int | None = None


@dataclass(frozen=True)
class Traces:
    """What the modules of a run received and gave, as nodes of its graph; empty where no graph was recorded."""

    received: dict[str, Node] = field(default_factory=dict[str, Node])
    given: dict[str, Node] = field(default_factory=dict[str, Node])


def attention_steps(
    calls: Sequence[AttentionCall],
    lineage: Lineage,
    traces: Traces,
    starts: Mapping[str, int],
    times: Mapping[str, int],
    grid_of: Callable[[int], Grid | None],
    batch: int,
) -> Iterator[AttentionStep]:
    """Describe the attentions of a run.

    Args:
        calls: The attentions, followed.
        lineage: The graph of the run.
        traces: The modules in that graph.
        starts: When each module was called, for the last time.
        times: How often each module ran.
        grid_of: How so many tokens lie on the picture.
        batch: Number of pictures.
    """
    modules: dict[str, list[AttentionCall]] = {}
    for call in calls:
        modules.setdefault(call.name, []).append(call)
    blocks = {name for name, own in modules.items() if times.get(name, 0) <= 1 and _is_block(own, lineage, batch)}
    for call in calls:
        query, key = tuple(call.query.shape), tuple(call.key.shape)
        grid = grid_of(query[2]) if call.name in blocks else None
        grid = grid if grid is not None and grid.layout == "NLC" and _is_on_stream(call, grid) else None
        stream = _stream(call, calls, lineage, traces) if grid is not None else None
        ends = call.way.length if call.way is not None and call.way.closed else None
        yield AttentionStep(call.name, starts.get(call.name, 0), query, key, grid, stream, ends)


def _stream(call: AttentionCall, calls: Sequence[AttentionCall], lineage: Lineage, traces: Traces) -> Stream | None:
    if call.way is None or not call.way.closed or not lineage.is_stream(call):
        return None
    shape, nodes = tuple(call.residual.shape), lineage.carried(call)
    if nodes is None:
        return Stream(shape)
    followed = [each for each in calls if each.way is not None and each.way.closed]
    return Stream(
        shape,
        handed=frozenset(name for name, node in traces.received.items() if node in nodes),
        returned=frozenset(name for name, node in traces.given.items() if node in nodes),
        taking=frozenset(e.name for e in followed if e in call.joined or lineage.residual_of(e) & nodes),
    )


def _is_block(calls: Sequence[AttentionCall], lineage: Lineage, batch: int) -> bool:
    """Whether what one module computes is dense attention over the patches, by one head after the other or at once."""
    if any(not _is_dense(call, batch) or call.query.shape[2] != calls[0].query.shape[2] for call in calls):
        return False
    if not all(map(lineage.is_over_patches, calls)):
        return False
    ways = [call.way for call in calls if call.way is not None]
    if any(way.chained for way in ways):
        # One may be made of another only where all end in one sum; else they are the layers of a network.
        return all(len(way.joined) == len(calls) for way in ways)
    # Several that know of no batch may as well attend picture by picture.
    return len(calls) == 1 or all(call.form is AS_IT_IS for call in calls)


def _is_dense(call: AttentionCall, batch: int) -> bool:
    """Whether all tokens of a picture attend to all: not within windows, not to fewer."""
    query = call.query.shape
    if len(query) != 4 or query[0] != batch or query[2] != call.key.shape[2]:
        return False
    received = () if call.input is None else tuple(call.input.shape)
    if len(received) == 3:
        return received[1] == query[2]
    # As many tokens, over the heads, as a map has cells: the heads are windows of it.
    return len(received) != 4 or query[1] * query[2] not in (received[1] * received[2], received[2] * received[3])


def _is_on_stream(call: AttentionCall, grid: Grid) -> bool:
    """Whether the tokens that attend can be those of the residual stream: a window that is filled up has more."""
    if call.way is None or not call.way.closed:
        return True
    shape = tuple(call.residual.shape)
    if len(shape) == 3:
        return call.query.shape[2] <= shape[1]
    sides = (shape[1:3], shape[2:4])
    return grid.prefix == 0 and any(grid.height <= rows and grid.width <= columns for rows, columns in sides)
