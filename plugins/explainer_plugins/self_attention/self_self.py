"""Self-self attention as a method of its own: as a map, or in place of the last blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.attention import AttentionCall, rows_of
from explainer.encoder import Encoder, image_size
from explainer.maps import anchored_attention, cells_to_maps, measured_map
from explainer.target import Targets
from explainer_plugins.self_attention.self_attention import adaptive_temperature, self_self, sharpen, starts

if TYPE_CHECKING:
    from explainer_plugins.self_attention import SelfSelf


@torch.no_grad()
def run(config: SelfSelf, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Compare patches with the targets behind replaced blocks, or show what the anchor patch attends to.

    A replaced block keeps its residual connection and its MLP; only its attention rule changes.

    Args:
        config: What is compared, how often, how sharply, where.
        encoder: Needs attention and a readout.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w]: with "replace" the encoder's evidence, signed; with "map" attention weights in [0, 1].

    Raises:
        LayerError: The model has fewer blocks.
    """
    if config.output == "map":
        return _map(config, encoder, images, targets)
    names = {block.name for block in encoder.geometry(image_size(images)).last_blocks(config.depth)}

    def rule(call: AttentionCall) -> Tensor:
        return self_self(call, config.start, config.iterations, config.temperature)

    return measured_map(encoder, images, targets, encoder.evidence, rule=rule, blocks=names)


def _map(config: SelfSelf, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    block = encoder.geometry(image_size(images)).last_blocks(config.depth)[0]
    calls, anchors, grid = anchored_attention(encoder, images, targets, block)
    rows: list[Tensor] = []
    for call in calls:
        factor = adaptive_temperature(call) if config.temperature is None else config.temperature
        for tokens in starts(call, config.start):
            sharpened = sharpen(tokens, factor, config.iterations)
            rows.append(rows_of(sharpened, sharpened, factor, None, anchors))
    weights = torch.stack(rows).mean(dim=(0, 2))[..., grid.prefix :]
    return cells_to_maps(weights.float(), grid)
