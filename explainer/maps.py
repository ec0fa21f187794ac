"""The steps that methods share: reading the cells of the last map, and laying values back on it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from torch import Tensor

from explainer.attention import Rule
from explainer.encoder import Encoder
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


def cells_to_maps(values: Tensor, grid: Grid) -> Tensor:
    """Lay values [..., rows*columns] on their grid: [..., rows, columns]."""
    return values.reshape(*values.shape[:-1], grid.height, grid.width)
