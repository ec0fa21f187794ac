"""Drawings of a map."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from explainer_registry import Schema, ViewSpec, hookimpl


class Overlay(Schema):
    """The map in colours over its picture."""

    alpha: float = Field(0.5, ge=0, le=1, description="Share of the colour where it is strongest.")
    colormap: str | None = Field(
        None, description="Name of a colour map of the `cmap` library; by default chosen by the map's sign."
    )
    normalize: Literal["minmax", "symmetric"] | None = Field(
        None, description="From the lowest to the highest value, or with zero in the middle; by the map's sign."
    )


class Heat(Schema):
    """The map alone, in colours."""


class Spotlight(Schema):
    """The picture, dark where the map is cold."""

    floor: float = Field(0.1, ge=0, lt=1, description="Brightness that is left where the map is coldest.")


class Outline(Schema):
    """The picture, with a line around where the map is hot."""

    threshold: float = Field(
        0.5, ge=0, le=1, description="From this heat on, the coldest pixel being 0, the hottest 1."
    )
    colour: str = Field("red", description="Colour of the line: a name of CSS, or #rrggbb.")


@hookimpl
def explainer_views() -> Iterable[ViewSpec]:
    """Declare the views."""
    module = "explainer_plugins.views.views"
    return [
        ViewSpec(
            name="overlay",
            schema=Overlay,
            factory=f"{module}:overlay",
            summary="The map in colours over its picture.",
        ),
        ViewSpec(
            name="heat",
            schema=Heat,
            factory=f"{module}:heat",
            summary="The map alone, in colours.",
        ),
        ViewSpec(
            name="spotlight",
            schema=Spotlight,
            factory=f"{module}:spotlight",
            summary="The picture, dark where the map is cold or speaks against the target.",
        ),
        ViewSpec(
            name="outline",
            schema=Outline,
            factory=f"{module}:outline",
            summary="The picture, with a line around where the map is hot.",
        ),
    ]
