"""The picture towers of open_clip: where their last map is, and what one of its cells means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

from open_clip.modified_resnet import ModifiedResNet
from open_clip.timm_model import TimmModel
from open_clip.transformer import VisionTransformer
from torch import Tensor, nn

from explainer.encoder import observe
from explainer.geometry import Geometry
from explainer.hooks import HookManager
from explainer.positions import Interpolation, interpolate
from explainer.readout import Readout
from explainer_plugins.timm.encoder import features_of, pools_class_token
from explainer_plugins.timm.readout import cell_readout
from explainer_plugins.timm.resize import accept, check_multiple


@dataclass(frozen=True)
class Tower:
    """What is known of a picture tower.

    Attributes:
        layer: The last map, relative to the tower; None to find it.
        readout: What a cell means; None where that is not known.
        class_token_pooled: Whether only the class token goes on from there.
    """

    layer: str | None
    readout: Readout | None
    class_token_pooled: bool


def describe(visual: nn.Module, size: tuple[int, int], name: str) -> Tower:
    """Describe a picture tower.

    Args:
        visual: The tower; compiled or not.
        size: Height and width of its input.
        name: Name of the encoder, for messages.

    Raises:
        EncoderError: The tower cannot run on an input of this size.
    """
    if (written := getattr(visual, "_orig_mod", None)) is not None:
        inner = describe(written, size, name)
        return replace(inner, layer=inner.layer and f"_orig_mod.{inner.layer}")
    if isinstance(visual, VisionTransformer):
        pooled = visual.pool_type == "tok" and visual.attn_pool is None
        return Tower("transformer", _transformer_readout(visual), pooled)
    if isinstance(visual, ModifiedResNet):
        return Tower("layer4", _resnet_readout(visual), class_token_pooled=False)
    if isinstance(visual, TimmModel):
        return _timm_tower(visual, size, name)
    return Tower(None, None, class_token_pooled=False)


def resize(visual: nn.Module, size: tuple[int, int], hooks: HookManager, positions: Interpolation, name: str) -> None:
    """Let a tower take an input of another size until the hooks are undone.

    Raises:
        EncoderError: It cannot take that size.
    """
    visual = getattr(visual, "_orig_mod", visual)  # compiled
    if isinstance(visual, VisionTransformer):
        changes = hooks.afresh(visual)
        patch = cast("tuple[int, int]", tuple(visual.patch_size))
        check_multiple(size, patch, name)
        new = (size[0] // patch[0], size[1] // patch[1])
        old = cast("tuple[int, int]", tuple(visual.grid_size))
        if new != old:
            moved = interpolate(visual.positional_embedding, 1, old, new, positions)
            changes.replace_parameter(visual, "positional_embedding", moved)
    elif isinstance(visual, ModifiedResNet):
        changes = hooks.afresh(visual)
        check_multiple(size, (32, 32), name)
        pool: Any = visual.attnpool
        side = round((pool.positional_embedding.shape[0] - 1) ** 0.5)
        new = (size[0] // 32, size[1] // 32)
        if new != (side, side):
            moved = interpolate(pool.positional_embedding, 1, (side, side), new, positions)
            changes.replace_parameter(pool, "positional_embedding", moved)
    elif isinstance(visual, TimmModel):
        accept(cast("nn.Module", visual.trunk), size, hooks, positions, name)


def _transformer_readout(visual: VisionTransformer) -> Readout:
    def embed(columns: Tensor) -> Tensor:
        batch, cells, _ = columns.shape
        # A class token and a patch that are the same cell: whichever the tower pools, it pools this cell.
        pair = columns.flatten(0, 1)[:, None, :].expand(-1, 2, -1)
        pooled, _tokens = cast("Any", visual)._pool(pair)
        projected = pooled if visual.proj is None else pooled @ visual.proj
        return projected.reshape(batch, cells, -1)

    linear = visual.attn_pool is None and not visual.final_ln_after_pool
    return Readout(embed, _as_given, exact=linear)


def _resnet_readout(visual: ModifiedResNet) -> Readout:
    pool: Any = visual.attnpool
    # The value path of the attention pooling (Zhou et al. 2022, arXiv:2112.01071).
    return Readout(lambda columns: pool.c_proj(pool.v_proj(columns)), _as_given, exact=False)


def _timm_tower(visual: TimmModel, size: tuple[int, int], name: str) -> Tower:
    trunk, head = cast("nn.Module", visual.trunk), cast("nn.Module", visual.head)
    seen = observe(name, trunk, lambda model, images, hooks: features_of(model, images, hooks, name), size)
    features = Geometry(seen, class_token_pooled=False)
    readout = cell_readout(lambda maps: head(cast("Any", trunk).forward_head(maps)), features, visual, _as_given)
    layer = f"trunk.{features.last.layer}" if features.last else None
    return Tower(layer, readout, pools_class_token(trunk))


def _as_given(directions: Tensor) -> Tensor:
    """The directions are embeddings already."""
    return directions
