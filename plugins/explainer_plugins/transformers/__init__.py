"""Image classifiers and CLIP-like models of Hugging Face transformers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from explainer_registry import EncoderSpec, Schema, hookimpl
from explainer_registry.source import InputSize, ModelSource


class Transformers(Schema):
    """A model of transformers, by name or as a module with its processor."""

    model: ModelSource = Field(description="Name on the hub, a folder that save_pretrained wrote, or a module.")
    processor: Annotated[Any, WithJsonSchema({"type": "null"})] = Field(
        None, description="Image processor, or a processor with image processor and tokenizer; a name brings its own."
    )
    tokenizer: Annotated[Any, WithJsonSchema({"type": "null"})] = Field(
        None, description="Tokenizer of a CLIP or SigLIP, where the processor holds none."
    )
    classes: tuple[str, ...] | None = Field(None, description="Names of the classes, in the order of the logits.")
    size: InputSize | None = Field(None, description="Height and width of the input; the processor's by default.")
    device: str = Field("cpu", description="Where a model that is made here is put.")


@hookimpl
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare the encoder of transformers models."""
    return [
        EncoderSpec(
            name="transformers",
            schema=Transformers,
            factory="explainer_plugins.transformers.encoder:build",
            summary="Image classifiers, CLIP and SigLIP of transformers: 'transformers:google/vit-base-patch16-224'.",
            wraps=("transformers",),
        )
    ]
