"""GEM (Bousselham et al. 2024, arXiv:2312.00878)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.attention import AttentionCall
from explainer.encoder import Encoder, image_size
from explainer.geometry import Geometry
from explainer.hooks import HookManager, LayerError
from explainer.intercept import AttentionTap, intercept
from explainer.layout import Grid
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

    The original path ends inside the last block, at its attention: nothing reads what follows. Where the last map
    is more than a norm away from there (convolutions behind the attention), the model goes on from the second path.

    Args:
        config: Depth, iterations, temperature, ensemble, interpolation of positions.
        encoder: Needs attention, a residual stream and a readout.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w]: cosines in [-1, 1] for a joint embedding, contributions to the logit for a classifier.

    Raises:
        LayerError: The model has fewer blocks than asked for, or no residual stream was found.
    """
    geometry = encoder.geometry(image_size(images))
    last = encoder.last_map(images)
    path = SecondPath(
        config, [block.name for block in geometry.stream[len(geometry.stream) - _count(config, geometry) :]]
    )
    with encoder.session() as hooks:
        if targets.pending and not geometry.direct:
            targets.scores(encoder.forward(images, hooks, config.pos_interp))
        # Nothing on the original path behind the last attention is needed, unless the top class is asked for.
        stop = None if targets.pending else path.final
        resume = None if geometry.direct else path.resume
        path.attention = intercept(
            hooks,
            rule=lambda call: path.attend(call, replace=call.name == stop),
            only=path.names,
            follow=True,
            stop_after=stop,
            resume=resume,
            owners=geometry.attention_owners,
            ends=geometry.attention_ends,
        )
        tap = None if geometry.direct else hooks.tap(last.layer)
        outputs = path.attention.run(lambda: encoder.forward(images, hooks, config.pos_interp))
        if targets.pending and outputs is not None:
            targets.scores(outputs)
        columns = last.grid.to_columns(tap.value) if tap else path.columns(last.grid, geometry.final_norm, hooks)
        evidence = encoder.evidence(columns, targets.directions)
    return cells_to_maps(evidence, last.grid)


class SecondPath:
    """The path beside the model, to which only self-self attention adds.

    Attributes:
        names: The blocks that take part.
        final: The last of them.
        attention: Watches the original path.
    """

    attention: AttentionTap

    def __init__(self, config: GEM, names: list[str]) -> None:
        self.names = names
        self.final = names[-1]
        self._config = config
        self._heads: dict[AttentionCall, Tensor] = {}
        self._replaced: set[AttentionCall] = set()

    def attend(self, call: AttentionCall, *, replace: bool) -> Tensor | None:
        """Note what self-self attention gives in the place of an attention.

        Args:
            call: The attention.
            replace: Whether the original path goes on with it, too.
        """
        self._heads[call] = self_self(call, self._config.ensemble, self._config.iterations, self._config.temperature)
        if not replace:
            return None
        self._replaced.add(call)
        return self._heads[call]

    def stream(self) -> Tensor:
        """Add up what the second path holds behind the last block, laid out as the residual stream is."""
        stream = self.attention.calls[0].residual.clone()
        for call in self.attention.calls:
            # Attentions that one addition takes in are sent there together.
            if call is next(each for each in call.joined if each in self._heads):
                done = self._replaced.issuperset(call.joined)
                stream += call.increment if done else call.project(self._heads)
        return stream

    def resume(self, call: AttentionCall) -> Tensor:
        """Let the model go on from the second path."""
        return call.as_stream(self.stream())

    def columns(self, last: Grid, final_norm: str | None, hooks: HookManager) -> Tensor:
        """Make the cells of the last map out of the second path.

        Args:
            last: The last map.
            final_norm: What the path runs through before; None where it is the map.
            hooks: The manager of the session.
        """
        stream = self.stream()
        if final_norm is not None:
            stream = hooks.find(final_norm)[1](stream)
        grid = last.on_cells(tuple(stream.shape))
        assert grid is not None  # noqa: S101  geometry.direct says so
        return grid.to_columns(stream)


def _count(config: GEM, geometry: Geometry) -> int:
    there = len(geometry.stream)
    if config.depth is None:
        return min(PUBLISHED_DEPTH - 1, there)
    if config.depth - 1 > there:
        raise LayerError(
            f"depth={config.depth} lets the last {config.depth - 1} blocks take part, but this model has {there} over "
            f"its patch tokens; the most is depth={there + 1}"
        )
    return config.depth - 1
