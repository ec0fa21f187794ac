"""What is known of a wrapped model, and which methods fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from explainer.embedder import Embedder
from explainer.encoder import Encoder
from explainer.geometry import Choice
from explainer_registry import MethodSpec, registry

MISSING = {
    "features": "no layer gives a map of the picture",
    "gradient": "no gradient passes through its quantised layers",
    "readout": "nothing says what one cell of its last map means for its output",
    "classes": "it has no classes",
    "companion": "it reads no text",
    "attention": "it has no dense softmax attention over its patches that could be reached",
    "stream": "what its attentions add to the patches could not be followed to its last map",
}


READOUTS = {
    "exact": "exact: the output is the average of what the cells say, or what the class token says",
    "approximate": "approximate: the model does more than average its cells and weigh them",
    "none": "none: nothing says what one cell of the last map means for the output",
}


@dataclass(frozen=True)
class MethodFit:
    """Whether a method fits a model.

    Attributes:
        name: Name of the method.
        fits: Whether the model offers what it needs.
        reason: What is missing; empty where it fits.
        default: Whether it is the one that is used where none is named.
        summary: What it does.
        suited: Settings that take the place of its own defaults on this model.
    """

    name: str
    fits: bool
    reason: str
    default: bool
    summary: str
    suited: Mapping[str, Any]


@dataclass(frozen=True)
class Inspection:
    """A report on a wrapped model; ``print`` it.

    Attributes:
        encoder: Name of the encoder.
        weights: Where the weights come from.
        size: Height and width of the input.
        layer: The last map, and why it was chosen; None where there is none.
        gradient: The map at which gradients are taken by default.
        readout: Whether a cell of the last map can be read as the model's output: "exact", "approximate" or "none".
        blocks: Paths of the dense attentions over the patch tokens, in order.
        other_attentions: How many other attentions were seen (windows, pooling, channels).
        classes: Number of classes; None where there are none.
        embedding: Width of the embedding; None for a classifier.
        layers: Every layer that lies on the picture, in the order in which they run.
        methods: Which methods fit.
        warnings: What whoever reads a result must know.
    """

    encoder: str
    weights: str
    size: tuple[int, int]
    layer: Choice | None
    gradient: Choice | None
    readout: Literal["exact", "approximate", "none"]
    blocks: tuple[str, ...]
    other_attentions: int
    classes: int | None
    embedding: int | None
    layers: tuple[str, ...]
    methods: tuple[MethodFit, ...]
    warnings: tuple[str, ...]

    def __str__(self) -> str:
        lines = [
            f"model        {self.encoder}, weights: {self.weights}",
            f"input        {self.size[0]} x {self.size[1]}{self._output()}",
            f"last map     {_line(self.layer)}",
        ]
        if self.gradient is not None and self.gradient != self.layer:
            lines.append(f"gradients    {_line(self.gradient)}")
        lines.append(f"readout      {READOUTS[self.readout]}")
        lines.append(f"attention    {self._attention()}")
        lines += [f"warning      {warning}" for warning in self.warnings]
        lines.append("methods")
        width = max((len(fit.name) for fit in self.methods), default=0)
        for fit in self.methods:
            mark = "default" if fit.default else "fits" if fit.fits else "no"
            suited = "".join(f" [{key}={value}]" for key, value in fit.suited.items())
            lines.append(f"  {fit.name:<{width}}  {mark:<7}  {fit.summary + suited if fit.fits else fit.reason}")
        lines.append(f"layers       {', '.join(_outermost(self.layers)) or 'none'}")
        return "\n".join(lines)

    def _output(self) -> str:
        if self.embedding is not None:
            return f", embedding of {self.embedding}"
        return f", {self.classes} classes" if self.classes else ""

    def _attention(self) -> str:
        dense = f"{len(self.blocks)} dense blocks over patch tokens"
        if self.blocks:
            dense += f", {self.blocks[0]} to {self.blocks[-1]}"
        others = f"; {self.other_attentions} others (windows, pooling or channels)" if self.other_attentions else ""
        return dense + others


def inspect(encoder: Encoder) -> Inspection:
    """Report on a model.

    Args:
        encoder: The wrapped model.
    """
    geometry = encoder.geometry(encoder.preprocess.size)
    names = encoder.class_names
    return Inspection(
        encoder=encoder.name,
        weights=encoder.weights,
        size=encoder.preprocess.size,
        layer=geometry.last,
        gradient=geometry.gradient,
        readout="none" if encoder.readout is None else "exact" if encoder.readout.exact else "approximate",
        blocks=tuple(block.name for block in geometry.blocks),
        other_attentions=len(geometry.probe.attentions) - len(geometry.blocks),
        classes=len(names) if names else getattr(encoder, "count", None),
        embedding=encoder.width if isinstance(encoder, Embedder) else None,
        layers=geometry.layers,
        methods=tuple(fits(encoder)),
        warnings=encoder.warnings,
    )


def fits(encoder: Encoder) -> list[MethodFit]:
    """Tell of every method whether it fits a model.

    Args:
        encoder: The wrapped model.

    Returns:
        One entry for each method, by name.
    """
    default = default_method(encoder)
    found: list[MethodFit] = []
    for name, spec in registry().methods.items():
        missing = lacking(spec, encoder)
        found.append(MethodFit(name, not missing, missing, name == default, spec.summary, suited(name, encoder)))
    return found


def suited(method: str, encoder: Encoder) -> Mapping[str, Any]:
    """Give the settings that take the place of a method's own defaults on a model.

    Args:
        method: Name of the method, "gem" or "distribution/gem".
        encoder: The wrapped model.
    """
    return encoder.suited.get(method.rpartition("/")[2], {})


def lacking(spec: MethodSpec, encoder: Encoder) -> str:
    """Say what a model lacks for a method; empty where it lacks nothing."""
    missing = sorted(spec.needs - encoder.capabilities)
    if "features" in missing:
        # Without a map there is nothing to read or differentiate either.
        missing = [capability for capability in missing if capability not in ("gradient", "readout")]
    if "attention" in missing:
        missing = [capability for capability in missing if capability != "stream"]
    return "; ".join(MISSING[capability] for capability in missing)


def misfit(name: str, encoder: Encoder) -> str:
    """Say why a method does not fit a model, and which do; empty where it fits.

    Args:
        name: Name of the method.
        encoder: The wrapped model.
    """
    missing = lacking(registry().methods.get(name), encoder)
    if not missing:
        return ""
    fitting = ", ".join(fit.name for fit in fits(encoder) if fit.fits) or "none"
    return f"method '{name}' does not fit {encoder.name}: {missing}; methods that fit: {fitting}"


def default_method(encoder: Encoder) -> str | None:
    """Choose the best method that fits a model; None where none does.

    Args:
        encoder: The wrapped model.
    """
    ranked = [
        (spec.default_rank, name)
        for name, spec in registry().methods.items()
        if spec.default_rank is not None and not lacking(spec, encoder) and spec.default_with <= encoder.capabilities
    ]
    return max(ranked)[1] if ranked else None


def _line(choice: Choice | None) -> str:
    if choice is None:
        return "none"
    grid = choice.grid
    prefix = f", {grid.prefix} prefix token{'s' * (grid.prefix > 1)}" if grid.prefix else ""
    return (
        f"{choice.layer}: {grid.height} x {grid.width} cells of {choice.channels} channels, {grid.layout}{prefix} "
        f"({choice.why})"
    )


def _outermost(layers: Sequence[str]) -> list[str]:
    """Leave out what lies inside numbered blocks: a model has hundreds of layers, and these are rarely wanted."""

    def inside_block(layer: str) -> bool:
        parents = layer.split(".")[:-1]
        return any(parent[-1:].isdigit() for parent in parents)

    return [layer for layer in layers if not inside_block(layer)]
