"""Class activation maps: CAM and Grad-CAM."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from explainer_registry import MethodSpec, Schema, hookimpl


class CAM(Schema):
    """What each cell of the last feature map contributes to the score, read through the head's own weights."""


class GradCAM(Schema):
    """The activations of a layer, weighted by how much the score grows with each channel on average."""

    layer: str | None = Field(
        None, description="Dotted name of the layer; by default the last one whose cells reach the score."
    )
    relu: bool = Field(True, description="Keep only positive evidence, as published; false keeps the sign.")


@hookimpl
def explainer_methods() -> Iterable[MethodSpec]:
    """Declare CAM and Grad-CAM."""
    return [
        MethodSpec(
            name="cam",
            schema=CAM,
            factory="explainer_plugins.cam.cam:run",
            summary="Contribution of each cell of the last map, through the head's own weights.",
            needs=frozenset({"features", "readout"}),
            reference="Zhou et al. 2016, arXiv:1512.04150",
            default_rank=10,
        ),
        MethodSpec(
            name="gradcam",
            schema=GradCAM,
            factory="explainer_plugins.cam.gradcam:run",
            summary="Activations of any layer, weighted by the average gradient of the score.",
            needs=frozenset({"features", "gradient"}),
            reference="Selvaraju et al. 2017, arXiv:1610.02391",
            default_rank=20,
        ),
    ]
