"""A small CLIP that ships with the package, trained on scenes of stickers, and such scenes with their true masks."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from explainer_registry import DatasetSpec, EncoderSpec, Schema, hookimpl
from explainer_registry.source import InputSize


class Stickers(Schema):
    """The sticker model: a small CLIP that knows the names of 119 everyday things, drawn as emoji."""

    size: InputSize | None = Field(None, description="Height and width of the input; 96 x 96 by default.")
    device: str = Field("cpu", description="Where the model is put.")


class StickerScenes(Schema):
    """Scenes of stickers by a hand that the sticker model was not trained on, made as they are asked for."""

    scenes: int = Field(500, ge=1, le=100_000, description="How many scenes.")
    seed: int = Field(0, ge=0, le=1_000_000, description="Another seed gives other scenes.")
    most: int = Field(5, ge=1, le=5, description="Scenes hold 1, 2, ... up to this many objects in turn.")


@hookimpl
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare the sticker model."""
    return [
        EncoderSpec(
            name="stickers",
            schema=Stickers,
            factory="explainer_plugins.stickers.encoder:build",
            summary="A small CLIP with real weights for scenes of emoji, without a download.",
        )
    ]


@hookimpl
def explainer_datasets() -> Iterable[DatasetSpec]:
    """Declare the scenes."""
    return [
        DatasetSpec(
            name="stickers",
            schema=StickerScenes,
            factory="explainer_plugins.stickers.dataset:build",
            summary="Scenes of one to five emoji with the exact mask of each, by a hand the sticker model never saw.",
        )
    ]
