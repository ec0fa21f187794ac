"""The encoder of plain torch classifiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from explainer.classifier import Classifier
from explainer.encoder import EncoderError, observe
from explainer.geometry import Choice, Geometry
from explainer.hooks import HookManager, LayerError, Tap
from explainer.layout import Grid
from explainer.positions import Interpolation
from explainer.preprocess import Preprocess
from explainer.probe import Probe, entrance
from explainer.readout import Readout, agree
from explainer.session import session

if TYPE_CHECKING:
    from explainer_plugins.torch import Torch


class TorchEncoder(Classifier):
    """A torch module that gives class logits."""

    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the classifier: [B, 3, H, W] to logits [B, K]."""
        return logits_of(model(images))


def build(config: Torch) -> TorchEncoder:
    """Make the encoder of a module.

    Args:
        config: The module, and what its own attributes do not tell.

    Returns:
        The encoder.

    Raises:
        EncoderError: No module was given, it cannot run on the given size, or its output is not [B, K].
        LayerError: The given layer does not lie on the picture.
    """
    if not isinstance(config.model, nn.Module):
        raise EncoderError(
            f"the torch encoder takes a module, not the name '{config.model}'; load the model in Python and use "
            "explainer.wrap(model), or name a timm model: 'timm:resnet50'"
        )
    if config.layout is not None and config.layer is None:
        raise EncoderError(
            f"layout='{config.layout}' says how the output of a layer is laid out; name the layer too: layer=..."
        )
    model = config.model
    name = f"torch:{type(model).__name__}"
    seen = observe(name, model, lambda m, images, _hooks: logits_of(m(images)), config.size)
    if len(seen.output) != 2:
        raise EncoderError(
            f"{name} gives an output of shape {list(seen.output)}; a classifier gives class logits [B, K]"
        )
    last = Geometry(seen, class_token_pooled=False, layer=config.layer, layout=config.layout).last
    reading = Reading(class_token=False, readout=None) if last is None else read_head(model, last, seen)
    return TorchEncoder(
        name,
        model,
        Preprocess(config.size, config.mean, config.std, "bilinear"),
        weights="as given",
        readout=reading.readout,
        class_token_pooled=reading.class_token,
        layer=config.layer,
        layout=config.layout,
        classes=config.classes,
        count=seen.output[1],
    )


def logits_of(output: Any) -> Tensor:
    """Find the logits in what a model returns.

    Args:
        output: A tensor; an object with ``logits``; a mapping with "logits"; a sequence that begins with them.

    Raises:
        EncoderError: There is no tensor.
    """
    if isinstance(output, Tensor):
        return output
    for candidate in (getattr(output, "logits", None), _first(output)):
        if isinstance(candidate, Tensor):
            return candidate
    raise EncoderError(
        f"the model returns a {type(output).__name__} in which no logits were found; wrap a module whose forward "
        "returns class logits [B, K]"
    )


def _first(output: Any) -> Any:
    if isinstance(output, Mapping):
        mapping = cast("Mapping[str, Any]", output)
        return mapping.get("logits", mapping.get("out"))
    if isinstance(output, Sequence) and output:
        return cast("Sequence[Any]", output)[0]
    return None


@dataclass(frozen=True)
class Reading:
    """How a model reads its last map.

    Attributes:
        class_token: Whether it only reads tokens that have no place on the picture.
        readout: What a cell means; None where the way to the logits is more than pooling and a linear layer.
    """

    class_token: bool
    readout: Readout | None


def read_head(model: nn.Module, last: Choice, seen: Probe) -> Reading:
    """Find out how a model reads its last map, by running it once on noise, and backwards where it has a class token.

    Args:
        model: Gives class logits.
        last: Its last map.
        seen: What is known of it.
    """
    noise = torch.Generator().manual_seed(0)
    images = torch.randn(1, 3, *seen.size, generator=noise, device="cpu").to(entrance(model))
    with session(model) as hooks:
        tap = hooks.tap(last.layer, differentiable=True)
        logits = logits_of(model(images))
        # The sum of all logits can have no gradient (where they are log-probabilities); a random one has.
        weights = torch.randn(logits.shape, generator=noise, device="cpu").to(logits)
        class_token = only_prefix_reaches((logits * weights).sum(dim=1, keepdim=True), tap, last.grid)
        cells = tap.value[:, :1] if class_token else last.grid.to_columns(tap.value)
        head = _last_linear(model, last.channels, seen.output[1])
        with torch.no_grad():
            linear = head is not None and agree(head(cells.mean(dim=1)), logits)
    if head is None or not linear:
        return Reading(class_token, None)
    return Reading(
        class_token, Readout(lambda columns: columns, lambda directions: directions.float() @ head.weight.float())
    )


def only_prefix_reaches(score: Tensor, tap: Tap, grid: Grid) -> bool:
    """Whether a score has a gradient at tokens that have no place on the picture, and at no others."""
    if not grid.prefix or score.is_meta:
        return False
    try:
        slope = tap.gradients(score)[0]
    except LayerError:  # the model cuts its own graph: nothing can be told
        return False
    return not grid.to_map(slope).any() and bool(slope[:, : grid.prefix].any())


def _last_linear(model: nn.Module, width: int, count: int) -> nn.Linear | None:
    linear = [m for m in model.modules() if isinstance(m, nn.Linear) and m.out_features == count]
    return linear[-1] if linear and linear[-1].in_features == width else None
