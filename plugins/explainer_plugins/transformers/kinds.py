"""Which models of transformers can be explained, told by what their classes offer."""

from __future__ import annotations

import inspect
from typing import Any, cast

from explainer.encoder import EncoderError

_CLASSIFIER = "ForImageClassification"
_PLACELESS = ("num_output_groups", "num_latents")
"""What configurations of GroupViT and Perceiver count, whose number of tokens would pass for a small grid."""


def is_pair(kind: type) -> bool:
    """Whether a class has a tower for pictures and one for texts, as CLIP and SigLIP have."""
    return all(callable(getattr(kind, name, None)) for name in ("get_image_features", "get_text_features"))


def check_kind(kind: type, config: Any, name: str) -> None:
    """Refuse models that have no pictures to explain, nothing to explain about them, or no map of them.

    Args:
        kind: Class of the model.
        config: Its configuration.
        name: Name of the encoder, for messages.

    Raises:
        EncoderError: It takes no pictures, gives neither class logits nor an embedding shared with texts, or ends in
            tokens that lie nowhere on the picture.
    """
    if any(hasattr(picture_config(config), count) for count in _PLACELESS):
        raise EncoderError(
            f"{name} ends in groups or latents, which lie nowhere on the picture, so it has no map; give a model whose "
            "tokens are patches"
        )
    entrance = cast("Any", kind).get_image_features if is_pair(kind) else cast("Any", kind).forward
    taken = inspect.signature(entrance).parameters
    if "spatial_shapes" in taken:
        raise EncoderError(
            f"{name} takes patches that its processor cuts out of pictures of any shape, not pictures; use a model of "
            "its family that was trained at one size"
        )
    if is_pair(kind):
        return
    if "pixel_values" not in taken:
        raise EncoderError(
            f"{name} takes no pictures: the forward of {kind.__name__} has no pixel_values; give an image classifier "
            "of transformers, or a CLIP or SigLIP"
        )
    # What somebody else derived from a transformers class is judged by what it returns.
    if kind.__module__.startswith("transformers.") and _CLASSIFIER not in kind.__name__:
        raise EncoderError(
            f"{name} gives no class logits: {kind.__name__} has no head for classes; load it with one, "
            "AutoModelForImageClassification.from_pretrained(...), or for prompts the whole CLIP or SigLIP, "
            "AutoModel.from_pretrained(...)"
        )


def picture_config(config: Any) -> Any:
    """The part of a configuration that describes the picture tower."""
    parts = (getattr(config, part, None) for part in ("vision_config", "image_config"))
    return next((part for part in parts if part is not None), config)


def built_size(model: Any) -> tuple[int, int] | None:
    """Height and width that a model was built for; None where its configuration names none."""
    return _sides(getattr(picture_config(model.config), "image_size", None))


def patch_size(model: Any) -> tuple[int, int] | None:
    """Height and width of the steps in which a model cuts its input into patches; None where it names none."""
    config = picture_config(model.config)
    # Patches that overlap have a stride of their own.
    return _sides(getattr(config, "patch_stride", None) or getattr(config, "patch_size", None))


def _sides(given: Any) -> tuple[int, int] | None:
    if isinstance(given, int):
        return given, given
    if isinstance(given, (list, tuple)) and len(cast("list[int]", given)) == 2:
        height, width = cast("list[int]", given)
        return height, width
    return None
