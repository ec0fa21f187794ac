"""Occlusion: how much the score falls when a part of the picture is covered."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from explainer_registry import MethodSpec, Schema, hookimpl


class Occlusion(Schema):
    """How much the score falls when a square of one colour covers the place."""

    patch: int = Field(32, ge=1, description="Side of the square, in pixels of the model's input.")
    stride: int = Field(16, ge=1, description="How far the square is moved, in pixels of the model's input.")
    value: float = Field(0.0, description="Its colour, as the model gets it: 0 is the mean of what it was trained on.")
    batch: int = Field(32, ge=1, description="How many covered pictures go through the model at a time.")


@hookimpl
def explainer_methods() -> Iterable[MethodSpec]:
    """Declare occlusion, which needs nothing of a model but its output."""
    return [
        MethodSpec(
            name="occlusion",
            schema=Occlusion,
            factory="explainer_occlusion.occlusion:run",
            summary="How much the score falls when a square covers the place; slow, and true of any model.",
            needs=frozenset(),
            reads_score=True,
            reference="Zeiler & Fergus 2014, arXiv:1311.2901",
        )
    ]
