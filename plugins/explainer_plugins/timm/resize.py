"""Letting a timm model take an input of another size, for one run."""

from __future__ import annotations

from typing import Any

from torch import nn

from explainer.encoder import EncoderError
from explainer.hooks import HookManager
from explainer.positions import Interpolation
from explainer_plugins.timm.twin import plan


def accept(model: nn.Module, size: tuple[int, int], hooks: HookManager, positions: Interpolation, name: str) -> None:
    """Set a model that is held to one size to another until the hooks are undone; other models take any or fail.

    Args:
        model: The timm model, or the trunk of a CLIP tower.
        size: Height and width of the coming input.
        hooks: Manager of a model that `model` is, or is part of.
        positions: How learned position embeddings are brought to the new grid.
        name: Name of the encoder, for messages.

    Raises:
        EncoderError: The size is no multiple of the patch size, or the interpolation cannot be chosen.
    """
    model = getattr(model, "_orig_mod", model)  # compiled
    changes = hooks.afresh(model)
    if held_to(model) in (None, size) or not hasattr(model, "set_input_size"):
        return
    patch: Any = getattr(model, "patch_embed", None)
    step = _step(patch)
    padded = getattr(patch, "dynamic_img_pad", False)
    if not padded:
        check_multiple(size, step, name)
    learned = getattr(model, "pos_embed", None) is not None
    if positions != "bicubic_antialias" and not learned:
        raise EncoderError(
            f"{name} computes its positions itself; it can only be run at another size with "
            "pos_interp='bicubic_antialias'"
        )
    if positions == "bicubic_antialias" and _is_free(model, patch):
        return
    plan(model, _upper(size, step)).apply(model, changes, positions)
    if padded:
        changes.set(patch, "strict_img_size", False)


def held_to(model: nn.Module) -> tuple[int, int] | None:
    """Return the height and width that a timm model is set to; None where it states none, and takes any.

    The window transformers of EfficientViT (MSRA) state the shorter edge alone: they pad what does not fit.
    """
    stated = getattr(getattr(model, "patch_embed", None), "img_size", None) or getattr(model, "img_size", None)
    return _pair(stated) if isinstance(stated, tuple | list) else None


def built_size(model: nn.Module) -> tuple[int, int] | None:
    """Return the height and width that a timm model was built for, where it says so; None elsewhere.

    They differ from those of the published configuration where the model was built for another size.
    """
    if (held := held_to(model)) is not None:
        return held
    stem = getattr(getattr(model, "stem", None), "img_size", None)
    noted = stem or getattr(model, "_traits", {}).get("img_size")
    return _pair(noted) if noted else None


def check_multiple(size: tuple[int, int], step: tuple[int, int], name: str) -> None:
    """Check that an input is a whole number of patches.

    Raises:
        EncoderError: It is not; the message names the nearest sizes.
    """
    if all(length % part == 0 for length, part in zip(size, step, strict=True)):
        return
    lower = [max(length // part, 1) * part for length, part in zip(size, step, strict=True)]
    upper = _upper(size, step)
    raise EncoderError(
        f"{name} cuts its input into patches of {step[0]} x {step[1]}, and {size[0]} x {size[1]} is no multiple of "
        f"that; the nearest sizes are {lower[0]} x {lower[1]} and {upper[0]} x {upper[1]}"
    )


def _step(patch: Any) -> tuple[int, int]:
    """Height and width that an input must be a multiple of for a patch embedding to use all of it."""
    height, width = _pair(getattr(patch, "patch_size", 1))
    ratio = getattr(patch, "feature_ratio", None)
    # Convolutions in front reduce what they are given by about a ratio, whatever its size.
    return (height, width) if ratio is None or height == width == 1 else (ratio[0] * height, ratio[1] * width)


def _is_free(model: nn.Module, patch: Any) -> bool:
    """Whether a model that states a size was built to take others all the same."""
    return not getattr(patch, "strict_img_size", True) and bool(getattr(model, "dynamic_img_size", True))


def _upper(size: tuple[int, int], step: tuple[int, int]) -> tuple[int, int]:
    height, width = (-(-length // part) * part for length, part in zip(size, step, strict=True))
    return height, width


def _pair(size: Any) -> tuple[int, int]:
    return (int(size), int(size)) if isinstance(size, int) else (int(size[0]), int(size[1]))
