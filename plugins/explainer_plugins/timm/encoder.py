"""The encoder of timm models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from timm.data.config import resolve_data_config
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from torch import Tensor, nn

from explainer.classifier import Classifier
from explainer.embedder import Embedder
from explainer.encoder import Encoder, EncoderError, image_size
from explainer.geometry import Geometry
from explainer.hooks import HookManager
from explainer.positions import Interpolation
from explainer.preprocess import Fit, Preprocess
from explainer_plugins.timm.embedder import Output, embedding_readout, output_of, single
from explainer_plugins.timm.families import family_of
from explainer_plugins.timm.load import Loaded, check_given, load
from explainer_plugins.timm.readout import head_readout
from explainer_plugins.timm.resize import accept, built_size
from explainer_plugins.timm.sizes import explained, own_size
from explainer_plugins.torch.encoder import logits_of

if TYPE_CHECKING:
    from explainer_plugins.timm import Timm


class TimmTower(Encoder):
    """A timm model, with classes or without."""

    @property
    def only_last_cells(self) -> bool:
        """As for :class:`Encoder`, by the family of the model."""
        return family_of(self.model).only_last_cells

    def geometry(self, size: tuple[int, int]) -> Geometry:
        """As for :class:`Encoder`, at the model's own size where it scales every picture to that."""
        return super().geometry(own_size(self.model) if family_of(self.model).scales else size)

    def run(self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation) -> object:
        """Run the model, whatever it gives; as :meth:`Encoder.call` otherwise."""
        with explained(model, image_size(images), hooks, self.name):
            accept(model, image_size(images), hooks, positions, self.name)
            return model(images)

    def watched(self, model: nn.Module, images: Tensor, hooks: HookManager) -> Tensor:
        """Run what comes before the head, whose own convolutions would pass for the last map."""
        if not hasattr(model, "forward_features"):
            return self.call(model, images, hooks)
        return features_of(model, images, hooks, self.name)


class TimmEncoder(TimmTower, Classifier):
    """A timm classifier."""

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the classifier: [B, 3, H, W] to logits [B, K]."""
        return logits_of(self.run(model, images, hooks, positions))


class TimmEmbedder(TimmTower, Embedder):
    """A timm model without a classifier."""

    @cached_property
    def output(self) -> Output:
        """What the model gives."""

        def forward(model: nn.Module, images: Tensor, hooks: HookManager) -> Tensor:
            return single(self.run(model, images, hooks, "bicubic_antialias"), self.name)

        return output_of(self.name, self.model, forward, self.preprocess.size)

    @property
    def width(self) -> int:
        """D, the width of the embedding."""
        return self.output.width

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the model: [B, 3, H, W] to embeddings [B, D], averaged over the cells where it does not pool."""
        return self.output.pooled(single(self.run(model, images, hooks, positions), self.name))


def build(config: Timm) -> TimmEncoder | TimmEmbedder:
    """Make the encoder that a configuration describes.

    Args:
        config: The model, and how it is loaded.

    Returns:
        The encoder.

    Raises:
        EncoderError: There is no such architecture, its weights cannot be had, or it gives neither class logits
            nor an embedding.
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
    options: dict[str, Any] = {
        "weights": loaded.weights,
        "warnings": loaded.warnings,
        "class_token_pooled": pools_class_token(model),
    }
    preprocess = preprocess_of(model, config.size)
    count = _class_count(model, name)
    if not count:
        _check_no_classes(config, name)
        return _described(TimmEmbedder(name, model, preprocess, **options))
    classes = config.classes or class_names(model)
    encoder = TimmEncoder(name, model, preprocess, classes=classes, count=count, **options)
    encoder.readout = head_readout(model, encoder.geometry(preprocess.size))
    return encoder


def _described(encoder: TimmEmbedder) -> TimmEmbedder:
    grid = encoder.output.grid
    if grid is not None:
        encoder.warnings += (
            f"{encoder.name} gives a map of {grid.height} x {grid.width} cells and no single embedding, so what is "
            "explained is the average over its cells",
        )
    encoder.readout = embedding_readout(encoder.model, encoder.geometry(encoder.preprocess.size), encoder.output)
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
    with explained(model, image_size(images), hooks, name):
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
    count: int | None = getattr(model, "num_classes", None)
    if count is None:
        raise EncoderError(
            f"{name} does not say how many classes it has (num_classes), as whole timm models do; wrap a model made "
            "without features_only=True, or take a module of another kind with encoder='torch'"
        )
    return count


def _check_no_classes(config: Timm, name: str) -> None:
    for setting in ("classes", "num_classes"):
        if getattr(config, setting):
            raise EncoderError(
                f"{name} has no classifier, so the setting '{setting}' means nothing to it; leave it out to explain "
                "the embedding"
            )
