"""The attention of one patch to all others: q-k as the model has it, and q-q, k-k, v-v."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.attention import AttentionCall, rows_of
from explainer.encoder import Encoder, image_size
from explainer.hooks import LayerError
from explainer.intercept import intercept
from explainer.layout import Grid
from explainer.maps import cells_to_maps
from explainer.target import Targets

if TYPE_CHECKING:
    from explainer_plugins.attention_maps import AttentionMap

Pair = Callable[[AttentionCall], tuple[Tensor, Tensor, "Tensor | None"]]
"""Picks what asks, what is asked, and the bias, of one attention."""


def query_key(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the row of softmax(s q k^T + bias) that belongs to the anchor patch; see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call: (call.query, call.key, call.bias))


def query_query(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the anchor's row of softmax(s q q^T); see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call: (call.query, call.query, None))


def key_key(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the anchor's row of softmax(s k k^T); see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call: (call.key, call.key, None))


def value_value(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the anchor's row of softmax(s v v^T); see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call: (call.value, call.value, None))


@torch.no_grad()
def attention_map(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets, pair: Pair) -> Tensor:
    """Map one row of an attention matrix, for each picture and target.

    The scale is the block's own. A position bias belongs to the q-k attention and is left out of the others.
    Weights that fall on prefix tokens are not on the map, so a map sums to at most 1.

    Args:
        config: Block, anchor, and whether to average the heads.
        encoder: Needs attention, and a readout to find the anchors.
        images: [B, 3, H, W].
        targets: T targets.
        pair: Which of q, k and v to compare.

    Returns:
        [B, T, h, w] in [0, 1]; [B, T * heads, h, w] where each head is kept, head by head for each target.

    Raises:
        LayerError: There is no such block.
    """
    block = encoder.geometry(image_size(images)).block(config.block)
    last = encoder.last_map(images)
    with encoder.session() as hooks:
        attention = intercept(hooks, only={block.name}, owners={block.name})
        tap = hooks.tap(last.layer)
        targets.scores(encoder.forward(images, hooks))
        cells = last.grid.to_columns(tap.value)
        anchors = find_anchors(config.point, encoder, cells, last.grid, targets)
    call = attention.calls[-1]
    first, second, bias = pair(call)
    rows = rows_of(first, second, call.scale, bias, anchors + last.grid.prefix)
    return maps_of_rows(rows, config.heads, last.grid, targets)


def find_anchors(
    point: tuple[float, float] | None, encoder: Encoder, cells: Tensor, grid: Grid, targets: Targets
) -> Tensor:
    """Choose the patch whose attention is shown.

    Args:
        point: (x, y) in [0, 1] of the model's input; None for the patch most similar to the target.
        encoder: Its readout measures the similarity.
        cells: [B, N, C] of the last map.
        grid: The grid of the cells.
        targets: T targets.

    Returns:
        [B, T], indices of cells.

    Raises:
        LayerError: The point is not on the picture.
    """
    if point is None:
        return encoder.needed_readout.similarities(cells, targets.directions).argmax(dim=-1)
    x, y = point
    if not (0 <= x <= 1 and 0 <= y <= 1):
        raise LayerError(
            f"the anchor point ({x:g}, {y:g}) is not on the picture: x and y are shares of the model's input, from "
            "0 (left, top) to 1 (right, bottom)"
        )
    return torch.full((cells.shape[0], len(targets)), grid.cell_at(x, y), device=cells.device)


def maps_of_rows(rows: Tensor, heads: str, grid: Grid, targets: Targets) -> Tensor:
    """Lay attention rows [B, H, T, prefix + cells] on the grid, averaged over the heads or head by head."""
    maps = cells_to_maps(rows[..., grid.prefix :].float(), grid)
    if heads == "mean":
        return maps.mean(dim=1)
    targets.split([f"head {index}" for index in range(maps.shape[1])])
    return maps.transpose(1, 2).flatten(1, 2)
