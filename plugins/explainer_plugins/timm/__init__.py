"""Models of timm."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from explainer_registry import EncoderSpec, Schema, hookimpl
from explainer_registry.source import InputSize, ModelSource


class Timm(Schema):
    """A timm model, by name or as a module."""

    model: ModelSource = Field(description="Architecture, with a tag where wanted; 'hf-hub:owner/name'; or a module.")
    pretrained: bool = Field(True, description="Load the published weights, from timm's cache or the hub.")
    checkpoint: str | None = Field(None, description="Path of a checkpoint to load instead of published weights.")
    num_classes: int | None = Field(
        None, ge=0, description="Number of classes, where it is not the published one; 0 to explain the embedding."
    )
    classes: tuple[str, ...] | None = Field(None, description="Names of the classes, in the order of the logits.")
    size: InputSize | None = Field(None, description="Height and width of the input; the model's own by default.")
    device: str = Field("cpu", description="Where a model that is made here is put.")


@hookimpl
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare the encoder of timm models."""
    return [
        EncoderSpec(
            name="timm",
            schema=Timm,
            factory="explainer_plugins.timm.encoder:build",
            summary="Any model of timm, with classes or without: 'timm:resnet50', a checkpoint, or a module.",
            wraps=("timm",),
        )
    ]
