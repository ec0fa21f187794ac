"""The attention of one patch to all others: q-k as the model has it, and q-q, k-k, v-v."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.attention import AttentionCall, rows_of
from explainer.encoder import Encoder, image_size
from explainer.layout import Grid
from explainer.maps import anchored_attention, cells_to_maps
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
    call, anchors, grid = anchored_attention(encoder, images, targets, block.name, config.point)
    first, second, bias = pair(call)
    return maps_of_rows(rows_of(first, second, call.scale, bias, anchors), config.heads, grid, targets)


def maps_of_rows(rows: Tensor, heads: str, grid: Grid, targets: Targets) -> Tensor:
    """Lay attention rows [B, H, T, prefix + cells] on the grid, averaged over the heads or head by head."""
    maps = cells_to_maps(rows[..., grid.prefix :].float(), grid)
    if heads == "mean":
        return maps.mean(dim=1)
    targets.split([f"head {index}" for index in range(maps.shape[1])])
    return maps.transpose(1, 2).flatten(1, 2)
