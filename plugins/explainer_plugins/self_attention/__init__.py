"""Self-self attention: as maps, in place of the last blocks, and as GEM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from explainer_registry import MethodSpec, Schema, hookimpl


class SelfSelf(Schema):
    """Attention of queries to queries, keys to keys and values to values, iterated."""

    start: Literal["q", "k", "v", "qkv"] = Field(
        "qkv", description="What is compared with itself; qkv averages the three."
    )
    iterations: int = Field(1, ge=0, description="How often the tokens are moved towards each other first.")
    temperature: float | None = Field(
        None, gt=0, description="Factor on the similarities; by default from the tokens' norms, as in GEM."
    )
    depth: int = Field(
        1,
        ge=1,
        description="Counted from the end: this many last blocks are replaced, or the block whose map is shown.",
    )
    output: Literal["replace", "map"] = Field(
        "replace",
        description="replace: run the last blocks with self-self attention and compare the patches with the "
        "target; map: show what the anchor patch, the most similar one, attends to.",
    )


class GEM(Schema):
    """Grounding everything: self-self attention on a path of its own beside the last blocks."""

    depth: int | None = Field(
        None,
        ge=2,
        description="One more than the number of last blocks that take part; by default 7, as published, or all "
        "blocks of a model that has fewer.",
    )
    iterations: int = Field(1, ge=0, description="How often the tokens are moved towards each other first.")
    temperature: float | None = Field(
        None, gt=0, description="Factor on the similarities; by default from the tokens' norms, as published."
    )
    ensemble: tuple[Literal["q", "k", "v"], ...] = Field(
        ("v", "k", "q"), min_length=1, description="What is compared with itself; the results are averaged."
    )
    pos_interp: Literal["bicubic_antialias", "bilinear", "dino", "bicubic"] = Field(
        "bicubic_antialias", description="How position embeddings are brought to another input size."
    )


@hookimpl
def explainer_methods() -> Iterable[MethodSpec]:
    """Declare self-self attention and GEM."""
    return [
        MethodSpec(
            name="self_self",
            schema=SelfSelf,
            factory="explainer_plugins.self_attention.self_self:run",
            summary="Iterated q-q, k-k and v-v attention, as a map or in place of the last blocks.",
            needs=frozenset({"attention", "readout"}),
            reference="Bousselham et al. 2024, arXiv:2312.00878",
        ),
        MethodSpec(
            name="gem",
            schema=GEM,
            factory="explainer_plugins.self_attention.gem:run",
            summary="Patch-text similarity that lies on the object, by self-self attention beside the model.",
            needs=frozenset({"attention", "stream", "readout"}),
            reference="Bousselham et al. 2024, arXiv:2312.00878",
            default_rank=30,
            default_with=frozenset({"companion"}),
        ),
    ]
