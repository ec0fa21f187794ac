"""Which layers lie on the picture and which of them is taken, family by family, and the proof that it is so.

The table agrees with what a hand-checked survey of timm found for the same architectures. The proof: one
quadrant of a noise picture is changed, and the features must change most in that quadrant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import timm
import torch
from oracles.helpers import CLIPS, SMALL, FakeTokenizer, built, clip
from torch import Tensor, nn

import explainer
from core.attentions import TINY
from core.weightless import geometry_of, weightless
from explainer.layout import Grid


class Row(NamedTuple):
    """The last map of an architecture, the last with a gradient, and the dense attentions over its tokens."""

    name: str
    options: dict[str, Any]
    last: str
    grid: Grid
    gradient: str | None = None
    blocks: int = 0
    final_norm: str | None = None


TWO = {"depth": 2}
QUICK = [
    Row("resnet18", {}, "layer4", Grid(7, 7, "NCHW")),
    Row("vgg11", {}, "features", Grid(7, 7, "NCHW")),
    Row("dla34", {}, "level5", Grid(7, 7, "NCHW")),
    Row("convnext_atto", {}, "norm_pre", Grid(7, 7, "NCHW")),
    Row("mobilenetv3_small_050", {}, "blocks", Grid(7, 7, "NCHW")),
    Row("tf_efficientnet_lite0", {}, "bn2", Grid(7, 7, "NCHW")),
    Row("mambaout_femto", {}, "stages", Grid(7, 7, "NHWC")),
    Row("efficientvit_b0", {}, "stages", Grid(7, 7, "NCHW")),
    Row("vit_tiny_patch16_224", TWO, "norm", Grid(14, 14, "NLC", 1), "blocks.1.norm1", 2, "norm"),
    Row("vit_base_patch16_gap_224", TWO, "norm", Grid(14, 14, "NLC"), None, 2, "norm"),
    Row("deit_tiny_distilled_patch16_224", TWO, "norm", Grid(14, 14, "NLC", 2), "blocks.1.norm1", 2, "norm"),
    Row(
        "vit_small_patch14_reg4_dinov2",
        {**TWO, "img_size": 56},
        "norm",
        Grid(4, 4, "NLC", 5),
        "blocks.1.norm1",
        2,
        "norm",
    ),
    Row(
        "vit_small_patch14_reg4_dinov2",
        {**TWO, "img_size": 70},
        "norm",
        Grid(5, 5, "NLC", 5),
        "blocks.1.norm1",
        2,
        "norm",
    ),
    Row(
        "vit_small_patch14_reg4_dinov2",
        {**TWO, "img_size": (56, 84)},
        "norm",
        Grid(4, 6, "NLC", 5),
        "blocks.1.norm1",
        2,
        "norm",
    ),
    Row("vit_base_patch16_siglip_224", TWO, "norm", Grid(14, 14, "NLC"), None, 2, "norm"),
    Row("eva02_tiny_patch14_224", TWO, "norm", Grid(16, 16, "NLC", 1), None, 2, "norm"),
    Row("vit_small_patch16_dinov3", TWO, "norm", Grid(16, 16, "NLC", 5), None, 2, "norm"),
    Row("beit_base_patch16_224", TWO, "norm", Grid(14, 14, "NLC", 1), None, 2, "norm"),
    Row("vit_relpos_small_patch16_224", TWO, "norm", Grid(14, 14, "NLC"), None, 2, "norm"),
    Row("cait_xxs24_224", TWO, "norm", Grid(14, 14, "NLC", 1), "blocks_token_only.1.norm1", 2, "norm"),
    Row("xcit_nano_12_p16_224", TWO, "norm", Grid(14, 14, "NLC", 1), "cls_attn_blocks.1.norm1"),
    Row("convit_tiny", {}, "norm", Grid(14, 14, "NLC", 1), "blocks.11.norm1", 12, "norm"),
    Row("tnt_s_legacy_patch16_224", TWO, "norm", Grid(14, 14, "NLC", 1), "blocks.1.norm_out", 2, "norm"),
    Row("naflexvit_base_patch16_gap", TWO, "norm", Grid(24, 24, "NLC", 4), None, 2, "norm"),
    Row("mixer_s32_224", {}, "norm", Grid(7, 7, "NLC")),
    Row("swin_tiny_patch4_window7_224", {"depths": (1, 1, 1, 1)}, "norm", Grid(7, 7, "NHWC"), None, 1, "norm"),
    Row("samvit_base_patch16_224", TWO, "neck", Grid(14, 14, "NCHW"), None, 2, "neck"),
    Row("resnet50_clip", {}, "final_conv", Grid(7, 7, "NCHW")),
]
MORE = [
    Row("densenet121", {}, "features", Grid(7, 7, "NCHW")),
    Row("hgnetv2_b0", {}, "stages", Grid(7, 7, "NCHW")),
    Row("regnetx_002", {}, "final_conv", Grid(7, 7, "NCHW")),
    Row("inception_v3", {}, "Mixed_7c", Grid(8, 8, "NCHW")),
    Row("repvit_m0_9", {}, "stages", Grid(7, 7, "NCHW")),
    Row("resnetv2_50x1_bit", {}, "norm", Grid(7, 7, "NCHW")),
    Row("lowformer_b0", {}, "stages", Grid(7, 7, "NCHW"), None, 7),
    Row("hrnet_w18_small", {}, "final_layer", Grid(7, 7, "NCHW")),
    Row("edgenext_xx_small", {}, "norm_pre", Grid(8, 8, "NCHW")),
    Row("fastvit_t8", {}, "final_conv", Grid(8, 8, "NCHW")),
    Row("mobilevit_xxs", {}, "final_conv", Grid(8, 8, "NCHW")),
    Row("poolformer_s12", {}, "stages", Grid(7, 7, "NCHW")),
    Row("focalnet_tiny_srf", {}, "norm", Grid(7, 7, "NCHW")),
    Row("pit_ti_224", {}, "transformers.2.blocks", Grid(7, 7, "NLC", 1), "transformers.2.blocks.3.norm1", 4),
    Row("levit_128s", {}, "stages", Grid(4, 4, "NLC"), None, 4),
    Row("resmlp_12_224", {}, "norm", Grid(14, 14, "NLC")),
    Row("swinv2_cr_tiny_224", {}, "stages", Grid(7, 7, "NCHW"), None, 2),
    Row("pvt_v2_b0", {}, "stages", Grid(7, 7, "NCHW"), None, 2),
    Row("twins_svt_small", {}, "norm", Grid(7, 7, "NLC"), None, 4, "norm"),
    Row("mvitv2_small_cls", {}, "norm", Grid(7, 7, "NLC", 1), "stages.3.blocks.1.norm1", 1, "norm"),
    Row("coat_lite_tiny", {}, "norm4", Grid(7, 7, "NLC", 1), "serial_blocks4.1.norm1"),
    Row("crossvit_tiny_240", {}, "norm.1", Grid(14, 14, "NLC", 1), "blocks.2.fusion.0.norm1", 12, "norm.1"),
    Row("volo_d1_224", {}, "norm", Grid(14, 14, "NLC", 1), "post_network.1.norm1", 14, "norm"),
    Row("hiera_tiny_224", {}, "blocks.11", Grid(7, 7, "NLC"), None, 1),
    Row("caformer_s18", {}, "stages", Grid(7, 7, "NCHW"), None, 3),
    Row("coatnet_nano_rw_224", {}, "norm", Grid(7, 7, "NCHW"), None, 3, "norm"),
    Row("davit_tiny", {}, "norm_pre", Grid(7, 7, "NCHW"), None, 1, "norm_pre"),
    Row("gcvit_xxtiny", {}, "stages", Grid(7, 7, "NCHW"), None, 2),
    Row("nest_tiny", {}, "norm", Grid(14, 14, "NHWC"), None, 8, "norm"),
    Row("sequencer2d_s", {}, "norm", Grid(16, 16, "NHWC")),
    Row("efficientformer_l1", {}, "norm", Grid(7, 7, "NLC"), None, 1, "norm"),
    Row("vitamin_small_224", {}, "norm", Grid(14, 14, "NLC"), None, 14, "norm"),
]


def check(row: Row) -> None:
    found = geometry_of(weightless(row.name, **row.options))
    assert found.last is not None
    assert found.gradient is not None
    assert (found.last.layer, found.last.grid) == (row.last, row.grid)
    assert found.gradient.layer == (row.gradient or row.last)
    assert found.gradient.grid == row.grid
    assert (len(found.blocks), found.final_norm) == (row.blocks, row.final_norm)
    assert row.last in found.layers


def named(row: Row) -> str:
    return f"{row.name} {row.options.get('img_size', '')}".strip()


@pytest.mark.parametrize("row", QUICK, ids=named)
def test_family(row: Row) -> None:
    check(row)


@pytest.mark.slow
@pytest.mark.parametrize("row", MORE, ids=named)
def test_more_families(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("name", ["resnet18", "mambaout_femto"])
@pytest.mark.parametrize(
    ("size", "cells"),
    [
        ((320, 200), (10, 7)),
        ((200, 320), (7, 10)),
        ((500, 70), (16, 3)),
        ((70, 500), (3, 16)),
        ((64, 64), (2, 2)),
    ],
)
def test_rectangular_pictures(name: str, size: tuple[int, int], cells: tuple[int, int]) -> None:
    found = geometry_of(weightless(name), size)
    assert found.last is not None
    assert (found.last.grid.height, found.last.grid.width) == cells
    assert found.last.layer == ("layer4" if name == "resnet18" else "stages")


@pytest.mark.parametrize(
    ("make", "layer", "grid", "gradient", "blocks"),
    [
        (
            lambda: clip({**SMALL, "layers": 2}),
            "transformer",
            Grid(4, 4, "NLC", 1),
            "transformer.resblocks.1.ln_1",
            2,
        ),
        (
            CLIPS["small_tall"],
            "transformer",
            Grid(6, 4, "NLC", 1),
            "transformer.resblocks.6.ln_1",
            7,
        ),
        (CLIPS["small_resnet"], "layer4", Grid(3, 3, "NCHW"), "layer4", 0),
    ],
    ids=["vit", "tall vit", "resnet"],
)
def test_open_clip(make: Callable[[], nn.Module], layer: str, grid: Grid, gradient: str, blocks: int) -> None:
    encoder = explainer.wrap(built(make), tokenizer=FakeTokenizer()).encoder
    found = encoder.geometry(encoder.preprocess.size)
    assert found.last is not None
    assert found.gradient is not None
    assert (found.last.layer, found.last.grid) == (f"visual.{layer}", grid)
    assert (found.gradient.layer, len(found.blocks)) == (f"visual.{gradient}", blocks)


# The proof


class Proof(NamedTuple):
    """A model small enough to be run, and the side of its pictures."""

    make: Callable[[], nn.Module]
    side: int


def small(name: str, side: int, **options: Any) -> Proof:
    return Proof(lambda: timm.create_model(name, num_classes=5, **options), side)


PROOFS = {
    "resnet": small("resnet18", 128),
    "densenet": small("densenet121", 128, block_config=(2, 2, 2, 2)),
    "convnext": small("convnext_atto", 128, depths=(1, 1, 1, 1)),
    "mambaout, NHWC": small("mambaout_femto", 128, depths=(1, 1, 1, 1)),
    "vit": small("vit_tiny_patch16_224", 64, **TINY),
    "deit distilled": small("deit_tiny_distilled_patch16_224", 64, **TINY),
    "dinov2 with registers": small("vit_small_patch14_reg4_dinov2", 56, **{**TINY, "img_size": 56}),
    "eva02": small("eva02_tiny_patch14_224", 56, **{**TINY, "img_size": 56}),
    "cait": small("cait_xxs24_224", 64, **TINY),
    "xcit": small("xcit_nano_12_p16_224", 64, embed_dim=64, depth=2, num_heads=4),
    "mixer": small("mixer_s32_224", 128, img_size=128),
    "swin, NHWC": small(
        "swin_tiny_patch4_window7_224", 128, img_size=128, embed_dim=16, depths=(1, 1, 1, 1), window_size=4
    ),
    "hiera": small("hiera_tiny_224", 224, embed_dim=16, num_heads=1, stages=(1, 1, 1, 1)),
    "open_clip vit": Proof(lambda: clip({**SMALL, "layers": 2}), 32),
    "open_clip resnet": Proof(CLIPS["small_resnet"], 96),
    "torch": Proof(lambda: nn.Sequential(nn.Conv2d(3, 8, 8, 8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 3)), 64),
}


def quadrants(values: Tensor) -> Tensor:
    """Means over the four quadrants of [h, w], row by row; a middle row or column belongs to neither side."""
    height, width = values.shape
    rows, columns = (slice(height // 2), slice(-(height // 2), None)), (slice(width // 2), slice(-(width // 2), None))
    return torch.stack([values[r, c].mean() for r in rows for c in columns])


@pytest.mark.parametrize("name", PROOFS)
@torch.no_grad()
def test_a_changed_quadrant_is_seen_where_it_is(name: str) -> None:
    make, side = PROOFS[name]
    options: dict[str, Any] = {"torch": {"size": (side, side)}}.get(name, {})
    options = {"tokenizer": FakeTokenizer()} if name.startswith("open_clip") else options
    model = built(make)
    if hasattr(model, "pretrained_cfg"):
        options = {"size": (side, side)}
    ex, generator, half = explainer.wrap(model, **options), torch.Generator().manual_seed(5), side // 2
    picture, other = (torch.randn(1, 3, side, side, generator=generator) for _ in range(2))
    pictures = picture.repeat(5, 1, 1, 1)
    for index, (top, left) in enumerate([(0, 0), (0, half), (half, 0), (half, half)], start=1):
        window = (..., slice(top, top + half), slice(left, left + half))
        pictures[index][window] = other[0][window]
    features = ex.features(pictures)
    changes = (features[1:] - features[:1]).norm(dim=1)
    assert [int(quadrants(change).argmax()) for change in changes] == [0, 1, 2, 3]
