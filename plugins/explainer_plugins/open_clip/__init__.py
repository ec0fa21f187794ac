"""CLIP models of open_clip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from explainer_registry import EncoderSpec, Schema, hookimpl
from explainer_registry.source import InputSize, ModelSource


class OpenClip(Schema):
    """A CLIP of open_clip, by name or as a module with its tokenizer."""

    model: ModelSource = Field(
        description="Architecture and pretrained tag, 'ViT-B-16/laion2b_s34b_b88k'; 'hf-hub:owner/name'; or a module."
    )
    pretrained: str | None = Field(None, description="Pretrained tag, or path of a checkpoint.")
    tokenizer: Annotated[Any, WithJsonSchema({"type": "null"})] = Field(
        None, description="Turns a list of texts into tokens; only needed with a module."
    )
    size: InputSize | None = Field(None, description="Height and width of the input; the model's own by default.")
    device: str = Field("cpu", description="Where a model that is made here is put.")


@hookimpl
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare the encoder of open_clip models."""
    return [
        EncoderSpec(
            name="open_clip",
            schema=OpenClip,
            factory="explainer_plugins.open_clip.encoder:build",
            summary="Any CLIP of open_clip: 'open_clip:ViT-B-16/laion2b_s34b_b88k', or a module.",
            wraps=("open_clip",),
        )
    ]
