"""Maps of what one patch attends to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from explainer_registry import MethodSpec, Schema, hookimpl


class AttentionMap(Schema):
    """The attention of an anchor patch to all patches, in one block."""

    block: int = Field(-1, description="Which attention block; negative numbers count from the last.")
    point: tuple[float, float] | None = Field(
        None,
        description="The anchor as (x, y) in [0, 1] of the model's input, from its top left corner.",
    )
    anchor: Literal["gem", "similarity"] | None = Field(
        None,
        description="Where no point is given: the hottest patch of GEM's map, or the patch most similar to the target. "
        "By default GEM's for models that read text, whose similarity often comes out opposite, where it fits.",
    )
    heads: Literal["mean", "each"] = Field("mean", description="Average the heads, or give a map of each.")


_SUMMARIES = {
    "query_key": "What the anchor patch attends to: softmax(q k).",
    "query_query": "Which patches ask what the anchor asks: softmax(q q).",
    "key_key": "Which patches offer what the anchor offers: softmax(k k).",
    "value_value": "Which patches carry what the anchor carries: softmax(v v).",
}


@hookimpl
def explainer_methods() -> Iterable[MethodSpec]:
    """Declare the four attention maps."""
    return [
        MethodSpec(
            name=name,
            schema=AttentionMap,
            factory=f"explainer_plugins.attention_maps.attention_maps:{name}",
            summary=summary,
            needs=frozenset({"attention", "readout"}),
            reference="Vaswani et al. 2017, arXiv:1706.03762; Li et al. 2023, arXiv:2304.05653",
        )
        for name, summary in _SUMMARIES.items()
    ]
