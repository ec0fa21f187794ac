"""The encoder of open_clip models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import open_clip
from torch import Tensor, nn

from explainer.companion import TextCompanion
from explainer.embedding import JointEmbedding
from explainer.encoder import EncoderError, image_size
from explainer.hooks import HookManager
from explainer.positions import Interpolation
from explainer.preprocess import Fit, Preprocess
from explainer.target import TargetError
from explainer_plugins.open_clip.load import Loaded, Tokenizer, load
from explainer_plugins.open_clip.towers import describe, resize
from explainer_plugins.timm.encoder import built_size
from explainer_plugins.timm.load import check_given

if TYPE_CHECKING:
    from explainer_plugins.open_clip import OpenClip


class OpenClipEncoder(JointEmbedding):
    """The picture tower of a CLIP, with its text tower as companion."""

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the picture tower: [B, 3, H, W] to embeddings [B, D], of whatever length the model gives them."""
        clip = cast("Any", model)
        resize(clip.visual, image_size(images), hooks, positions, self.name)
        return clip.encode_image(images)


def build(config: OpenClip) -> OpenClipEncoder:
    """Make the encoder that a configuration describes.

    Args:
        config: The model, and how it is loaded.

    Returns:
        The encoder.

    Raises:
        EncoderError: The model cannot be loaded, or is no CLIP.
    """
    if config.tokenizer is not None and not callable(config.tokenizer):
        raise EncoderError(
            f"a tokenizer is a function from a list of texts to tokens, such as open_clip.get_tokenizer('ViT-B-16'); "
            f"got {config.tokenizer!r}"
        )
    if isinstance(config.model, str):
        loaded = load(config, config.model)
        name = f"open_clip:{config.model}"
    else:
        check_given(config, ("pretrained", "device"))
        loaded = Loaded(cast("nn.Module", config.model), config.tokenizer, "as given", ())
        name = f"open_clip:{type(config.model).__name__}"
    clip = cast("Any", loaded.model)
    if not callable(getattr(clip, "encode_image", None)) or not isinstance(getattr(clip, "visual", None), nn.Module):
        raise EncoderError(
            f"this {type(clip).__name__} is no whole CLIP: it has no encode_image and visual; wrap the model that "
            "open_clip.create_model returns, not a part of it"
        )
    preprocess = preprocess_of(clip.visual, config.size)
    tower = describe(clip.visual, preprocess.size, name)
    return OpenClipEncoder(
        name,
        loaded.model,
        preprocess,
        weights=loaded.weights,
        warnings=loaded.warnings,
        readout=tower.readout,
        class_token_pooled=tower.class_token_pooled,
        layer=f"visual.{tower.layer}" if tower.layer else None,
        companion=_companion(clip, loaded.tokenizer),
        scale=clip.logit_scale,
        bias=getattr(clip, "logit_bias", None),
    )


def _check_lengths(texts: Sequence[str], length: int, tokenizer: Any) -> None:
    """Refuse texts of which the tokenizer cuts off the end, which it does without a word."""
    for text in texts:
        if len(text) + 2 <= length:
            continue  # no token is shorter than a character
        try:
            longer: Tensor = tokenizer([text], context_length=2 * length)
        except TypeError:
            return  # a tokenizer of the user's own, of one length
        if bool((longer[0, length:] != longer[0, -1]).any()):
            raise TargetError(f"the model reads {length} tokens, and the prompt '{text[:60]}...' has more; shorten it")


def preprocess_of(visual: nn.Module, size: tuple[int, int] | None) -> Preprocess:
    """Read a tower's own preprocessing.

    Args:
        visual: A picture tower of open_clip.
        size: Height and width wanted instead of the tower's own.
    """
    tower = cast("Any", visual)
    own: dict[str, Any] = getattr(tower, "preprocess_cfg", None) or {}
    # Some configurations name another size than the trunk that they build was made for.
    built = built_size(cast("nn.Module", tower.trunk)) if hasattr(tower, "trunk") else None
    edge = size or built or own.get("size", tower.image_size)
    height, width = (edge, edge) if isinstance(edge, int) else tuple(edge)[-2:]
    fits: dict[str, Fit] = {"shortest": "crop", "squash": "squash", "longest": "pad"}
    fit = fits[own.get("resize_mode", "shortest")]
    fill = own.get("fill_color", 0)
    # As open_clip does: "random" means bicubic here, and so does any filter where the shorter edge is fitted to
    # an input that is not square.
    bilinear = own.get("interpolation") == "bilinear" and not (fit == "crop" and height != width)
    return Preprocess(
        size=(height, width),
        mean=tuple(own.get("mean", open_clip.OPENAI_DATASET_MEAN)),
        std=tuple(own.get("std", open_clip.OPENAI_DATASET_STD)),
        interpolation="bilinear" if bilinear else "bicubic",
        fit=fit,
        fill=(fill,) * 3 if isinstance(fill, int) else tuple(fill),
    )


def _companion(clip: Any, tokenizer: Tokenizer | None) -> TextCompanion | None:
    if tokenizer is None or not callable(getattr(clip, "encode_text", None)):
        return None

    def encode(texts: list[str]) -> Tensor:
        tokens: Tensor = tokenizer(texts)
        _check_lengths(texts, tokens.shape[1], tokenizer)
        return clip.encode_text(tokens.to(next(clip.parameters()).device))

    return TextCompanion(
        clip,
        encode,
        {
            "plain": lambda: ("{}",),
            "photo": lambda: ("a photo of a {}.",),
            "openai": lambda: tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES),
        },
    )
