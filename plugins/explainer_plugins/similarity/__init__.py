"""Similarity of each patch with what is asked."""

from __future__ import annotations

from collections.abc import Iterable

from explainer_registry import MethodSpec, Schema, hookimpl


class Similarity(Schema):
    """Cosine similarity of every patch with the prompt, or with the class's row of weights."""


@hookimpl
def explainer_methods() -> Iterable[MethodSpec]:
    """Declare the similarity map."""
    return [
        MethodSpec(
            name="similarity",
            schema=Similarity,
            factory="explainer_plugins.similarity.similarity:run",
            summary="Cosine of each patch with the target; on CLIP it often comes out opposite.",
            needs=frozenset({"features", "readout"}),
            reference="Zhou et al. 2022, arXiv:2112.01071; Li et al. 2023, arXiv:2304.05653",
        )
    ]
