"""Letting a timm model take an input of another size, for one run."""

from __future__ import annotations

from typing import Any, cast

from torch import nn

from explainer.encoder import EncoderError
from explainer.hooks import HookManager
from explainer.positions import Interpolation, interpolate


def accept(model: nn.Module, size: tuple[int, int], hooks: HookManager, positions: Interpolation, name: str) -> None:
    """Set a vision transformer to an input size until the hooks are undone; other models take any or fail.

    Args:
        model: The timm model, or the trunk of a CLIP tower.
        size: Height and width of the coming input.
        hooks: Manager of a model that `model` is, or is part of.
        positions: How learned position embeddings are brought to the new grid.
        name: Name of the encoder, for messages.

    Raises:
        EncoderError: The size is no multiple of the patch size, or the interpolation cannot be chosen.
    """
    patch: Any = getattr(model, "patch_embed", None)
    own = getattr(patch, "img_size", None)
    if own is None or tuple(own) == size or not hasattr(model, "dynamic_img_size"):
        return
    step = patch.patch_size
    if not getattr(patch, "dynamic_img_pad", False):
        check_multiple(size, (step[0], step[1]), name)
    if cast("Any", model).dynamic_img_size and positions == "bicubic_antialias":
        return
    hooks.set(patch, "strict_img_size", False)
    if getattr(model, "rope", None) is None and getattr(model, "pos_embed", None) is not None:
        _replace_positions(model, patch, size, hooks, positions)
    else:
        _go_dynamic(model, patch, hooks, positions, name)


def check_multiple(size: tuple[int, int], step: tuple[int, int], name: str) -> None:
    """Check that an input is a whole number of patches.

    Raises:
        EncoderError: It is not; the message names the nearest sizes.
    """
    if all(length % part == 0 for length, part in zip(size, step, strict=True)):
        return
    lower = [max(length // part, 1) * part for length, part in zip(size, step, strict=True)]
    upper = [-(-length // part) * part for length, part in zip(size, step, strict=True)]
    raise EncoderError(
        f"{name} cuts its input into patches of {step[0]} x {step[1]}, and {size[0]} x {size[1]} is no multiple of "
        f"that; the nearest sizes are {lower[0]} x {lower[1]} and {upper[0]} x {upper[1]}"
    )


def _replace_positions(
    model: nn.Module, patch: Any, size: tuple[int, int], hooks: HookManager, positions: Interpolation
) -> None:
    parts = cast("Any", model)
    prefix = 0 if getattr(parts, "no_embed_class", False) else parts.num_prefix_tokens
    old = (patch.grid_size[0], patch.grid_size[1])
    new = (size[0] // patch.patch_size[0], size[1] // patch.patch_size[1])
    moved = interpolate(parts.pos_embed, prefix, old, new, positions)
    hooks.replace_parameter(model, "pos_embed", moved)
    if parts.dynamic_img_size:
        # The positions already have the new grid: take the path of a fixed size.
        hooks.set(model, "dynamic_img_size", False)
        hooks.set(patch, "flatten", True)


def _go_dynamic(model: nn.Module, patch: Any, hooks: HookManager, positions: Interpolation, name: str) -> None:
    from timm.layers.format import Format

    if positions != "bicubic_antialias":
        raise EncoderError(
            f"{name} computes its positions itself; it can only be run at another size with "
            "pos_interp='bicubic_antialias'"
        )
    hooks.set(model, "dynamic_img_size", True)
    rope: Any = getattr(model, "rope", None)
    if hasattr(rope, "_use_cached_embed"):
        # Rotary positions are kept for the size the model was built for, unless told otherwise.
        hooks.set(rope, "_use_cached_embed", False)
    hooks.set(patch, "flatten", False)
    hooks.set(patch, "output_fmt", Format.NHWC)
