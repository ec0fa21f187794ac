"""The encoder of timm models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from timm.data.config import resolve_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from torch import Tensor, nn

from explainer.classifier import Classifier
from explainer.encoder import EncoderError, image_size
from explainer.hooks import HookManager
from explainer.positions import Interpolation
from explainer.preprocess import Fit, Preprocess
from explainer_plugins.timm.load import Loaded, check_given, load
from explainer_plugins.timm.readout import head_readout
from explainer_plugins.timm.resize import accept

if TYPE_CHECKING:
    from explainer_plugins.timm import Timm


class TimmEncoder(Classifier):
    """A timm classifier."""

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the classifier: [B, 3, H, W] to logits [B, K]."""
        accept(model, image_size(images), hooks, positions, self.name)
        return model(images)

    def watched(self, model: nn.Module, images: Tensor, hooks: HookManager) -> Tensor:
        """Run what comes before the head, whose own convolutions would pass for the last map."""
        if not hasattr(model, "forward_features"):
            return self.call(model, images, hooks)
        return features_of(model, images, hooks, self.name)


def build(config: Timm) -> TimmEncoder:
    """Make the encoder that a configuration describes.

    Args:
        config: The model, and how it is loaded.

    Returns:
        The encoder.

    Raises:
        EncoderError: There is no such architecture, its weights cannot be had, or it is no classifier.
    """
    if isinstance(config.model, str):
        loaded = load(config, config.model)
        name = f"timm:{config.model}"
    else:
        check_given(config, ("pretrained", "checkpoint", "num_classes", "device"))
        loaded = Loaded(cast("nn.Module", config.model), "as given")
        cfg: dict[str, Any] = getattr(config.model, "pretrained_cfg", None) or {}
        name = f"timm:{cfg.get('architecture') or type(config.model).__name__}"
    model = loaded.model
    encoder = TimmEncoder(
        name,
        model,
        preprocess_of(model, config.size),
        weights=loaded.weights,
        warnings=loaded.warnings,
        class_token_pooled=pools_class_token(model),
        classes=config.classes or class_names(model),
        count=_class_count(model, name),
    )
    encoder.readout = head_readout(model, encoder.geometry(encoder.preprocess.size))
    return encoder


def features_of(model: nn.Module, images: Tensor, hooks: HookManager, name: str) -> Tensor:
    """Run a timm model up to its head.

    Args:
        model: The model.
        images: [B, 3, H, W].
        hooks: Manager of a model that `model` is, or is part of.
        name: Name of the encoder, for messages.

    Returns:
        What the head takes; a tensor without elements where that is not one tensor.
    """
    accept(model, image_size(images), hooks, "bicubic_antialias", name)
    features: object = cast("Any", model).forward_features(images)
    return features if isinstance(features, Tensor) else images.new_zeros(0)


def preprocess_of(model: nn.Module, size: tuple[int, int] | None) -> Preprocess:
    """Read a timm model's own preprocessing.

    Args:
        model: Any timm model.
        size: Height and width wanted instead of the model's own.
    """
    data = resolve_data_config({}, model=model)
    height, width = size or built_size(model) or data["input_size"][-2:]
    share = data["crop_pct"]
    fits: dict[str, Fit] = {"center": "crop", "squash": "squash", "border": "pad"}
    return Preprocess(
        size=(height, width),
        mean=tuple(data["mean"]),
        std=tuple(data["std"]),
        interpolation="bicubic" if data["interpolation"] == "random" else data["interpolation"],
        scaled=(math.floor(height / share), math.floor(width / share)),
        fit=fits[data["crop_mode"]],
        fill=tuple(round(255 * value) for value in data["mean"]),
    )


def built_size(model: nn.Module) -> tuple[int, int] | None:
    """Return the height and width that a model was built for, where it cuts out its patches; None elsewhere.

    They differ from those of the published configuration where the model was built for another size.
    """
    sizes = (getattr(getattr(model, part, None), "img_size", None) for part in ("patch_embed", "stem"))
    return next((tuple(size) for size in sizes if size), None)


def class_names(model: nn.Module) -> Sequence[str] | None:
    """Return the class names of a model trained on a subset of ImageNet, or those that it carries itself.

    Args:
        model: A timm model.

    Returns:
        One name for each class, or None where they are not known.
    """
    cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    subset = infer_imagenet_subset(cfg)
    if subset is not None:
        info = ImageNetInfo(subset)
        names = [info.index_to_description(index) or f"class {index}" for index in range(info.num_classes())]
    else:
        described: dict[str, str] = cfg.get("label_descriptions") or {}
        labels: list[str] = list(cfg.get("label_names") or ())
        names = [described.get(label, label) for label in labels]
    return names if names and len(names) == getattr(model, "num_classes", None) else None


def pools_class_token(model: nn.Module) -> bool:
    """Whether the head reads only the class token."""
    return getattr(model, "global_pool", None) == "token"


def _class_count(model: nn.Module, name: str) -> int:
    count = getattr(model, "num_classes", 0)
    if not count:
        raise EncoderError(
            f"{name} has no classifier (num_classes=0), so it has no logits to explain; make it with a head, or "
            "load a checkpoint that has one"
        )
    return int(count)
