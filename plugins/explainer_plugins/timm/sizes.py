"""Which input sizes a timm model takes, found out by running it without data."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import timm
import torch
from torch import nn

from explainer.encoder import EncoderError
from explainer.hooks import HookManager
from explainer_plugins.timm.resize import accept, built_size
from explainer_plugins.timm.twin import has_data, hollow
from explainer_registry import ExplainerError

Size = tuple[int, int]


@contextmanager
def explained(model: nn.Module, size: Size, hooks: HookManager, name: str) -> Generator[None, None, None]:
    """Say which sizes a model takes where it fails because of the size of its input.

    Args:
        model: The timm model, or the trunk of a CLIP tower.
        size: Height and width of the input that it runs on inside.
        hooks: The manager that it was set to that size with.
        name: Name of the encoder, for messages.

    Raises:
        EncoderError: It failed, and it takes other sizes.
    """
    try:
        yield
    except ExplainerError:
        raise
    except Exception as error:  # what a model raises is not one kind
        model = getattr(model, "_orig_mod", model)  # compiled
        hooks.afresh(model)
        if not has_data(model) or own_size(model) == size:
            raise  # a model without data is run again with data
        if (refusal := why_not(hollow(model).eval(), size, name)) is None:
            raise
        raise refusal from error


def building_size(source: str, size: Size, name: str, **options: Any) -> Size | None:
    """Find out whether a model must be built for a size, because it cannot be set to it afterwards.

    Args:
        source: What timm creates the model from.
        size: Height and width wanted.
        name: Name of the encoder, for messages.
        **options: What else it is created with.

    Returns:
        The size to build it for; None where it takes it without, or where that cannot be found out.

    Raises:
        EncoderError: It does not take that size, and cannot be built for it.
    """
    try:
        model = _without_data(source, **options)
    except Exception:  # such as a hub that cannot be reached
        return None
    if own_size(model) == size or _runs(model, size):
        return None
    if _can_be_built(source, size, **options):
        return size
    if (refusal := why_not(model, size, name)) is not None:
        raise refusal
    return None


def why_not(model: nn.Module, size: Size, name: str) -> EncoderError | None:
    """Say why a model does not take an input size, and which it takes.

    Args:
        model: The model, without data.
        size: Height and width.
        name: Name of the encoder.

    Returns:
        An error to raise; None where the size is not what is wrong.
    """
    own = own_size(model)
    if not _runs(model, own) or _runs(model, size):
        return None
    failed = f"{name} cannot run on an input of {_shown(size)}"
    if (refusal := _refusal(model, size, name)) is not None:
        return refusal
    if near := _nearest(partial(_runs, model), size, own):
        return EncoderError(f"{failed}; {_listed(near, 'takes')}")
    source = _config(model).get("architecture") or ""
    failed = f"{name} was built for an input of {_shown(own)} and cannot run on {_shown(size)}"
    if timm.is_model(source) and _can_be_built(source, size):
        return EncoderError(f"{failed}; make it for that size with {_ways(source, str(size))}")
    if timm.is_model(source) and (near := _nearest(partial(_can_be_built, source), size, own)):
        return EncoderError(f"{failed}; {_listed(near, 'can be made for')}: {_ways(source, '(height, width)')}")
    return EncoderError(f"{failed}; its size cannot be changed, so leave size= out and give tensors of its own size")


def own_size(model: nn.Module) -> Size:
    """Return the height and width that a timm model is run at unless told otherwise."""
    height, width = built_size(model) or (_config(model).get("input_size") or (3, 224, 224))[-2:]
    return height, width


def _refusal(model: nn.Module, size: Size, name: str) -> EncoderError | None:
    """What is said of a size before the model runs; None where that is nothing of use."""
    try:
        with HookManager(model) as hooks:
            accept(model, size, hooks, "bicubic_antialias", name)
    except EncoderError as error:
        return error
    except Exception:  # what a model raises is not one kind
        return None
    return None


def _ways(source: str, shown: str) -> str:
    return f"timm.create_model('{source}', img_size={shown}) or wrap('timm:{source}', size={shown})"


def _config(model: nn.Module) -> dict[str, Any]:
    return getattr(model, "pretrained_cfg", None) or {}


def _runs(model: nn.Module, size: Size) -> bool:
    """Whether a model without data runs on an input of some size."""
    first = next(model.parameters())
    images = torch.empty(1, 3, *size, dtype=first.dtype, device=first.device)
    try:
        with torch.no_grad(), HookManager(model) as hooks:
            accept(model, size, hooks, "bicubic_antialias", "")
            model(images)
    except Exception:  # what a model raises is not one kind
        return False
    return True


def _can_be_built(source: str, size: Size, **options: Any) -> bool:
    try:
        model = _without_data(source, img_size=size, **options)
    except Exception:  # not all take a size, and some only squares
        return False
    # Some leave out the last rows and columns of an input that is no multiple of their first step.
    step = cast("Any", model).feature_info[0]["reduction"]
    return not any(length % step for length in size) and _runs(model, size)


def _without_data(source: str, **options: Any) -> nn.Module:
    with torch.device("meta"):
        return timm.create_model(source, pretrained=False, **options).eval()


def _nearest(takes: Callable[[Size], bool], size: Size, own: Size) -> list[Size]:
    """Find the sizes nearest to one that does not work: multiples of a step that divides the model's own size.

    Returns:
        At most two, the smaller first; none where only the model's own size works.
    """
    if not takes((2 * own[0], 2 * own[1])):
        return []
    whole, single = math.gcd(*own), []
    # Where no rectangle works, a square may.
    for small, large in ((size, size), ((min(size),) * 2, (max(size),) * 2)):
        for step in (step for step in range(2, whole + 1) if whole % step == 0):
            lower = small[0] // step * step, small[1] // step * step
            upper = -(-large[0] // step) * step, -(-large[1] // step) * step
            if not takes(upper):
                continue
            if min(lower) and takes(lower):
                return [lower, upper]
            single = single or [upper]
    return single


def _listed(sizes: list[Size], what: str) -> str:
    if len(sizes) == 1:
        return f"it {what} {_shown(sizes[0])}"
    return f"the nearest sizes that it {what} are {' and '.join(map(_shown, sizes))}"


def _shown(size: Size) -> str:
    return f"{size[0]} x {size[1]}"
