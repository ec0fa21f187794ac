"""What a model's layers give for an input of some size, learnt without computing anything."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from explainer.attention import AttentionCall
from explainer.blocks import AttentionStep, Traces, attention_steps
from explainer.hooks import HookManager, named_modules
from explainer.intercept import AttentionTap, intercept
from explainer.layout import Grid, fit, is_open, map_layouts, seen_grids
from explainer.lineage import Lineage
from explainer.session import lock, session

Forward = Callable[[nn.Module, Tensor, HookManager], Tensor]
_CACHED = type(functools.lru_cache(lambda: None))
BATCH = 2
"""Pictures in the probe. More than one, so that windows and heads folded into the batch are recognised."""


@dataclass(frozen=True)
class Step:
    """One call of one module.

    Attributes:
        name: Dotted path.
        kind: Class of the module.
        shape: Shape of its output; None where that is not a single tensor.
        received: Shape of the first tensor that it received; None where it received none.
        start: Clock at which it was called; calls and returns each advance the clock by one.
        end: Clock at which it returned.
        grid: How the output lies on the picture; None where it does not.
    """

    name: str
    kind: str
    shape: tuple[int, ...] | None
    received: tuple[int, ...] | None
    start: int
    end: int
    grid: Grid | None = None


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
        self.traces = Traces()
        self._running: list[tuple[str, int, tuple[int, ...] | None]] = []

    def call(self, name: str, args: tuple[Any, ...]) -> None:
        received = next((arg for arg in args if isinstance(arg, Tensor)), None)
        self._running.append((name, self.now, None if received is None else tuple(received.shape)))
        if received is not None and received.requires_grad:
            self.traces.received[name] = received.grad_fn
        self.starts[name] = self.now
        self.now += 1

    def finish(self, name: str, kind: str, output: Any) -> None:
        while self._running:
            running, start, received = self._running.pop()
            if running == name:
                shape = tuple(output.shape) if isinstance(output, Tensor) else None
                if isinstance(output, Tensor) and output.requires_grad:
                    self.traces.given[name] = output.grad_fn
                self.steps.append(Step(name, kind, shape, received, start, self.now))
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
    with torch.inference_mode(False), torch.enable_grad():
        example = _example(model, size)
        if _shares_caches(model):
            return _summary(model, _really(model, forward, example), size)
        try:
            fake = FakeTensorMode(allow_non_fake_inputs=True)
            with lock(model):  # another thread's hooks and flags must not be copied along
                hollow = _hollow(model, fake)
            with fake:
                run = _observe(hollow, forward, _traced(fake.from_tensor(example)))
                grown = _grown(run, lambda images: _observe(hollow, forward, images), fake.from_tensor(example))
        except Exception:  # data-dependent code cannot run without data; real errors recur below
            run, grown = None, ()
        if run is None or (len(run.clock.steps) <= 1 and any(model.children())):
            # A function that belongs to the model itself, not to its copy, has run the model.
            run, grown = _really(model, forward, example), ()
        return _summary(model, run, size, grown)


def _grown(run: _Run, observe: Callable[[Tensor], _Run], example: Tensor) -> tuple[tuple[int, ...], ...]:
    """Shapes of the same outputs for an input twice as large, where those of a run leave open how maps are laid out."""
    shapes = run.shapes()
    if not is_open(shapes, (example.shape[2], example.shape[3])):
        return ()
    try:
        larger = observe(example.repeat(1, 1, 2, 2))
    except Exception:  # a model of one size
        return ()
    same = [step.name for step in larger.clock.steps] == [step.name for step in run.clock.steps]
    return larger.shapes() if same else ()


def _traced(example: Tensor) -> Tensor:
    """A picture whose graph tells what the attentions are made of; the model may write over it."""
    return example.detach().requires_grad_().clone()


def _really(model: nn.Module, forward: Forward, example: Tensor) -> _Run:
    try:
        return _observe(model, forward, _traced(example))
    except Exception:  # code that leaves torch on the way knows of no graph; other errors recur
        return _observe(model, forward, example)


def _shares_caches(model: nn.Module) -> bool:
    """Whether the code of a model may keep tensors in a cache of the whole process, such as ``functools.lru_cache``.

    A tensor without data in there would be handed to the next model that really runs.
    """
    homes = {sys.modules.get(type(module).__module__) for module in model.modules()}
    names = (item for home in homes if home is not None for item in vars(home).items())
    return any("lru_cache" in name or isinstance(value, _CACHED) for name, value in names)


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


@dataclass(frozen=True)
class _Run:
    """What a run showed."""

    clock: _Clock
    tap: AttentionTap
    lineage: Lineage
    output: Tensor

    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what the modules gave; empty ones where that was no tensor."""
        return tuple(step.shape or () for step in self.clock.steps)


def _observe(model: nn.Module, forward: Forward, images: Tensor) -> _Run:
    clock = _Clock()
    with session(model) as hooks, torch.set_grad_enabled(images.requires_grad):
        for name, module in named_modules(model).items():
            kind = type(module).__name__
            hooks.on_call(
                module,
                lambda _m, args, _kwargs, name=name: clock.call(name, args),
                lambda _m, _args, output, name=name, kind=kind: clock.finish(name, kind, output),
            )
        untraced: set[AttentionCall] = set()
        tap = intercept(hooks, rule=lambda call: None if torch.is_grad_enabled() else untraced.add(call), follow=True)
        output = forward(model, images, hooks)
    return _Run(clock, tap, Lineage(output, untraced), output)


def _summary(model: nn.Module, run: _Run, size: tuple[int, int], grown: tuple[tuple[int, ...], ...] = ()) -> Probe:
    prefix, clock = _stated_prefix(model), run.clock
    shapes = [s.shape for s in clock.steps if s.shape and s.shape[0] == BATCH]
    owners = {call.name for call in run.tap.calls}
    outside = [
        s.shape
        for s in clock.steps
        if s.shape and s.shape[0] == BATCH and not any(s.name.startswith(f"{owner}.") for owner in owners)
    ]
    grids = seen_grids(outside or shapes, size)
    layouts = map_layouts(run.shapes(), size, grown)
    steps = tuple(
        dataclasses.replace(s, grid=fit(s.shape, size, grids, prefix, maps=maps))
        if s.shape and s.shape[0] == BATCH
        else s
        for s, maps in zip(clock.steps, layouts, strict=True)
    )
    attentions = attention_steps(
        run.tap.calls,
        run.lineage,
        clock.traces,
        clock.starts,
        Counter(step.name for step in clock.steps),
        lambda length: fit((BATCH, length, 1), size, grids, prefix),
        BATCH,
    )
    mixers = tuple((name, clock.starts.get(name, 0)) for name in dict.fromkeys([*owners, *run.tap.written_out]))
    return Probe(size, steps, tuple(attentions), tuple(run.output.shape), mixers)


def _stated_prefix(model: nn.Module) -> int | None:
    numbers: set[int] = set()
    for module in model.modules():
        with contextlib.suppress(Exception):  # a property of the user's own may raise whatever it likes
            said: Any = getattr(module, "num_prefix_tokens", None)
            if isinstance(said, int):
                numbers.add(said)
    return numbers.pop() if len(numbers) == 1 else None
