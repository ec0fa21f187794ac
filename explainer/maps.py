"""The steps that methods share: reading the cells of the last map, and laying values back on it."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from explainer.attention import AttentionCall, Rule
from explainer.blocks import AttentionStep
from explainer.encoder import Encoder
from explainer.hooks import LayerError
from explainer.intercept import intercept
from explainer.layout import Grid
from explainer.target import Targets

Measure = Callable[[Tensor, Tensor], Tensor]
"""Takes cells [B, N, C] and directions [B, T, D] to values [B, T, N]; an encoder's readout has two."""


def measured_map(
    encoder: Encoder,
    images: Tensor,
    targets: Targets,
    measure: Measure,
    *,
    rule: Rule | None = None,
    blocks: Collection[str] = (),
) -> Tensor:
    """Run the model once and measure the cells of its last map against the targets.

    Args:
        encoder: Needs features and a readout.
        images: [B, 3, H, W].
        targets: The targets of the call; they learn what the model said.
        measure: What to compute for each cell.
        rule: Replaces the attention of some blocks in this run.
        blocks: Which blocks.

    Returns:
        [B, T, h, w].

    Raises:
        LayerError: The model has no map.
    """
    last = encoder.last_map(images)
    # Reading out runs modules of the model, so it belongs inside the session.
    with encoder.session() as hooks:
        tap = hooks.tap(last.layer)
        if rule is not None:
            intercept(hooks, rule=rule, only=blocks, owners=blocks)
        targets.scores(encoder.forward(images, hooks))
        values = measure(last.grid.to_columns(tap.value), targets.directions)
    return cells_to_maps(values, last.grid)


def anchored_attention(
    encoder: Encoder,
    images: Tensor,
    targets: Targets,
    block: AttentionStep,
    point: tuple[float, float] | None = None,
    anchors: Tensor | None = None,
) -> tuple[list[AttentionCall], Tensor, Grid]:
    """Run the model once and read one block's attention, together with the patches whose attention is wanted.

    Args:
        encoder: Needs attention; without a point or anchors, a readout.
        images: [B, 3, H, W].
        targets: The targets of the call; they learn what the model said.
        block: A dense attention of the model.
        point: The anchor as (x, y) in [0, 1] of the model's input.
        anchors: The anchors as cells [B, T] of the last map, where there is no point; None for the patch most similar
            to each target.

    Returns:
        The attentions of the block (one, unless it attends head by head), the anchors as tokens [B, T], and the
        grid that the patch tokens lie on.

    Raises:
        LayerError: The point is not on the picture.
    """
    last, grid = encoder.last_map(images).grid, block.grid
    assert grid is not None  # noqa: S101  it is dense
    with encoder.session() as hooks:
        attention = intercept(hooks, only={block.name}, owners={block.name})
        tap = hooks.tap(encoder.last_map(images).layer)
        targets.scores(encoder.forward(images, hooks))
        if point is not None:
            anchors = _at(point, grid, (len(images), len(targets))).to(tap.value.device)
        elif anchors is None:
            cells = last.to_columns(tap.value)
            anchors = encoder.needed_readout.similarities(cells, targets.directions).argmax(dim=-1)
    if point is None and not last.same_cells(grid):
        anchors = _moved(anchors, last, grid)
    return attention.calls, anchors + grid.prefix, grid


def cells_to_maps(values: Tensor, grid: Grid) -> Tensor:
    """Lay values [..., rows*columns] on their grid: [..., rows, columns]."""
    return values.reshape(*values.shape[:-1], grid.height, grid.width)


def _at(point: tuple[float, float], grid: Grid, shape: tuple[int, int]) -> Tensor:
    x, y = point
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise LayerError(
            f"the anchor point ({x:g}, {y:g}) is not on the picture: x and y are shares of the model's input, from "
            "0 (left, top) to 1 (right, bottom)"
        )
    return torch.full(shape, grid.cell_at(x, y))


def _moved(cells: Tensor, grid: Grid, to: Grid) -> Tensor:
    """Find the cells of another grid that hold the centres of these."""
    rows, columns = (cells // grid.width + 0.5) / grid.height, (cells % grid.width + 0.5) / grid.width
    return (rows * to.height).long() * to.width + (columns * to.width).long()
