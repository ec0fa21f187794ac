"""Letting a transformers model take an input of another size, for one run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor, nn

from explainer.encoder import EncoderError, image_size
from explainer.positions import Interpolation
from explainer_plugins.timm.resize import check_multiple
from explainer_plugins.transformers.kinds import built_size, patch_size

_KEYWORD = "interpolate_pos_encoding"


def keywords(
    model: nn.Module,
    function: Callable[..., Any],
    images: Tensor,
    positions: Interpolation,
    name: str,
) -> dict[str, Any]:
    """Say what a model must be told beside the pictures.

    Args:
        model: The model.
        function: The function of the model that is about to be called.
        images: [B, 3, H, W].
        positions: How learned position embeddings are brought to another size; the default is the model's own way.
        name: Name of the encoder, for messages.

    Returns:
        Keywords for `function`.

    Raises:
        EncoderError: The size is no multiple of the patch size, or the interpolation cannot be chosen.
    """
    kinds = {type(module) for module in model.modules()}
    size = image_size(images)
    # Without positions to interpolate, a model takes any size, or says itself that it does not.
    if built_size(model) in (None, size) or not any(hasattr(kind, _KEYWORD) for kind in kinds):
        return {}
    patch = patch_size(model)
    if patch is not None:
        check_multiple(size, patch, name)
    if positions != "bicubic_antialias":
        raise EncoderError(
            f"{name} interpolates its positions itself; it can only be run at another size with "
            "pos_interp='bicubic_antialias', which stands for the model's own way"
        )
    takes = inspect.signature(function).parameters.values()
    passes_on = any(parameter.name == _KEYWORD or parameter.kind is parameter.VAR_KEYWORD for parameter in takes)
    # Some always interpolate, and know no such keyword.
    return {_KEYWORD: True} if passes_on and any(map(_takes_keyword, kinds)) else {}


@cache
def _takes_keyword(kind: type[nn.Module]) -> bool:
    return _KEYWORD in inspect.signature(kind.forward).parameters
