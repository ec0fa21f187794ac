"""What a transformers model makes of one cell of its last map, found out by running what follows that map."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from explainer.geometry import Choice
from explainer.layout import Grid
from explainer.probe import Forward, Probe, entrance
from explainer.readout import Readout, agree
from explainer.session import session
from explainer_plugins.torch.encoder import Reading, only_prefix_reaches

Map = Callable[[Tensor], Tensor]
"""Takes cells [B, N, C] to [B, N, E]."""


@dataclass(frozen=True)
class Stage:
    """A module that runs behind the last map.

    Attributes:
        module: The module.
        entry: Shape of what it receives; empty where that is not known.
    """

    module: nn.Module
    entry: tuple[int, ...]


class Tail:
    """All that follows the last map, for a map that is the same cell everywhere.

    Whatever is pooled on the way (an average, the class token, attention) passes such a cell on as it is, and what the
    model writes between its modules only pools. So the modules that follow, one after the other, are all there is;
    whether that is true of a model is tried out by :func:`read_last_map`.

    Args:
        stages: What follows, in order.
        grid: How the last map is laid out.
    """

    def __init__(self, stages: Sequence[Stage], grid: Grid) -> None:
        self._stages = tuple(stages)
        self._grid = grid

    def __call__(self, cells: Tensor) -> Tensor:
        """Take cells [B, N, C] to [B, N, E].

        Raises:
            RuntimeError: The modules do not fit one behind the other.
        """
        cell = cells.flatten(0, 1)
        for stage in self._stages:
            cell = self._through(stage, cell)
        return cell.reshape(*cells.shape[:2], -1)

    def _through(self, stage: Stage, cell: Tensor) -> Tensor:
        if len(stage.entry) == 2:
            # Several poolings side by side are the same cell several times.
            output: Tensor = stage.module(cell.repeat(1, max(stage.entry[1] // cell.shape[1], 1)))
            return output.flatten(1)
        axis = self._axis(stage.entry, cell.shape[1])
        output = stage.module(self._laid(cell, stage.entry, axis))
        return output if output.dim() == 2 else output.movedim(axis, 1).flatten(2)[:, :, 0]

    def _axis(self, entry: tuple[int, ...], channels: int) -> int:
        """Which dimension of an input is that of the channels."""
        own = self._grid.layout.index("C")
        fitting = [axis for axis in range(1, len(entry)) if entry[axis] == channels]
        if not fitting:
            raise RuntimeError("what is not a module changes the channels")
        return own if own in fitting and len(entry) == len(self._grid.layout) else fitting[-1]

    def _laid(self, cell: Tensor, entry: tuple[int, ...], axis: int) -> Tensor:
        """Lay cells [n, C] out as small maps or sequences that are that cell everywhere."""
        grid = self._grid
        with_prefix = len(entry) == 3 and grid.prefix + grid.height * grid.width in entry[1:]
        shape = [len(cell)] + [1] * (len(entry) - 1)
        if len(entry) == 3:
            shape[3 - axis] = grid.prefix + 1 if with_prefix else 1
        shape[axis] = cell.shape[1]
        along = [1] * len(entry)
        along[0], along[axis] = cell.shape
        return cell.reshape(along).expand(shape)


def read_last_map(model: nn.Module, forward: Forward, last: Choice, seen: Probe, *, classes: bool) -> Reading:
    """Find out how a model reads its last map.

    Beside the run without data the model runs twice: on noise, and with one random cell in all places of its last
    map. Only where the modules behind the map make of that cell what the model makes of it, there is a readout.

    Args:
        model: The model.
        forward: Runs it to [B, D].
        last: Its last map.
        seen: What the run without data showed.
        classes: Whether D are classes, of which a last linear layer holds a row each.

    Returns:
        Whether only tokens without a place on the picture are read, and the readout; None where what follows the
        map is not one module after the other.
    """
    noise = torch.Generator().manual_seed(0)
    images = torch.randn(1, 3, *seen.size, generator=noise, device="cpu").to(entrance(model))
    with session(model) as hooks:
        tap = hooks.tap(last.layer, differentiable=True)
        output = forward(model, images, hooks)
        # The sum of a classifier's outputs can have no gradient; a random one has.
        weights = torch.randn(output.shape, generator=noise, device="cpu").to(output)
        class_token = only_prefix_reaches((output * weights).sum(dim=1, keepdim=True), tap, last.grid)
        value, output = tap.value.detach(), output.detach()
    stages = _stages(model, seen, last)
    cell = torch.randn(1, 1, last.channels, generator=noise, device="cpu").to(value)
    with session(model) as hooks, torch.no_grad():
        hooks.replace_forward(last.layer, lambda run, *given, **named: _filled(run(*given, **named), cell, last.grid))
        expected = forward(model, images, hooks)
        # What nobody reads (the pooled output of a tower whose tokens are averaged) comes first among the stages.
        for start in range(len(stages) + 1):
            readout, whole = _reader(stages[start:], last.grid, output.shape[1] if classes else None)
            if not _agrees(whole, cell, expected):
                continue
            exact = _adds_up(whole, value, output, last.grid)
            return Reading(class_token, dataclasses.replace(readout, exact=exact))
    return Reading(class_token, None)


def _stages(model: nn.Module, seen: Probe, last: Choice) -> list[Stage]:
    """List the modules that run behind the last map and inside no other, in order; sequences by their parts."""
    end = next(step.end for step in seen.steps if step.name == last.layer)
    later = [step for step in seen.steps if step.start > end]
    modules = {step.name: model.get_submodule(step.name) for step in later}
    whole = [step for step in later if not isinstance(modules[step.name], nn.Sequential)]
    outermost = [step for step in whole if not any(o.start < step.start and step.end < o.end for o in whole)]
    outermost.sort(key=lambda step: step.start)
    return [Stage(modules[step.name], step.received or ()) for step in outermost]


def _reader(stages: Sequence[Stage], grid: Grid, classes: int | None) -> tuple[Readout, Map]:
    """Make a readout of some stages, and the way from cells [B, N, C] to the model's output [B, N, D]."""
    heads = _heads(stages, classes)
    tail = Tail(stages[: len(stages) - len(heads)], grid)
    if heads:
        # Several are averaged (distilled models).
        return (
            Readout(
                lambda cells: _wide(tail(cells), heads[0]),
                lambda given: given @ torch.stack([head.weight for head in heads]).mean(dim=0).to(given),
            ),
            lambda cells: torch.stack([head(_wide(tail(cells), head)) for head in heads]).mean(dim=0),
        )
    if classes is None:
        return Readout(tail, lambda given: given), tail
    # What gives the logits is more than rows: contributions are logits, counted from those of an empty cell.
    return Readout(lambda cells: tail(cells) - tail(torch.zeros_like(cells[:1, :1])), lambda given: given), tail


