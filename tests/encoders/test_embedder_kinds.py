"""Models without classes: how they are wrapped, and a small member of every kind that timm has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import assert_same_maps, perturb, random_directions, random_images
from oracles.similarity import dot_map
from timm.models import davit, focalnet
from timm.models._efficientnet_builder import decode_arch_def
from torch import Tensor, nn

import explainer

from .common import TINY, dinov2, message, resnet, small

NATIVE = {"depth": 1, "embed_dim": 48, "num_heads": 3}

# Wrapping


def test_the_report_names_the_embedding() -> None:
    report = explainer.wrap(dinov2()).inspect()
    assert (report.classes, report.embedding) == (None, 48)
    assert str(report).splitlines()[1] == "input        32 x 32, embedding of 48"
    assert [fit.name for fit in report.methods if fit.default] == ["gradcam"]


def test_names_of_classes_for_a_model_without() -> None:
    assert message(lambda: explainer.wrap(dinov2(), classes=["cat", "dog"])) == (
        "timm:vit_small_patch14_reg4_dinov2 has no classifier, so the setting 'classes' means nothing to it; leave it "
        "out to explain the embedding"
    )


def test_a_number_of_classes_for_an_architecture_that_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **given: make(name, **given, **NATIVE))
    assert message(lambda: explainer.wrap("timm:qwen3_vit_88m_enc", pretrained=False, num_classes=5)) == (
        "timm:qwen3_vit_88m_enc has no classifier, so the setting 'num_classes' means nothing to it; leave it out to "
        "explain the embedding"
    )


def test_a_classifier_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    make = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **given: make(name, **given))
    ex = explainer.wrap("timm:resnet18.a1_in1k", num_classes=0)
    assert ex.inspect().embedding == 512
    assert (ex.encoder.weights, ex.encoder.warnings) == ("a1_in1k", ())
    assert message(lambda: explainer.wrap("timm:resnet18", num_classes=-1)) == (
        "num_classes: Input should be greater than or equal to 0 (given: -1)"
    )


def test_a_model_that_gives_several_maps() -> None:
    assert message(lambda: explainer.wrap(timm.create_model("resnet18", features_only=True))) == (
        "timm:resnet18 does not say how many classes it has (num_classes), as whole timm models do; wrap a model made "
        "without features_only=True, or take a module of another kind with encoder='torch'"
    )


class Several(timm.models.VisionTransformer):
    """Gives what its user made of it, and its features beside that."""

    shape: Callable[[Tensor], Any]

    def forward(self, x: Tensor) -> Any:
        return type(self).shape(super().forward(x))


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        (
            lambda out: {"embedding": out},
            "a dict, where an embedding [B, D] was expected; wrap a module that gives one",
        ),
        (
            lambda out: out[:, :30].reshape(len(out), 2, 3, 5, 1),
            "an output of shape [2, 2, 3, 5, 1], which is neither an embedding [B, D] nor a map of the picture; wrap a "
            "module that gives an embedding",
        ),
    ],
)
def test_a_model_that_gives_no_embedding(
    monkeypatch: pytest.MonkeyPatch, shape: Callable[[Tensor], Any], reason: str
) -> None:
    monkeypatch.setattr(Several, "shape", shape, raising=False)
    assert message(lambda: explainer.wrap(Several(num_classes=0, **TINY))) == f"timm:Several gives {reason}"


def test_a_projection_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass may give something else than timm's own head: its width is looked at, not read from timm."""
    monkeypatch.setattr(Several, "shape", lambda out: out[:, :20] * 2, raising=False)
    ex = explainer.wrap(perturb(Several(num_classes=0, **TINY)))
    assert ex.inspect().embedding == 20
    assert ex(random_images(1, 32), 19).names == ("channel 19",)


# Models that do not pool


SWIN = {
    "img_size": 64,
    "window_size": 4,
    "embed_dim": 24,
    "depths": (1, 1, 1),
    "num_heads": (1, 2, 4),
    "num_classes": 0,
    "global_pool": "",
}


@pytest.mark.parametrize(
    ("make", "size", "pooled", "cells"),
    [
        (lambda: dinov2(global_pool=""), 32, lambda out: out[:, 5:].mean(dim=1), "4 x 4"),
        (lambda: resnet(num_classes=0, global_pool=""), 64, lambda out: out.mean(dim=(2, 3)), "2 x 2"),
        (lambda: small(timm.models.SwinTransformer, **SWIN), 64, lambda out: out.mean(dim=(1, 2)), "4 x 4"),
    ],
)
def test_what_is_not_pooled_is_averaged_over_its_cells(
    make: Callable[[], nn.Module], size: int, pooled: Callable[[Tensor], Tensor], cells: str
) -> None:
    ex, images = explainer.wrap(make(), size=size), random_images(2, size)
    with torch.no_grad():
        expected = pooled(ex.encoder.model(images))
    assert ex.encoder.warnings == (
        f"{ex.encoder.name} gives a map of {cells} cells and no single embedding, so what is explained is the average "
        "over its cells",
    )
    e = ex(images, [0, 5, -1 % expected.shape[1]])
    assert torch.allclose(e.scores, expected[:, [0, 5, -1]], atol=1e-5)
    assert e.provenance.warnings[:1] == ex.encoder.warnings
    assert ex.encoder.needed_readout.exact


