"""What stands in the way of a model that cannot be run on pictures, or not be differentiated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn


def way_out(model: nn.Module, error: Exception) -> str:
    """Say what to do about a model that cannot run on pictures.

    Args:
        model: Any module that failed on images [B, 3, H, W].
        error: What it raised.

    Returns:
        The end of a sentence.
    """
    if len(needed := _needed(model.forward)) > 1:
        return (
            f"its forward takes more than the pictures ({', '.join(needed[1:])}); wrap a module of your own whose "
            "forward(images) adds the rest"
        )
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    first = next((module for module in model.modules() if isinstance(module, kinds)), None)
    # A stem that folds pixels into channels has another number of them, and nothing is wrong with it.
    flat = isinstance(first, nn.Conv2d) and f"to have {first.in_channels} channels" not in str(error)
    if first is not None and not flat:
        return (
            f"its first convolution is a {type(first).__name__} of {first.in_channels} channels, and pictures are "
            "[B, 3, height, width]; wrap a module of your own whose forward(images) makes its input of them"
        )
    return "say what it was made for with wrap(model, size=(height, width)), and give tensors of that size"


def _needed(forward: Callable[..., Any]) -> list[str]:
    """Names of the arguments that a function cannot be called without."""
    try:
        parameters = inspect.signature(forward).parameters.values()
    except (TypeError, ValueError):  # written in C, or compiled
        return []
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in several]


def is_quantised(module: nn.Module) -> bool:
    """Whether a module computes in integers, through which no gradient passes.

    Args:
        module: One module; its children aside.
    """
    home = type(module).__module__
    return home.startswith("torch.ao.nn.") and ".quantized" in home