def _heads(stages: Sequence[Stage], classes: int | None) -> list[nn.Linear]:
    """The linear layers at the end of a classifier that give a logit for each class."""
    heads: list[nn.Linear] = []
    for stage in reversed(stages):
        linear = stage.module
        if not isinstance(linear, nn.Linear) or linear.out_features != classes or len(stage.entry) != 2:
            break
        heads.append(linear)
    return heads


def _agrees(whole: Map, cell: Tensor, expected: Tensor) -> bool:
    try:
        found = whole(cell)[0]
    except Exception:  # modules that do not fit one behind the other fail in their own way
        return False
    return found.shape == expected.shape and agree(found, expected)


def _wide(cells: Tensor, head: nn.Linear) -> Tensor:
    """Repeat the channels of [B, N, C] for a head that takes several poolings side by side."""
    return cells.repeat(1, 1, max(head.in_features // cells.shape[2], 1))


def _filled(output: Any, cell: Tensor, grid: Grid) -> Tensor:
    """Put a cell [1, 1, C] in all places of what the last map's layer gives."""
    shape = [1] * output.dim()
    shape[grid.layout.index("C")] = cell.shape[2]
    return cell.reshape(shape).expand_as(output).clone()


def _adds_up(whole: Map, value: Tensor, output: Tensor, grid: Grid) -> bool:
    """Whether an output is the average over the cells, or that of the class token."""
    averaged = agree(whole(grid.to_columns(value)).mean(dim=1), output)
    return averaged or (grid.prefix > 0 and agree(whole(value[:, :1])[:, 0], output))
