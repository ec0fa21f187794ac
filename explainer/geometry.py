"""Which layers of a model hold a map of the picture, and which of them a method should take."""

from __future__ import annotations

import difflib
import itertools
from collections import Counter
from dataclasses import dataclass

from explainer.blocks import AttentionStep
from explainer.hooks import LayerError
from explainer.layout import LAYOUTS, Grid, Layout, fit
from explainer.probe import BATCH, Probe, Step


@dataclass(frozen=True)
class Choice:
    """A chosen layer.

    Attributes:
        layer: Dotted path.
        grid: How its output lies on the picture.
        channels: Number of channels in a cell.
        why: The reason, for people.
    """

    layer: str
    grid: Grid
    channels: int
    why: str


class Geometry:
    """The spatial layers of a model for one input size.

    Attributes:
        last: The last map before the model pools; what a readout reads. None where no layer has a map.
        gradient: The last map whose cells all reach the output, so that a gradient exists there.
        blocks: Modules before `last` that compute dense attention over one grid of patch tokens, in order: that
            of `last` where there are any, else the last grid that has some.
        stream: The last run of these blocks that add to one residual stream; empty where that was not found.
        final_norm: The module that turns the residual stream into `last`; None where they are the same.
        direct: Whether `last` is the residual stream, or `final_norm` of it. Otherwise more follows behind the
            last block (convolutions, another resolution).
    """

    def __init__(
        self,
        probe: Probe,
        *,
        class_token_pooled: bool,
        layer: str | None = None,
        layout: Layout | None = None,
        only_last_cells: bool = False,
    ) -> None:
        self.probe = probe
        self._only_last_cells = False
        self._steps = {step.name: step for step in probe.steps if step.shape is not None}
        self._runs = Counter(step.name for step in probe.steps)
        self.last = self._given(layer, layout) if layer else self._find_last()
        self._only_last_cells = only_last_cells
        self.blocks = self._dense_blocks()
        self.final_norm = self._find_final_norm()
        self.stream = self._streaming()
        self.direct = self._stream_becomes_last()
        self.gradient = self._find_gradient(class_token_pooled)

    @property
    def layers(self) -> tuple[str, ...]:
        """Every layer that lies on the picture, in the order in which they run."""
        steps = sorted((s for s in self._steps.values() if self._lies(s)), key=lambda s: s.end)
        return tuple(s.name for s in steps)

    @property
    def attention_owners(self) -> frozenset[str]:
        """Paths of all modules that compute attention, of whatever kind."""
        return frozenset(attention.name for attention in self.probe.attentions)

    @property
    def attention_ends(self) -> dict[str, set[int]]:
        """Where the attentions of each module reach the residual stream; see :class:`explainer.tape.Tape`."""
        ends: dict[str, set[int]] = {}
        for attention in self.probe.attentions:
            if attention.ends is not None:
                ends.setdefault(attention.name, set()).add(attention.ends)
        return ends

    def grid(self, layer: str) -> Grid:
        """Return how a layer lies on the picture.

        Raises:
            LayerError: It does not exist, did not run, or holds no map.
        """
        step = self._steps.get(layer)
        # Inside an attention, tokens lie on the picture; maps there are heads, which may pass for one.
        if step is not None and step.grid is not None and self._fits(step):
            outside = not self.probe.inside_attention(layer)
            if outside or len(step.shape or ()) == 3:
                return step.grid
        near = difflib.get_close_matches(layer, self.layers, n=3, cutoff=0.4) or list(self.layers[-3:])
        if step is None:
            reason = f"layer '{layer}' gives no map of the picture, or does not exist"
        elif self._runs[layer] > 1:
            reason = f"layer '{layer}' runs {self._runs[layer]} times in a forward pass, so it has no one map"
        else:
            shape = " x ".join(str(n) for n in (step.shape or ())[1:])
            reason = f"layer '{layer}' gives {shape} per picture, which does not lie on the picture"
        raise LayerError(f"{reason}; nearest layers that do: {', '.join(near) or 'none'}")

    @property
    def prefix_norm(self) -> str | None:
        """The module that the prefix tokens of `last` run through alone, behind it; None where there is none."""
        if self.last is None:
            return None
        shape = (BATCH, self.last.grid.prefix, self.last.channels)
        end = self._steps[self.last.layer].end
        behind = [step.name for step in self.probe.steps if step.start > end and step.received == step.shape == shape]
        return behind[0] if behind else None

    def block(self, index: int) -> AttentionStep:
        """Return a dense attention by its place; negative places count from the last.

        Raises:
            LayerError: There is no such block.
        """
        try:
            return self.blocks[index]
        except IndexError:
            raise LayerError(
                f"there is no attention block {index}; this model has {len(self.blocks)} over its patch tokens, "
                f"numbered 0 to {len(self.blocks) - 1}, or -1 for the last"
            ) from None

    def last_blocks(self, count: int) -> tuple[AttentionStep, ...]:
        """Return the last dense attentions.

        Raises:
            LayerError: There are fewer than `count`.
        """
        if count > len(self.blocks):
            raise LayerError(
                f"{count} attention blocks were asked for, but this model has {len(self.blocks)} over its patch "
                f"tokens; ask for at most {len(self.blocks)}"
            )
        return self.blocks[len(self.blocks) - count :]

    def _fits(self, step: Step) -> bool:
        if step.grid is None or (self._only_last_cells and self.last and not step.grid.same_cells(self.last.grid)):
            return False
        # A module that runs twice (one activation used all over) has no one output to read.
        return self._runs[step.name] == 1 and bool(step.name)

    def _lies(self, step: Step) -> bool:
        return self._fits(step) and not self.probe.inside_attention(step.name)

    def _find_last(self) -> Choice | None:
        # One channel is no feature map: a pooled vector [B, C, 1] is as long as many a grid.
        candidates = [
            step
            for step in self.probe.steps
            if self._lies(step) and step.shape and step.grid and _width(step.shape, step.grid) > 1
        ]
        # A network that attends in its own forward, and is part of another, has everything inside.
        candidates = candidates or [step for step in self.probe.steps if self._fits(step)]
        if not candidates:
            return None
        return _chosen(candidates[-1], "the last layer that still lies on the picture, before the model pools")

    def _given(self, layer: str, layout: Layout | None) -> Choice:
        step = self._steps.get(layer)
        if step is None or step.shape is None or layout is None:
            grid = self.grid(layer)
            return _chosen(self._steps[layer], "given", grid)
        grids = {(s.grid.height, s.grid.width) for s in self.probe.steps if s.grid is not None}
        grid = step.grid if step.grid is not None and step.grid.layout == layout else None
        grid = grid or fit(step.shape, self.probe.size, grids, layout=layout) or _laid(step.shape, layout)
        return _chosen(step, f"given, with layout {layout}", grid)

    def _dense_blocks(self) -> tuple[AttentionStep, ...]:
        # A module that attends several times (head by head) is one block.
        if self.last is None:
            return ()
        end = self._steps[self.last.layer].end
        before = [a for a in self.probe.attentions if a.start < end]
        dense = {a.name: (a, a.grid) for a in before if a.grid is not None}.values()
        deepest = [grid for _, grid in dense][-1:]
        runs = [tuple(a for a, grid in dense if grid.same_cells(cells)) for cells in (self.last.grid, *deepest)]
        return runs[0] or runs[-1]

    def _find_final_norm(self) -> str | None:
        if self.last is None or not self.blocks:
            return None
        step = self._steps[self.last.layer]
        behind = step.start > self.blocks[-1].start
        return self.last.layer if behind else None

    def _stream_becomes_last(self) -> bool:
        """Whether the last map is made of the residual stream by one module, or is the stream."""
        if self.last is None or not self.blocks:
            return False
        last, stream = self._steps[self.last.layer], self.blocks[-1].stream
        becomes = last.received if self.final_norm else last.shape
        if stream is None or becomes is None:
            return False
        unchanged = stream.handed if self.final_norm else stream.returned
        grid, goal = (self.last.grid.on_cells(shape) for shape in (stream.shape, becomes))
        if grid is None or goal is None or _width(stream.shape, grid) != _width(becomes, goal):
            return False
        # A module is handed the stream as it is; a map can be laid out from it in any way.
        laid = not self.final_norm or grid.layout == goal.layout
        return laid and (unchanged is None or last.name in unchanged)

    def _streaming(self) -> tuple[AttentionStep, ...]:
        lost = {attention.name for attention in self.probe.attentions if attention.stream is None}
        if not self.blocks or self.blocks[-1].name in lost:
            return ()
        backwards = self.blocks[::-1]
        pairs = itertools.pairwise(backwards)
        run = itertools.takewhile(lambda pair: pair[1].name not in lost and _on_one_stream(*pair[::-1]), pairs)
        return (*(earlier for _, earlier in run),)[::-1] + backwards[:1]

    def _find_gradient(self, class_token_pooled: bool) -> Choice | None:
        if self.last is None or not class_token_pooled or not self.probe.mixers:
            return self.last
        # Behind the last attention only the class token goes on, so the patches have no gradient there.
        mixer, start = max(self.probe.mixers, key=lambda pair: pair[1])
        inner = tuple(f"{name}." for name, _ in self.probe.mixers if name)
        before = [
            step
            for step in self.probe.steps
            if self._lies(step) and step.end < start and step.grid == self.last.grid and not step.name.startswith(inner)
        ]
        if not before:
            return self.last
        return _chosen(
            before[-1],
            f"the last layer before '{mixer}': behind it the model only reads its class token, "
            "so patches have no gradient there",
        )


