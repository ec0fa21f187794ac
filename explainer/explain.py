"""The front door: wrap a model, then ask it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import torch
from torch import Tensor, nn

from explainer.encoder import Encoder, EncoderError, image_size
from explainer.explanation import Explanation
from explainer.hooks import HookManager
from explainer.inspection import Inspection, MethodFit, default_method, fits, inspect, misfit, suited
from explainer.pictures import Batch, read
from explainer.proof import Proof, prove
from explainer.provenance import Provenance
from explainer.score import Score
from explainer.selection import ConfigError, select, with_defaults
from explainer.session import check, weights_of
from explainer.target import Targets, parse
from explainer_registry import ExplainerError, MethodSpec, Schema, Selected, registry
from explainer_registry.errors import shown

MethodFunction = Callable[[Schema, Encoder, Tensor, Targets], Tensor]
"""A method: (config, encoder, images [B, 3, H, W], targets) to maps [B, T, h, w]."""

DISTRIBUTIONS = ("vision-explainer", "torch", "timm", "open_clip_torch", "transformers")


APPROXIMATE = (
    "cells are read approximately: between its last map and its output this model does more than average cells and "
    "weigh them, so a cell's value is what the model would say if the whole picture looked like that cell"
)
"""What is said of a result that rests on a readout that is not exact."""

_OF_A_LAYER = {"features", "readout", "attention", "stream"}
"""Methods that need one of these read a layer; others look at what goes in and what comes out."""


class MethodError(ExplainerError):
    """A method that does not fit the model, or that gave something else than maps."""


@dataclass(frozen=True)
class Request:
    """What plugins are told before an explanation is made.

    Attributes:
        encoder: The wrapped model.
        images: [B, 3, H, W], preprocessed.
        targets: What is asked.
        method: Name and settings of the method.
    """

    encoder: Encoder
    images: Tensor
    targets: Targets
    method: Selected


class Explainer:
    """A wrapped model that can be asked why it said something, and where in the picture.

    Made by :func:`wrap`.

    Attributes:
        encoder: What is known of the model.
    """

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder

    def __repr__(self) -> str:
        height, width = self.encoder.preprocess.size
        return f"<Explainer of {self.encoder.name}, weights: {self.encoder.weights}, input {height} x {width}>"

    def __call__(
        self,
        pictures: Any,
        targets: Any = None,
        *,
        method: str | Mapping[str, Any] | Schema | Selected | None = None,
        score: str | Selected | Score = "logit",
        templates: str | Sequence[str] | None = None,
        **options: Any,
    ) -> Explanation:
        """Explain what the model says of some pictures.

        Args:
            pictures: A path, a PIL picture, a uint8 array [H, W, 3], or a sequence of these; a tensor
                [B, 3, H, W] or [3, H, W] is taken as preprocessed.
            targets: None for the top class of each picture, or for its embedding where the model has no classes;
                one target; or a sequence of them, asked of every picture. A target is the index of a class or
                channel, a class name, a prompt, a sequence of prompts that are averaged, or a direction tensor.
            method: Name of a method, a mapping with "name" and settings, or its settings; the best that fits
                by default.
            score: What is explained: "logit", "prob", "log_prob", another score by name, or a function of an
                :class:`explainer.score.Answer`.
            templates: For models that read text: "plain" (the prompt as it is, the default), "photo", "openai"
                (80 templates), a template with ``{}``, or several.
            **options: Settings of the method, such as ``layer="layer4"``.

        Returns:
            The maps [B, T, h, w] and every way to look at them.

        Raises:
            ExplainerError: A picture, target, method, setting or score is wrong; the message says how.
        """
        # Nothing made here may be an inference tensor: it would be shut out of gradients.
        with torch.inference_mode(False):
            selected = self._select(method, options)
            spec = registry().methods.get(selected.name)
            if reason := misfit(selected.name, self.encoder):
                raise MethodError(reason)
            _check_data(self.encoder)
            batch = read(pictures, self.encoder)
            asked = parse(targets, self.encoder, templates)
            function, name = self._score(score, spec)
            question = Targets(self.encoder, asked, len(batch.images), function, name)
            registry().notify_before_explanation(Request(self.encoder, batch.images, question, selected))
            run: MethodFunction = registry().methods.load(selected.name)
            maps = run(selected.options, self.encoder, batch.images, question)
            explanation = self._explanation(maps, batch, question, selected)
            registry().notify_after_explanation(explanation)
            return explanation

    def methods(self) -> list[MethodFit]:
        """Tell of every method whether it fits this model, and why not."""
        return fits(self.encoder)

    def inspect(self) -> Inspection:
        """Report on the model: layers, grid, attention, methods. ``print`` it."""
        return inspect(self.encoder)

    def prove(self, size: int | tuple[int, int] | None = None, layer: str | nn.Module | None = None) -> Proof:
        """Prove on noise that maps lie on the picture as they are said to; ``print`` the proof.

        Args:
            size: Height and width of the input, or the side of a square. By default the model's own, and where it
                takes them a rectangle and the same rectangle upright.
            layer: Dotted name or module. By default those that methods take.

        Raises:
            LayerError: The layer does not lie on the picture, or no layer does.
            EncoderError: The model does not take the given size.
        """
        _check_data(self.encoder)
        return prove(self.encoder, size, None if layer is None else _layer_name(self.encoder.model, layer))

    def features(self, pictures: Any, layer: str | nn.Module | None = None) -> Tensor:
        """Give the features of a layer, laid out on the picture.

        Args:
            pictures: As for a call.
            layer: Dotted name or module; the last map by default.

        Returns:
            [B, C, h, w], on the model's device and in its dtype.

        Raises:
            LayerError: The layer does not lie on the picture.
        """
        with torch.inference_mode(False):
            _check_data(self.encoder)
            images = read(pictures, self.encoder).images
            if layer is None:
                last = self.encoder.last_map(images)
                name, grid = last.layer, last.grid
            else:
                name = _layer_name(self.encoder.model, layer)
                grid = self.encoder.geometry(image_size(images)).grid(name)
            with self.encoder.session() as hooks:
                tap = hooks.tap(name)
                self.encoder.forward(images, hooks)
            return grid.to_map(tap.value.detach())

    def _select(self, method: Any, options: Mapping[str, Any]) -> Selected:
        name = method if method is not None else default_method(self.encoder)
        if name is None:
            reasons: dict[str, list[str]] = {}
            for fit in self.methods():
                reasons.setdefault(fit.reason, []).append(fit.name)
            told = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
            raise MethodError(f"no method fits {self.encoder.name} ({told}); ex.inspect() shows what was found")
        if isinstance(name, Mapping):
            name = _with_layer_name(self.encoder.model, cast("Mapping[str, Any]", name))
        selected = select("methods", name, _with_layer_name(self.encoder.model, options))
        return with_defaults(selected, suited(selected.name, self.encoder))

    def _score(self, score: str | Selected | Score, spec: MethodSpec) -> tuple[Score, str]:
        if isinstance(score, (str, Selected)):
            selected = select("scores", score)
            function = registry().scores.load(selected.name)
            named: Score = partial(function, selected.options)
            name = selected.name
        elif callable(score):
            named, name = score, getattr(score, "__name__", type(score).__name__)
        else:
            raise ConfigError(
                f"a score is a name ({', '.join(registry().scores)}) or a function of an Answer; got {shown(score)}"
            )
        if (callable(score) or name != "logit") and not spec.reads_score:
            raise MethodError(
                f"method '{spec.name}' does not read the score, so score='{name}' would change nothing; leave the "
                "score out, or use a method that does, such as gradcam"
            )
        return named, name

    def _explanation(self, maps: object, batch: Batch, targets: Targets, selected: Selected) -> Explanation:
        if not isinstance(maps, Tensor) or maps.dim() != 4 or maps.shape[:2] != (len(batch.images), len(targets)):
            got = f"shape {list(maps.shape)}" if isinstance(maps, Tensor) else f"a {type(maps).__name__}"
            raise MethodError(
                f"method '{selected.name}' has to give maps [{len(batch.images)}, {len(targets)}, h, w], one for each "
                f"picture and target; it gave {got}"
            )
        return Explanation(
            maps=maps.detach().float(),
            names=targets.names,
            labels=targets.labels,
            scores=targets.values,
            pictures=batch.pictures,
            inputs_size=image_size(batch.images),
            frames=batch.frames,
            method=selected.name,
            provenance=self._provenance(batch.images, targets, selected),
        )

    def _provenance(self, images: Tensor, targets: Targets, selected: Selected) -> Provenance:
        needs = registry().methods.get(selected.name).needs
        geometry = self.encoder.geometry(image_size(images))
        choice = geometry.gradient if "gradient" in needs else geometry.last
        if not needs & _OF_A_LAYER:
            choice = None
        chosen = getattr(selected.options, "layer", None)
        approximate = "readout" in needs and self.encoder.readout is not None and not self.encoder.readout.exact
        return Provenance(
            encoder=self.encoder.name,
            weights=self.encoder.weights,
            method={"name": selected.name, **selected.options.model_dump(mode="json")},
            layer=chosen or (choice.layer if choice else None),
            score=targets.score_name,
            versions=versions(),
            warnings=(*self.encoder.warnings, *((APPROXIMATE,) if approximate else ()), *targets.notes),
        )


def wrap(model: str | nn.Module | Selected, *, encoder: str | None = None, **options: Any) -> Explainer:
    """Make a model explainable.

    Args:
        model: A module of timm, open_clip, transformers or plain torch; or a name: "timm:resnet50",
            "timm:hf-hub:owner/name", "open_clip:ViT-B-16/laion2b_s34b_b88k", "demo"; or a selection of one.
        encoder: Which encoder takes a module, where the one that fits its class is not wanted.
        **options: Settings of the encoder, such as ``tokenizer=``, ``size=(336, 448)``, ``checkpoint=``.

    Returns:
        The explainer. The model itself is never changed.

    Raises:
        ExplainerError: There is no such encoder, model or setting, or the model cannot be explained.
    """
    if isinstance(model, (str, Selected)):
        if encoder is not None:
            raise EncoderError(
                f"encoder='{encoder}' chooses who takes a module; a name says that itself: '{encoder}:NAME'"
            )
        selected = select("encoders", model, options)
    elif isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]  not every caller is typed
        module = _unwrapped(model)
        options = dict(_with_layer_name(module, options))
        selected = select("encoders", {"name": encoder or _encoder_of(module), "model": module}, options)
    else:
        raise EncoderError(
            f"wrap takes a model or its name, such as 'timm:resnet50'; got {shown(model)} ({type(model).__name__})"
        )
    build = registry().encoders.load(selected.name)
    # Weights that are loaded inside inference mode would be shut out of gradients for good.
    with torch.inference_mode(False):
        return Explainer(build(selected.options))


def _unwrapped(model: nn.Module) -> nn.Module:
    # torch.compile returns a shell around the module.
    inner = cast("nn.Module", getattr(model, "_orig_mod", model))
    check(inner)
    return inner


def _with_layer_name(model: nn.Module, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a layer that is given as a module as its dotted name."""
    layer = settings.get("layer")
    if not isinstance(layer, (nn.Module, list, tuple)):
        return settings
    return {**settings, "layer": _layer_name(model, cast("object", layer))}


