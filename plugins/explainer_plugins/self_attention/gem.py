"""GEM (Bousselham et al. 2024, arXiv:2312.00878)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.attention import AttentionCall
from explainer.encoder import Encoder, image_size
from explainer.geometry import Geometry
from explainer.hooks import LayerError
from explainer.intercept import intercept
from explainer.maps import cells_to_maps
from explainer.target import Targets
from explainer_plugins.self_attention.self_attention import self_self

if TYPE_CHECKING:
    from explainer_plugins.self_attention import GEM

PUBLISHED_DEPTH = 7


@torch.no_grad()
def run(config: GEM, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map the similarity of patches that only self-self attention has moved.

    The model runs as it is (the original path). Beside it, from the input of the first block that takes part,
    runs a second path that adds up what self-self attention of each block's own q, k and v contributes: it
    keeps the residual connection, has no MLP, and is never normalised or projected again before the end. The
    final norm and the readout are then applied to the second path.

    The original path ends inside the last block, at its attention: nothing reads what follows.

    Args:
        config: Depth, iterations, temperature, ensemble, interpolation of positions.
        encoder: Needs attention and a readout.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w]: cosines in [-1, 1] for a joint embedding, contributions to the logit for a classifier.

    Raises:
        LayerError: The model has fewer blocks than asked for, or no residual stream was found.
    """
    geometry = encoder.geometry(image_size(images))
    blocks = geometry.last_blocks(_count(config, geometry))
    last = encoder.last_map(images)
    paths: dict[str, Tensor] = {}
    # Nothing on the original path behind the last attention is needed, unless the top class is asked for.
    final = None if targets.pending else blocks[-1].name

    def rule(call: AttentionCall) -> Tensor | None:
        paths[call.name] = self_self(call, config.ensemble, config.iterations, config.temperature)
        return paths[call.name] if call.name == final else None

    with encoder.session() as hooks:
        names = {block.name for block in blocks}
        attention = intercept(
            hooks, rule=rule, only=names, follow=True, stop_after=final, owners=geometry.attention_owners
        )
        outputs = attention.run(lambda: encoder.forward(images, hooks, config.pos_interp))
        if outputs is not None:
            targets.scores(outputs)
        calls = attention.by_name()
        stream = calls[blocks[0].name].residual.clone()
        for name, heads in paths.items():
            call = calls[name]
            stream += call.increment if name == final else call.project(heads)
        if geometry.final_norm is not None:
            stream = hooks.find(geometry.final_norm)[1](stream)
        evidence = encoder.evidence(last.grid.to_columns(stream), targets.directions)
    return cells_to_maps(evidence, last.grid)


def _count(config: GEM, geometry: Geometry) -> int:
    there = len(geometry.blocks)
    if config.depth is None:
        return min(PUBLISHED_DEPTH - 1, there)
    if config.depth - 1 > there:
        raise LayerError(
            f"depth={config.depth} lets the last {config.depth - 1} blocks take part, but this model has {there} over "
            f"its patch tokens; the most is depth={there + 1}"
        )
    return config.depth - 1