def _on_one_stream(earlier: AttentionStep, later: AttentionStep) -> bool:
    first, second = earlier.stream, later.stream
    if first is None or second is None or first.shape != second.shape:
        return False
    return first.taking is None or later.name in first.taking


def _width(shape: tuple[int, ...], grid: Grid) -> int:
    return shape[1] if grid.layout in ("NCHW", "NCL") else shape[-1]


def _chosen(step: Step, why: str, grid: Grid | None = None) -> Choice:
    grid = grid or step.grid
    assert grid is not None  # noqa: S101  the caller chose a step that lies on the picture
    assert step.shape is not None  # noqa: S101  and so has a shape
    return Choice(step.name, grid, _width(step.shape, grid), why)


def _laid(shape: tuple[int, ...], layout: Layout) -> Grid:
    if layout not in LAYOUTS:
        near = difflib.get_close_matches(str(layout).upper(), LAYOUTS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise LayerError(f"no layout named '{layout}'{hint} (available: {', '.join(LAYOUTS)})")
    if len(shape) == 4 and layout == "NCHW":
        return Grid(shape[2], shape[3], "NCHW")
    if len(shape) == 4 and layout == "NHWC":
        return Grid(shape[1], shape[2], "NHWC")
    raise LayerError(f"an output of shape {list(shape)} cannot have the layout {layout}")
