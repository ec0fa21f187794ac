"""Any other classifier."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from explainer_registry import EncoderSpec, Schema, hookimpl
from explainer_registry.source import InputSize, ModelSource


class Torch(Schema):
    """A torch module that turns pictures into class logits."""

    model: ModelSource = Field(description="The module; its output is [B, K], or has it as .logits or first entry.")
    layer: str | None = Field(None, description="The last layer that gives a map; found by default.")
    layout: Literal["NCHW", "NHWC", "NLC", "NCL"] | None = Field(
        None, description="How the layer's output is laid out, where its shape does not tell."
    )
    classes: tuple[str, ...] | None = Field(None, description="Names of the classes, in the order of the logits.")
    size: InputSize = Field((224, 224), description="Height and width of the input.")
    mean: tuple[float, float, float] = Field((0.485, 0.456, 0.406), description="Subtracted from values in [0, 1].")
    std: tuple[float, float, float] = Field((0.229, 0.224, 0.225), description="Divided by.")


@hookimpl
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare the encoder of plain torch classifiers."""
    return [
        EncoderSpec(
            name="torch",
            schema=Torch,
            factory="explainer_plugins.torch.encoder:build",
            summary="Any other torch classifier, given as a module.",
            wraps=("torch",),
        )
    ]