def test_cells_of_a_model_that_gives_its_map() -> None:
    """It has no head at all: timm's raises."""
    ex, images, rows = explainer.wrap(small(mobilenetv5_enc), size=64), random_images(2, 64), random_directions(1, 2048)
    with torch.no_grad():
        expected = dot_map(ex.encoder.model(images), rows)
    assert_same_maps(ex(images, rows, method="cam").maps, expected)


# Every kind


def mobilenetv5_enc() -> nn.Module:
    """Fuses maps of several strides into one, which it gives."""
    stages = [
        ["er_r1_k3_s2_e4_c8"],
        ["uir_r1_a3_k5_s2_e4_c16"],
        ["uir_r1_a5_k5_s2_e4_c32", "mqa_r1_k3_h2_v2_s1_d8_c32", "uir_r1_a0_k0_s1_e2_c32"],
    ]
    return timm.create_model("mobilenetv5_300m_enc", block_args=decode_arch_def(stages), stem_size=8, fix_stem=True)


KINDS: dict[str, tuple[str | Callable[..., nn.Module], dict[str, Any], int, str, int]] = {
    "dinov2": ("vit_small_patch14_dinov2", TINY, 32, "blocks.1.norm1", 4),
    "dinov3": ("vit_small_patch16_dinov3", TINY, 32, "norm", 4),
    "eva02": ("eva02_tiny_patch14_224", TINY, 32, "norm", 4),
    "pe_spatial": ("vit_pe_spatial_tiny_patch16_512", TINY, 32, "norm", 4),
    "sapiens2": ("vit_base_patch16_sapiens2", {**TINY, "num_kv_heads": 3}, 32, "blocks.1.norm1", 4),
    "lingbot": ("vit_small_patch16_lingbot", TINY, 32, "blocks.1.norm1", 4),
    "aimv2": ("aimv2_large_patch14_224", TINY, 32, "norm", 4),
    "siglip": ("vit_base_patch16_siglip_224", TINY, 32, "norm", 4),
    "siglip_gap": ("vit_base_patch16_siglip_gap_224", TINY, 32, "norm", 4),
    "radio": ("vit_base_patch16_radio_v3", TINY, 32, "blocks.1.norm1", 4),
    "tips": ("vit_base_patch14_reg1_tipsv2", TINY, 32, "blocks.1.norm1", 4),
    "naflex": ("naflexvit_base_patch16_siglip", NATIVE, 64, "norm", 4),
    "clip_gap": ("resnet50_clip_gap", {}, 64, "final_conv", 2),
    "davit_fl": (
        davit.DaVit,
        {
            "depths": (1, 1),
            "embed_dims": (16, 32),
            "num_heads": (2, 4),
            "down_kernel_size": 3,
            "channel_attn_v2": True,
            "named_blocks": True,
            "num_classes": 0,
        },
        64,
        "norm_pre",
        8,
    ),
    "focalnet_fl4": (
        focalnet.FocalNet,
        {
            "depths": (1, 1),
            "embed_dim": 16,
            "focal_levels": (4, 4),
            "use_post_norm": True,
            "use_post_norm_in_modulation": True,
            "use_overlap_down": True,
            "num_classes": 0,
        },
        64,
        "norm",
        8,
    ),
    "samvit": ("samvit_base_patch16", {**TINY, "global_attn_indexes": (1,), "neck_chans": 24}, 32, "neck", 4),
    "sam2": ("sam2_hiera_tiny", {"stages": (1, 1, 1, 1), "embed_dim": 16}, 64, "blocks.3", 2),
    "deepseek": ("deepseek_vit_412m", NATIVE, 84, "encoder", 6),
    "deepseek_enc": ("deepseek_vit_412m_enc", NATIVE, 84, "norm", 6),
    "qwen": ("qwen3_vit_88m", NATIVE, 64, "encoder", 4),
    "qwen_enc": ("qwen3_vit_88m_enc", NATIVE, 64, "blocks.0", 4),
    "gemma": ("gemma4_vit_167m", NATIVE, 96, "encoder", 6),
    "gemma_enc": ("gemma4_vit_167m_enc", NATIVE, 96, "blocks.0", 6),
    "mobilenetv5_enc": (mobilenetv5_enc, {}, 64, "msfa", 16),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_of_every_kind(kind: str) -> None:
    architecture, options, size, layer, cells = KINDS[kind]
    ex, images = explainer.wrap(small(architecture, **options), size=size), random_images(2, size)
    e = ex(images, relu=False)
    assert (e.method, e.provenance.layer) == ("gradcam", layer)
    assert e.maps.shape == (2, 1, cells, cells)
    assert bool(e.maps.isfinite().all())
    assert bool((e.maps.std(dim=(2, 3)) > 0).all())
    assert ex.inspect().embedding == ex.encoder.model.head_hidden_size
    assert any("no single embedding" in warning for warning in e.warnings) == kind.endswith("_enc")
