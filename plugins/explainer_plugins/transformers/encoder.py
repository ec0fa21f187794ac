"""The encoders of transformers models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from explainer.classifier import Classifier
from explainer.embedding import JointEmbedding
from explainer.encoder import Encoder, EncoderError, observe
from explainer.geometry import Geometry
from explainer.hooks import HookManager
from explainer.positions import Interpolation
from explainer.preprocess import Preprocess
from explainer.probe import Forward
from explainer_plugins.timm.load import check_given
from explainer_plugins.torch.encoder import Reading, logits_of
from explainer_plugins.transformers.kinds import built_size, is_pair
from explainer_plugins.transformers.load import Loaded, load, take
from explainer_plugins.transformers.preprocess import Unprepared, default_processor, preprocess_of
from explainer_plugins.transformers.reading import read_last_map
from explainer_plugins.transformers.sizes import keywords
from explainer_plugins.transformers.text import companion, embedding_of

if TYPE_CHECKING:
    from explainer_plugins.transformers import Transformers

_SEEN = ("sdpa", "eager")
"""Attention implementations that end in functions which can be intercepted."""


class TransformersClassifier(Classifier):
    """An image classifier of transformers."""

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the classifier: [B, 3, H, W] to logits [B, K]."""
        return _logits(model, images, positions, self.name)


class TransformersPair(JointEmbedding):
    """The picture tower of a CLIP or SigLIP of transformers, with its text tower as companion."""

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the picture tower: [B, 3, H, W] to embeddings [B, D], of whatever length the model gives them."""
        return _embedding(model, images, positions, self.name)


def build(config: Transformers) -> Encoder:
    """Make the encoder that a configuration describes.

    Args:
        config: The model, and how it is loaded.

    Returns:
        The encoder: of class logits, or of an embedding shared with texts.

    Raises:
        EncoderError: The model cannot be loaded, takes no pictures, or gives neither of the two.
    """
    if isinstance(config.model, str):
        loaded = load(config, config.model)
        name = f"transformers:{config.model}"
    else:
        check_given(config, ("device",))
        loaded = take(config)
        name = f"transformers:{type(config.model).__name__}"
    preprocess, doubts = _preprocess(loaded, config.size, name)
    make = _pair if is_pair(type(loaded.model)) else _classifier
    encoder = make(config, loaded, preprocess, name)
    encoder.warnings = (*loaded.warnings, *doubts, *_unseen_attention(encoder))
    return encoder


def _classifier(config: Transformers, loaded: Loaded, preprocess: Preprocess, name: str) -> Encoder:
    if config.tokenizer is not None:
        raise EncoderError(f"{name} is a classifier and reads no text, so it takes no tokenizer; leave it out")

    def forward(model: nn.Module, images: Tensor, _hooks: HookManager) -> Tensor:
        return _logits(model, images, "bicubic_antialias", name)

    reading, count = _read(loaded.model, forward, preprocess.size, name, classes=True)
    return TransformersClassifier(
        name,
        loaded.model,
        preprocess,
        weights=loaded.weights,
        readout=reading.readout,
        class_token_pooled=reading.class_token,
        classes=config.classes or class_names(loaded.model, count),
        count=count,
    )


def _pair(config: Transformers, loaded: Loaded, preprocess: Preprocess, name: str) -> Encoder:
    model = cast("Any", loaded.model)
    if config.classes is not None:
        raise EncoderError(f"{name} has no classes to be named by classes=...; ask with prompts")
    if not isinstance(getattr(model, "logit_scale", None), Tensor):
        raise EncoderError(
            f"{name} has no logit_scale, so it is not known how it compares pictures with prompts; give a CLIP or "
            "SigLIP"
        )

    def forward(model: nn.Module, images: Tensor, _hooks: HookManager) -> Tensor:
        return _embedding(model, images, "bicubic_antialias", name)

    reading, _ = _read(loaded.model, forward, preprocess.size, name, classes=False)
    return TransformersPair(
        name,
        loaded.model,
        preprocess,
        weights=loaded.weights,
        readout=reading.readout,
        class_token_pooled=reading.class_token,
        companion=None if loaded.tokenizer is None else companion(loaded.model, loaded.tokenizer),
        scale=model.logit_scale,
        bias=getattr(model, "logit_bias", None),
    )


def class_names(model: Any, count: int) -> Sequence[str] | None:
    """Read the class names of a configuration; None where it only numbers its classes.

    Args:
        model: A classifier of transformers.
        count: Number of its classes.
    """
    labels: dict[int, str] = model.config.id2label or {}
    names = [labels.get(index, f"LABEL_{index}") for index in range(count)]
    return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names


def _logits(model: nn.Module, images: Tensor, positions: Interpolation, name: str) -> Tensor:
    named = keywords(model, model.forward, images, positions, name)
    return logits_of(model(pixel_values=images, **named))


def _embedding(model: nn.Module, images: Tensor, positions: Interpolation, name: str) -> Tensor:
    run = cast("Any", model).get_image_features
    named = keywords(model, run, images, positions, name)
    return embedding_of(run(pixel_values=images, **named))


def _read(
    model: nn.Module, forward: Forward, size: tuple[int, int], name: str, *, classes: bool
) -> tuple[Reading, int]:
    """Find out how a model reads its last map, and how wide its output is."""
    seen = observe(name, model, forward, size)
    if len(seen.output) != 2:
        expected = "a classifier gives class logits [B, K]" if classes else "a CLIP gives embeddings [B, D]"
        raise EncoderError(f"{name} gives an output of shape {list(seen.output)}; {expected}")
    last = Geometry(seen, class_token_pooled=False).last
    if last is None:
        return Reading(class_token=False, readout=None), seen.output[1]
    return read_last_map(model, forward, last, seen, classes=classes), seen.output[1]


def _preprocess(loaded: Loaded, size: tuple[int, int] | None, name: str) -> tuple[Preprocess, list[str]]:
    """The preprocessing, and what must be known of it."""
    if loaded.images is not None:
        return preprocess_of(loaded.images, size, name), []
    own = size or built_size(loaded.model)
    asked = "give the model's own with processor=AutoImageProcessor.from_pretrained(...)"
    usual = default_processor(loaded.model)
    if usual is not None:
        preprocess = preprocess_of(usual, own, name)
        if not isinstance(preprocess, Unprepared):
            how = f"pictures are prepared as {type(usual).__name__} does by default"
            return preprocess, [f"{name} came without an image processor, so {how}; {asked}"]
    if own is None:
        raise EncoderError(f"{name} came without an image processor, and its configuration names no size; {asked}")
    return Unprepared(own, reason=f"{name} came without an image processor; {asked}, or give prepared tensors"), []


def _unseen_attention(encoder: Encoder) -> list[str]:
    """Warn where an attention implementation hides what methods would read."""
    configs = [getattr(module, "config", None) for module in encoder.model.modules()]
    used: set[str | None] = {getattr(config, "_attn_implementation", None) for config in configs}
    hidden = sorted(kind for kind in used if kind is not None and kind not in _SEEN)
    if not hidden or encoder.geometry(encoder.preprocess.size).blocks:
        return []
    return [
        f"the attention of {encoder.name} is computed by '{hidden[0]}', where it cannot be seen, so methods that "
        "need it do not fit; call model.set_attn_implementation('sdpa') before wrapping"
    ]