def _layer_name(model: nn.Module, layer: object) -> str:
    if isinstance(layer, (str, nn.Module)):
        return HookManager(model).find(layer)[0]
    raise ConfigError(
        f"a layer is one module, or its dotted name; got {shown(layer)} ({type(layer).__name__}); a map comes from one "
        "layer, so ask once for each"
    )


def _check_data(encoder: Encoder) -> None:
    if any(weight.is_meta for module in encoder.model.modules() for weight in weights_of(module)):
        raise EncoderError(
            f"the weights of {encoder.name} are on the device 'meta' and hold no data, so there is nothing to explain; "
            "load them with model.to_empty(device='cpu') and model.load_state_dict(...)"
        )


def _encoder_of(module: nn.Module) -> str:
    """Find the encoder whose library the module's class comes from; subclasses count as their parents."""
    for ancestor in type(module).__mro__:
        library = ancestor.__module__.partition(".")[0]
        for name, spec in registry().encoders.items():
            if library in spec.wraps and library != "torch":
                return name
    for name, spec in registry().encoders.items():
        if "torch" in spec.wraps:
            return name
    raise EncoderError(f"no encoder takes a {type(module).__name__}; name one with encoder=...")


@cache
def versions() -> dict[str, str]:
    """Give the versions of the distributions that maps depend on, of those that are installed."""
    found: dict[str, str] = {}
    for name in DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
