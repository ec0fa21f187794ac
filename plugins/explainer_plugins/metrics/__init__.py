"""Measurements of a map against a true mask."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from explainer_registry import MetricSpec, Schema, hookimpl


class Pointing(Schema):
    """Pointing game: is the hottest pixel on the object? Of several that are equally hot, which share is."""


class Energy(Schema):
    """Energy-based pointing game: which share of the heat lies on the object, the coldest pixel being zero."""


class IoU(Schema):
    """Intersection over union of the object and the pixels that are hot enough."""

    threshold: float = Field(
        0.5, ge=0, le=1, description="From this heat on, the coldest pixel being 0, the hottest 1."
    )


class BestIoU(Schema):
    """Intersection over union at the threshold that is the best for the whole data set."""

    steps: int = Field(100, ge=1, le=10_000, description="How many thresholds are tried: 0, 1/steps, 2/steps, ...")


class AveragePrecision(Schema):
    """Average precision of the pixels, ordered by heat: is every pixel of the object hotter than those around it?"""


@hookimpl
def explainer_metrics() -> Iterable[MetricSpec]:
    """Declare the metrics."""
    module = "explainer_plugins.metrics.metrics"
    return [
        MetricSpec(
            name="pointing",
            schema=Pointing,
            factory=f"{module}:pointing",
            summary="Whether the hottest pixel is on the object.",
            reference="Zhang et al. 2018, arXiv:1608.00507; tolerance 0",
        ),
        MetricSpec(
            name="energy",
            schema=Energy,
            factory=f"{module}:energy",
            summary="Share of the heat that is on the object, the coldest pixel being 0.",
            reference="Wang et al. 2020, arXiv:1910.01279",
        ),
        MetricSpec(
            name="iou",
            schema=IoU,
            factory=f"{module}:iou",
            summary="Intersection over union of the object and the pixels of at least half the heat.",
            reference="Everingham et al. 2010, doi:10.1007/s11263-009-0275-4",
        ),
        MetricSpec(
            name="iou_best",
            schema=BestIoU,
            factory=f"{module}:iou_best",
            summary="Intersection over union at the best threshold, one for the whole data set.",
            reference="Choe et al. 2020, arXiv:2001.07437",
        ),
        MetricSpec(
            name="average_precision",
            schema=AveragePrecision,
            factory=f"{module}:average_precision",
            summary="Average precision of the pixels, ordered by heat.",
            reference="Chefer et al. 2021, arXiv:2012.09838",
        ),
    ]
