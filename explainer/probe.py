"""What a model's layers give for an input of some size, learnt without computing anything."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from explainer.hooks import HookManager, named_modules
from explainer.intercept import AttentionTap, intercept
from explainer.layout import Grid, fit, seen_grids
from explainer.session import lock, session

Forward = Callable[[nn.Module, Tensor, HookManager], Tensor]
BATCH = 2
"""Pictures in the probe. More than one, so that windows and heads folded into the batch are recognised."""


@dataclass(frozen=True)
class Step:
    """One call of one module.

    Attributes:
        name: Dotted path.
        kind: Class of the module.
        shape: Shape of its output; None where that is not a single tensor.
        start: Clock at which it was called; calls and returns each advance the clock by one.
        end: Clock at which it returned.
        grid: How the output lies on the picture; None where it does not.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    start: int
    end: int
    grid: Grid | None = None


@dataclass(frozen=True)
class AttentionStep:
    """One attention.

    Attributes:
        name: Dotted path of the module that computed it.
        start: Clock at which that module was called.
        query: Shape of the queries.
        key: Shape of the keys.
        grid: The token grid it runs over; None where it is not dense self-attention over patch tokens.
    """

    name: str
    start: int
    query: tuple[int, ...]
    key: tuple[int, ...]
    grid: Grid | None


@dataclass(frozen=True)
class Probe:
    """Everything that one forward pass shows of a model's geometry.

    Attributes:
        size: Height and width of the input.
        steps: Module calls in the order in which they returned.
        attentions: Attentions in the order in which they ran.
        output: Shape of the model's output.
        mixers: Path and start of every module that attends, or takes a softmax of its own.
    """

    size: tuple[int, int]
    steps: tuple[Step, ...]
    attentions: tuple[AttentionStep, ...]
    output: tuple[int, ...]
    mixers: tuple[tuple[str, int], ...] = ()

    def inside_attention(self, name: str) -> bool:
        """Whether a module is, or is part of, one that computes attention."""
        return any(name == a.name or name.startswith(a.name + ".") for a in self.attentions if a.name)


class _Clock:
    """Notes the calls of all modules."""

    def __init__(self) -> None:
        self.now = 0
        self.steps: list[Step] = []
        self.starts: dict[str, int] = {}
        self._running: list[tuple[str, int]] = []

    def call(self, name: str) -> None:
        self._running.append((name, self.now))
        self.starts[name] = self.now
        self.now += 1

    def finish(self, name: str, kind: str, output: Any) -> None:
        while self._running:
            running, start = self._running.pop()
            if running == name:
                shape = tuple(output.shape) if isinstance(output, Tensor) else None
                self.steps.append(Step(name, kind, shape, start, self.now))
                break
        self.now += 1


def probe(model: nn.Module, forward: Forward, size: tuple[int, int]) -> Probe:
    """Run a model once on tensors without data and note what each layer gives.

    The run happens on a copy whose weights hold no data either, so that nothing the model caches for
    itself is left behind. Where the model needs real numbers on the way it runs once, really, on zeros.

    Args:
        model: The model.
        forward: Runs a model on images [B, 3, H, W] under a hook manager, and gives its output.
        size: Height and width of the input.

    Returns:
        What was seen.
    """
    example = _example(model, size)
    try:
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        with lock(model):  # another thread's hooks and flags must not be copied along
            hollow = _hollow(model, fake)
        with fake:
            return _observe(hollow, forward, fake.from_tensor(example), size)
    except Exception:  # data-dependent code cannot run without data; real errors recur below
        return _observe(model, forward, example, size)


def _example(model: nn.Module, size: tuple[int, int]) -> Tensor:
    like = entrance(model)
    return torch.zeros(BATCH, 3, *size, dtype=like.dtype, device=like.device)


def entrance(model: nn.Module) -> Tensor:
    """Return a weight of the type and on the device that a model takes pictures in.

    Args:
        model: Where it holds weights of several types, the first convolution or linear layer tells: norms,
            tokens and positions may be kept in another type.
    """
    layers = (m.weight for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear)))
    weights = (p for p in itertools.chain(layers, model.parameters()) if p.is_floating_point())
    return next(weights, torch.zeros(0))


def _hollow(model: nn.Module, fake: FakeTensorMode) -> nn.Module:
    """Copy a model with weights that have shapes but no data."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        memo[id(parameter)] = nn.Parameter(fake.from_tensor(parameter.detach()), requires_grad=False)
    for buffer in model.buffers():
        memo[id(buffer)] = fake.from_tensor(buffer.detach())
    hollow = copy.deepcopy(model, memo)
    for module in hollow.modules():
        # The user's own hooks are no part of the geometry, and must not be told of tensors without data.
        vars(module)["_forward_hooks"].clear()
        vars(module)["_forward_pre_hooks"].clear()
    return hollow


def _observe(model: nn.Module, forward: Forward, images: Tensor, size: tuple[int, int]) -> Probe:
    clock = _Clock()
    with session(model) as hooks, torch.no_grad():
        for name, module in named_modules(model).items():
            kind = type(module).__name__
            hooks.on_call(
                module,
                lambda _m, _args, _kwargs, name=name: clock.call(name),
                lambda _m, _args, output, name=name, kind=kind: clock.finish(name, kind, output),
            )
        tap = intercept(hooks)
        output = forward(model, images, hooks)
    prefix = _stated_prefix(model)
    shapes = [s.shape for s in clock.steps if s.shape and s.shape[0] == BATCH]
    owners = {call.name for call in tap.calls}
    outside = [
        s.shape
        for s in clock.steps
        if s.shape and s.shape[0] == BATCH and not any(s.name.startswith(f"{owner}.") for owner in owners)
    ]
    grids = seen_grids(outside or shapes, size)
    steps = tuple(
        dataclasses.replace(s, grid=fit(s.shape, size, grids, prefix)) if s.shape and s.shape[0] == BATCH else s
        for s in clock.steps
    )
    attentions = tuple(_attentions(tap, clock, size, grids, prefix))
    mixers = tuple((name, clock.starts.get(name, 0)) for name in (*owners, *tap.written_out))
    return Probe(size, steps, attentions, tuple(output.shape), mixers)


def _attentions(
    tap: AttentionTap, clock: _Clock, size: tuple[int, int], grids: list[tuple[int, int]], prefix: int | None
) -> list[AttentionStep]:
    found: list[AttentionStep] = []
    for call in tap.calls:
        query, key = tuple(call.query.shape), tuple(call.key.shape)
        dense = len(query) == 4 and query[0] == BATCH and query[2] == key[2]
        grid = fit((BATCH, query[2], 1), size, grids, prefix) if dense else None
        grid = grid if grid is not None and grid.layout == "NLC" else None
        found.append(AttentionStep(call.name, clock.starts.get(call.name, 0), query, key, grid))
    return found


def _stated_prefix(model: nn.Module) -> int | None:
    said: list[Any] = [getattr(module, "num_prefix_tokens", None) for module in model.modules()]
    numbers = {number for number in said if isinstance(number, int)}
    return numbers.pop() if len(numbers) == 1 else None
