"""Which layers of a model hold a map of the picture, and which of them a method should take."""

from __future__ import annotations

import difflib
from collections import Counter
from dataclasses import dataclass

from explainer.hooks import LayerError
from explainer.layout import LAYOUTS, Grid, Layout, fit
from explainer.probe import AttentionStep, Probe, Step


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
        blocks: Dense attentions over the patch tokens of `last`, in order.
        final_norm: The module that turns the residual stream into `last`; None where they are the same.
    """

    def __init__(
        self,
        probe: Probe,
        *,
        class_token_pooled: bool,
        layer: str | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.probe = probe
        self._steps = {step.name: step for step in probe.steps if step.shape is not None}
        self._runs = Counter(step.name for step in probe.steps)
        self.last = self._given(layer, layout) if layer else self._find_last()
        self.blocks = self._dense_blocks()
        self.final_norm = self._find_final_norm()
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
        # A module that runs twice (one activation used all over) has no one output to read.
        return step.grid is not None and self._runs[step.name] == 1 and bool(step.name)

    def _lies(self, step: Step) -> bool:
        return self._fits(step) and not self.probe.inside_attention(step.name)

    def _find_last(self) -> Choice | None:
        candidates = [step for step in self.probe.steps if self._lies(step)]
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
        if self.last is None or self.last.grid.layout != "NLC":
            return ()
        return tuple(a for a in self.probe.attentions if a.grid == self.last.grid)

    def _find_final_norm(self) -> str | None:
        if self.last is None or not self.blocks:
            return None
        step = self._steps[self.last.layer]
        behind = step.start > self.blocks[-1].start
        return self.last.layer if behind else None

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


def _chosen(step: Step, why: str, grid: Grid | None = None) -> Choice:
    grid = grid or step.grid
    assert grid is not None  # noqa: S101  the caller chose a step that lies on the picture
    assert step.shape is not None  # noqa: S101  and so has a shape
    channels = step.shape[1] if grid.layout in ("NCHW", "NCL") else step.shape[-1]
    return Choice(step.name, grid, channels, why)


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
