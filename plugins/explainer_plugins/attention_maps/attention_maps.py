"""The attention of one patch to all others: q-k as the model has it, and q-q, k-k, v-v."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.attention import AttentionCall, rows_of
from explainer.encoder import Encoder, image_size
from explainer.explain import MethodError
from explainer.inspection import misfit, suited
from explainer.layout import Grid
from explainer.maps import anchored_attention, cells_to_maps
from explainer.selection import select, with_defaults
from explainer.target import Targets
from explainer_registry import registry

if TYPE_CHECKING:
    from explainer_plugins.attention_maps import AttentionMap

Rows = Callable[[AttentionCall, Tensor], Tensor]
"""Takes an attention and tokens [B, R] to the rows [B, H, R, N] of a matrix of weights that belong to them."""


def query_key(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the row of softmax(s q k^T + bias) that belongs to the anchor patch; see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, AttentionCall.rows)


def query_query(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the anchor's row of softmax(s q q^T); see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call, tokens: _alike(call.query, call, tokens))


def key_key(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the anchor's row of softmax(s k k^T); see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call, tokens: _alike(call.key, call, tokens))


def value_value(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the anchor's row of softmax(s v v^T); see :func:`attention_map`."""
    return attention_map(config, encoder, images, targets, lambda call, tokens: _alike(call.value, call, tokens))


def _alike(tokens: Tensor, call: AttentionCall, at: Tensor) -> Tensor:
    """Rows of softmax(s p p^T)."""
    return rows_of(tokens, tokens, call.scale, None, at)


@torch.no_grad()
def attention_map(config: AttentionMap, encoder: Encoder, images: Tensor, targets: Targets, rows: Rows) -> Tensor:
    """Map one row of an attention matrix, for each picture and target.

    The scale is the block's own. A position bias belongs to the q-k attention and is left out of the others.
    Weights that fall on prefix tokens are not on the map, so a map sums to at most 1. Where a model mixes or gates
    its weights after the softmax, the q-k map shows what it applies, which need not sum to 1.

    Args:
        config: Block, anchor, and whether to average the heads.
        encoder: Needs attention, and a readout to find the anchors; for GEM's, a residual stream.
        images: [B, 3, H, W].
        targets: T targets.
        rows: Which weights.

    Returns:
        [B, T, h, w] in [0, 1]; [B, T * heads, h, w] where each head is kept, head by head for each target.

    Raises:
        LayerError: There is no such block.
        MethodError: GEM was asked to find the anchors, and does not fit the model.
    """
    block = encoder.geometry(image_size(images)).block(config.block)
    found_by_gem = config.point is None and _by_gem(config, encoder)
    cells = _hottest(encoder, images, targets) if found_by_gem else None
    calls, anchors, grid = anchored_attention(encoder, images, targets, block, config.point, cells)
    found = torch.cat([rows(call, anchors) for call in calls], dim=1)
    return maps_of_rows(found, config.heads, grid, targets)


def _by_gem(config: AttentionMap, encoder: Encoder) -> bool:
    if config.anchor is None:
        return encoder.capabilities >= {"companion", "stream"} and "gem" in registry().methods
    if config.anchor == "gem" and (reason := misfit("gem", encoder)):
        raise MethodError(f"anchor=gem cannot be had: {reason}; use anchor=similarity, or give a point")
    return config.anchor == "gem"


def _hottest(encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Find the cells [B, T] of the last map where GEM's maps are highest."""
    gem = with_defaults(select("methods", "gem"), suited("gem", encoder))
    maps: Tensor = registry().methods.load("gem")(gem.options, encoder, images, targets)
    return maps.flatten(2).argmax(dim=-1)


def maps_of_rows(rows: Tensor, heads: str, grid: Grid, targets: Targets) -> Tensor:
    """Lay attention rows [B, H, T, prefix + cells] on the grid, averaged over the heads or head by head."""
    maps = cells_to_maps(rows[..., grid.prefix :].float(), grid)
    if heads == "mean":
        return maps.mean(dim=1)
    targets.split([f"head {index}" for index in range(maps.shape[1])])
    return maps.transpose(1, 2).flatten(1, 2)
