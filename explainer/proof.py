"""The proof that a model's maps lie on the picture as they are said to.

One corner of a noise picture is changed, and the map has to change most in that corner; so for all four, at every
layer that methods take by default, on a square and on rectangles both ways. What has been read off shapes alone, and
is wrong, does not survive that: rows taken for columns, tokens counted wrongly, cells in another order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from explainer.corners import Marks, Verdict, changes, judge, pictures
from explainer.encoder import Encoder
from explainer.layout import Grid

LEAST, MOST = 3, 8
"""Rounds of noise for each size: at least, and at most where it is not clear before."""


@dataclass(frozen=True)
class Trial:
    """The proof at one layer for one size of input.

    Attributes:
        size: Height and width of the input.
        layer: Dotted path.
        grid: How the layer is said to lie on the picture.
        marks: What the corners of the picture did to it.
    """

    size: tuple[int, int]
    layer: str
    grid: Grid
    marks: Marks

    def __str__(self) -> str:
        grid, marks = self.grid, self.marks
        prefix = f", {grid.prefix} prefix token{'s' * (grid.prefix > 1)}" if grid.prefix else ""
        told = f": {marks.reason}" if marks.reason else f", contrast {min(_own(marks)):.2f} to {max(_own(marks)):.2f}"
        return f"{self.layer}: {grid.height} x {grid.width} cells, {grid.layout}{prefix}: {marks.verdict}{told}"


@dataclass(frozen=True)
class Proof:
    """A report on whether maps lie on the picture as they are said to; ``print`` it.

    Attributes:
        encoder: Name of the encoder.
        trials: What was tried.
        untried: Sizes that the model does not take, and why.
    """

    encoder: str
    trials: tuple[Trial, ...]
    untried: tuple[tuple[tuple[int, int], str], ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of the trials' verdicts."""
        found: set[Verdict] = {trial.marks.verdict for trial in self.trials}
        return "fails" if "fails" in found else "cannot tell" if "cannot tell" in found else "holds"

    @property
    def holds(self) -> bool:
        """Whether every trial holds."""
        return self.verdict == "holds"

    def __str__(self) -> str:
        lines = [f"layout       {self.verdict}: {_MEANING[self.verdict]}"]
        lines += [f"  {_by(trial.size):<11}{trial}" for trial in self.trials]
        lines += [f"  {_by(size):<11}not tried: {reason}" for size, reason in self.untried]
        return "\n".join(lines)


_MEANING: dict[Verdict, str] = {
    "holds": "each corner of the picture changes the map most in that corner (contrast: 1 is none, 4 the most)",
    "fails": "the map does not lie on the picture as it is said to",
    "cannot tell": "where the picture changes makes no difference that stands out from noise; weights that start at "
    "zero hide it (last norms, layer scales), and so does a wrong layout",
}


def prove(encoder: Encoder, size: int | tuple[int, int] | None = None, layer: str | None = None) -> Proof:
    """Prove that maps lie on the picture as they are said to.

    Args:
        encoder: The wrapped model. It runs on noise, without gradients; nothing of it is changed.
        size: Height and width of the input, or the side of a square. By default the model's own, and where it takes
            them a rectangle and the same rectangle upright.
        layer: Dotted name of one layer. By default those that methods take. A branch that mixes cells by weights of
            its own, such as an attention before it is added to what it was made of, can fail although it is laid out
            as said: its cells do not show what is at their place.

    Returns:
        The proof; ``proof.holds`` tells whether it holds.

    Raises:
        LayerError: The layer does not lie on the picture, or no layer does.
        EncoderError: The model does not take the given size.
    """
    with torch.inference_mode(False):
        own = (size, size) if isinstance(size, int) else size or encoder.preprocess.size
        trials, untried = _trials(encoder, own, layer), list[tuple[tuple[int, int], str]]()
        for rectangles in () if size else _rectangles(own, encoder.last_map(_blank(own)).grid):
            refused: list[tuple[tuple[int, int], str]] = []
            for rectangle in rectangles:
                try:
                    trials += _trials(encoder, rectangle, layer)
                except Exception as error:  # what a model raises is not one kind
                    refused.append((rectangle, _reason(error)))
                else:
                    break
            else:
                untried.append(refused[0])
        return Proof(encoder.name, tuple(trials), tuple(untried))


def _trials(encoder: Encoder, size: tuple[int, int], layer: str | None) -> list[Trial]:
    grids = _grids(encoder, size, layer)
    rounds: dict[str, list[Tensor]] = {name: [] for name in grids}
    found: dict[str, Marks] = {}
    for seed in range(MOST):
        for name, changed in _round(encoder, size, {name: grids[name] for name in grids if name not in found}, seed):
            rounds[name].append(changed)
            marks = judge(torch.stack(rounds[name])) if seed + 1 >= LEAST else None
            if marks is not None and (marks.verdict != "cannot tell" or seed + 1 == MOST):
                found[name] = marks
        if len(found) == len(grids):
            break
    return [Trial(size, name, grids[name], found[name]) for name in grids]


def _round(encoder: Encoder, size: tuple[int, int], grids: dict[str, Grid], seed: int) -> Iterator[tuple[str, Tensor]]:
    noise = pictures(size, seed).to(encoder.device, encoder.dtype)
    with encoder.session() as hooks:  # freezes the weights, so no graph is recorded
        taps = {name: hooks.tap(name) for name in grids}
        encoder.forward(noise, hooks)
    for name, tap in taps.items():
        yield name, changes(grids[name].to_map(tap.value))


def _grids(encoder: Encoder, size: tuple[int, int], layer: str | None) -> dict[str, Grid]:
    taken = (encoder.last_map(_blank(size)), encoder.gradient_map(_blank(size)))
    grids = {choice.layer: choice.grid for choice in taken}
    if layer is None:
        return grids
    # Where the user said how the last map is laid out, its shape does not tell.
    return {layer: grids.get(layer) or encoder.geometry(size).grid(layer)}


def _blank(size: tuple[int, int]) -> Tensor:
    return torch.empty(1, 3, *size, device="meta")


def _rectangles(size: tuple[int, int], grid: Grid) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Other sizes to try; of each group the first that the model takes."""
    height, width = size
    if height != width:
        return (((width, height),),)
    columns = -(-2 * grid.width // 3)
    columns += columns == grid.width
    narrow = width // grid.width * columns if width % grid.width == 0 else round(width * columns / grid.width)
    # Windows often fit into twice the width where they do not fit into two thirds.
    sides = (narrow, 2 * width)
    return tuple((height, side) for side in sides), tuple((side, width) for side in sides)


def _reason(error: Exception) -> str:
    cause = error.__cause__ or error
    said = " ".join(str(cause).split()).rstrip(".")
    return f"the model does not take it ({type(cause).__name__}{': ' * bool(said)}{said})"


def _own(marks: Marks) -> list[float]:
    return [row[corner] for corner, row in enumerate(marks.contrast)]


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
