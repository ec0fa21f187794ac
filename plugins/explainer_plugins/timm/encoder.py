"""The encoder of timm models."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import timm
from timm.data.config import resolve_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from torch import Tensor, nn

from explainer.classifier import Classifier
from explainer.encoder import EncoderError, image_size
from explainer.hooks import HookManager
from explainer.positions import Interpolation
from explainer.preprocess import Fit, Preprocess
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
        model, weights, warnings = _load(config, config.model)
        name = f"timm:{config.model}"
    else:
        model = cast("nn.Module", config.model)
        cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
        name = f"timm:{cfg.get('architecture') or type(model).__name__}"
        weights, warnings = "as given", ()
    encoder = TimmEncoder(
        name,
        model,
        preprocess_of(model, config.size),
        weights=weights,
        warnings=warnings,
        class_token_pooled=pools_class_token(model),
        classes=config.classes or imagenet_names(model),
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
    # A model built for another size than its published weights says so where it cuts out its patches.
    cutters = (getattr(model, part, None) for part in ("patch_embed", "stem"))
    built = next((c.img_size for c in cutters if getattr(c, "img_size", None)), None)
    height, width = size or built or data["input_size"][-2:]
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


def imagenet_names(model: nn.Module) -> Sequence[str] | None:
    """Return the class names of a model trained on a subset of ImageNet, or None."""
    cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    subset = infer_imagenet_subset(cfg)
    if subset is None:
        return None
    info = ImageNetInfo(subset)
    if info.num_classes() != getattr(model, "num_classes", None):
        return None
    return [info.index_to_description(index) for index in range(info.num_classes())]


def pools_class_token(model: nn.Module) -> bool:
    """Whether the head reads only the class token."""
    return getattr(model, "global_pool", None) == "token"


def _load(config: Timm, source: str) -> tuple[nn.Module, str, tuple[str, ...]]:
    options: dict[str, Any] = {} if config.num_classes is None else {"num_classes": config.num_classes}
    if config.checkpoint is not None and not Path(config.checkpoint).is_file():
        raise EncoderError(f"there is no checkpoint at '{config.checkpoint}'; give the path of a file")
    published = config.pretrained and config.checkpoint is None
    try:
        model = timm.create_model(source, pretrained=published, checkpoint_path=config.checkpoint or "", **options)
    except RuntimeError as error:
        raise EncoderError(_unloadable(source, error, config)) from error
    except Exception as error:  # what a hub client raises is not one kind
        raise EncoderError(
            f"the weights of timm model '{source}' could not be loaded: {error}; load a local file with "
            "checkpoint=..., or use pretrained=False to see the model with random weights"
        ) from error
    model = model.to(config.device).eval()
    if config.checkpoint is not None:
        return model, config.checkpoint, ()
    cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    if published and (cfg.get("tag") or source.startswith(("hf-hub:", "hf_hub:", "local-dir:"))):
        return model, cfg.get("tag") or source, ()
    warning = f"the weights of timm:{source} are random: no published weights were loaded, so its maps mean nothing"
    return model, "random", (warning,)


def _unloadable(source: str, error: RuntimeError, config: Timm) -> str:
    name = source.split(".")[0]
    if ":" in source or timm.is_model(name):
        if config.checkpoint is not None:
            return f"the checkpoint '{config.checkpoint}' does not fit timm model '{source}': {error}"
        return (
            f"the weights of timm model '{source}' could not be loaded: {error}; load a local file with "
            "checkpoint=..., or use pretrained=False to see the model with random weights"
        )
    near = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    return f"timm has no model named '{name}'{hint} (timm.list_models('*{name[:6]}*') searches)"


def _class_count(model: nn.Module, name: str) -> int:
    count = getattr(model, "num_classes", 0)
    if not count:
        raise EncoderError(
            f"{name} has no classifier (num_classes=0), so it has no logits to explain; make it with a head, or "
            "load a checkpoint that has one"
        )
    return int(count)
