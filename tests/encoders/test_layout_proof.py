"""The layout proof on a small member of every family of timm: each corner of the picture changes its own corner.

Real forwards on noise, for a square and, where the family takes them, a rectangle both ways.
"""

from __future__ import annotations

import fnmatch
from typing import Any, NamedTuple

import pytest
import timm
import torch
from timm.models.convmixer import ConvMixer
from timm.models.efficientvim import EfficientViM
from timm.models.focalnet import FocalNet
from timm.models.gcvit import GlobalContextVit
from timm.models.levit import Levit
from timm.models.metaformer import MetaFormer
from timm.models.mlp_mixer import MlpMixer
from timm.models.mvitv2 import MultiScaleVit, MultiScaleVitCfg
from timm.models.nest import Nest
from timm.models.pit import PoolingVisionTransformer
from timm.models.vgg import VGG
from timm.models.visformer import Visformer
from timm.models.volo import VOLO
from torch import Tensor, nn

import explainer
from explainer.testing import assert_layout, perturb


class Member(NamedTuple):
    """A member of a family, made small.

    Attributes:
        make: Name of the architecture, or its class.
        side: Side of the square input.
        options: What it is made with.
        cut: Patterns of blocks that are left out, as a smaller member would.
        other: Width of a rectangle that it can be built for, where it takes only the input that it is built for; 0
            where there is none.
        double: Whether single precision would lose what is left of the picture after so many layers.
    """

    make: str | type[nn.Module]
    side: int
    options: dict[str, Any] = {}  # noqa: RUF012
    cut: tuple[str, ...] = ()
    other: int | None = None
    double: bool = False


VIT = {"img_size": 64, "embed_dim": 64, "depth": 2, "num_heads": 2}
VIT_14 = {**VIT, "img_size": 56}
FOUR = (1, 1, 1, 1)
WIDTHS = (16, 32, 64, 128)
HEADS = (1, 2, 4, 8)
WINDOWS = {"img_size": 128, "embed_dim": 48, "window_size": 4, "depths": FOUR}

FAMILIES = {
    "beit": Member("beit_base_patch16_224", 64, VIT),
    "byoanet": Member("eca_botnext26ts_256", 128, {"img_size": (128, 128)}, cut=("stages.[01].1",), other=96),
    "byobnet": Member("test_byobnet", 96),
    "cait": Member("cait_xxs24_224", 64, {**VIT, "embed_dim": 48}, other=48),
    "coat": Member("coat_lite_tiny", 128, {"img_size": 128, "serial_depths": FOUR}, other=96),
    "convit": Member("convit_tiny", 64, {**VIT, "local_up_to_layer": 1}, other=0),
    "convmixer": Member(ConvMixer, 56, {"dim": 32, "depth": 2, "kernel_size": 5, "patch_size": 7}),
    "convnext": Member("test_convnext", 96),
    "cpubone": Member("cpubone_nano", 128),
    "crossvit": Member("crossvit_tiny_240", 240, {"depth": ((1, 1, 0),)}),
    "csatv2": Member("csatv2", 256, {"dims": (16, 32, 64, 128), "depths": FOUR, "transformer_depths": (0, 0, 1, 1)}),
    "cspnet": Member("cs3darknet_s", 96),
    "cspnext": Member("cspnext_tiny", 128, double=True),
    "davit": Member("davit_tiny", 128, {"depths": FOUR, "embed_dims": WIDTHS, "num_heads": HEADS}),
    "deepseek_vit": Member("deepseek_vit_412m", 112, {**VIT, "img_size": 112}),
    "deit": Member("deit_tiny_distilled_patch16_224", 64, VIT),
    "densenet": Member("densenet121", 96, {"block_config": (2, 2, 2, 2)}),
    "dla": Member("dla46_c", 96),
    "dpn": Member("dpn48b", 96, {"k_sec": FOUR}),
    "edgenext": Member("edgenext_xx_small", 128, {"depths": (1, 2, 2, 2)}),
    "efficientformer": Member("efficientformer_l1", 224, {"depths": (1, 1, 1, 2)}, other=0),
    "efficientformer_v2": Member("efficientformerv2_s0", 128, {"img_size": 128, "depths": (1, 1, 1, 2)}, other=96),
    "efficientnet": Member("test_efficientnet", 96),
    "efficientvim": Member(EfficientViM, 256, {"embed_dim": (16, 32, 64), "depths": (1, 1, 1)}),
    "efficientvit_mit": Member("efficientvit_b0", 128),
    "efficientvit_msra": Member("efficientvit_m0", 192, {"img_size": 192, "depth": (1, 1, 1)}),
    "eva": Member("eva02_tiny_patch14_224", 56, VIT_14),
    "fasternet": Member("fasternet_t0", 96),
    "fastvit": Member("fastvit_t8", 128, {"layers": FOUR}),
    "focalnet": Member(FocalNet, 96, {"embed_dim": 16, "depths": FOUR}),
    "gcvit": Member(
        GlobalContextVit, 128, {"img_size": 128, "embed_dim": 16, "depths": FOUR, "num_heads": HEADS}, other=256
    ),
    "gemma4_vit": Member("gemma4_vit_167m", 192, {**VIT, "img_size": 192}),
    "ghostnet": Member("ghostnet_050", 128),
    "hardcorenas": Member("hardcorenas_a", 160, cut=("blocks.[1-4].[1-9]",)),
    "hgnet": Member("hgnetv2_b0", 96),
    "hiera": Member("hiera_tiny_224", 224, {"embed_dim": 16, "num_heads": 1, "stages": FOUR}, other=448),
    "hieradet_sam2": Member(
        "hieradet_small", 128, {"embed_dim": 16, "num_heads": 1, "stages": FOUR, "global_att_blocks": ()}
    ),
    "hrnet": Member("hrnet_w18_small", 96),
    "iformer": Member("iformer_t", 96),
    "inception_next": Member("inception_next_atto", 96),
    "inception_resnet_v2": Member("inception_resnet_v2", 171, cut=("repeat.[1-9]", "repeat_[12].[1-9]", "repeat_1.1?")),
    "inception_v3": Member("inception_v3", 203, cut=("Mixed_5d", "Mixed_6[bcde]", "Mixed_7c")),
    "inception_v4": Member("inception_v4", 171, cut=("features.[789]", "features.1[2-7]", "features.2[01]")),
    "lcnetv2": Member("lcnetv2_small", 128, double=True),
    "levit": Member(
        Levit, 128, {"img_size": 128, "embed_dim": (64,), "depth": (2,), "num_heads": (2,), "key_dim": 16}, other=96
    ),
    "lowformer": Member("lowformer_b0", 96),
    "mambaout": Member("test_mambaout", 96),
    "maxxvit": Member("test_coatnet", 96, {"img_size": 96}),
    "metaformer": Member(MetaFormer, 128, {"depths": FOUR, "dims": WIDTHS}),
    "mlp_mixer": Member(MlpMixer, 64, {"img_size": 64, "num_blocks": 2, "embed_dim": 64}, other=48),
    "mobilenetv3": Member("mobilenetv3_small_050", 128),
    "mobilenetv5": Member(
        "mobilenetv5_base", 128, {"channel_multiplier": 0.125}, cut=("blocks.[23].[6-9]", "blocks.[23].1?")
    ),
    "mobilevit": Member("mobilevit_xxs", 192),
    "mvitv2": Member(
        MultiScaleVit,
        128,
        {"cfg": MultiScaleVitCfg(depths=FOUR, embed_dim=16, use_cls_token=True), "img_size": (128, 128)},
    ),
    "naflexvit": Member("naflexvit_base_patch16_gap", 64, {"embed_dim": 64, "depth": 2, "num_heads": 2}),
    "nasnet": Member(
        "nasnetalarge",
        128,
        {"num_features": 192, "stem_size": 24},
        cut=("cell_[2-5]", "cell_[89]", "cell_1[01]", "cell_1[4-7]"),
    ),
    "nest": Member(
        Nest, 64, {"img_size": 64, "embed_dims": (16, 32, 64), "num_heads": (1, 2, 4), "depths": (1, 1, 1)}, other=0
    ),
    "nextvit": Member("nextvit_small", 96, {"depths": (1, 2, 5, 2)}),
    "nfnet": Member("test_nfnet", 96),
    "pit": Member(
        PoolingVisionTransformer,
        112,
        {"img_size": 112, "base_dims": (16, 16, 16), "depth": (1, 1, 1), "heads": (1, 2, 4)},
        other=84,
    ),
    "pnasnet": Member("pnasnet5large", 128, cut=("cell_[23]", "cell_[67]", "cell_1[01]")),
    "pvt_v2": Member("pvt_v2_b0", 96, {"depths": FOUR}),
    "qwen3_vit": Member("qwen3_vit_88m", 128, {**VIT, "img_size": 128}),
    "rdnet": Member("rdnet_tiny", 96, {"num_blocks_list": (1,) * 7}),
    "regnet": Member("regnetx_002", 128),
    "repghost": Member("repghostnet_050", 128),
    "repvit": Member("repvit_m0_9", 128, {"depth": FOUR}),
    "res2net": Member("res2net50_48w_2s", 96, {"layers": FOUR}),
    "resnest": Member("resnest14d", 96),
    "resnet": Member("test_resnet", 96),
    "resnetv2": Member("resnetv2_18", 96, {"layers": FOUR}),
    "rexnet": Member("rexnet_100", 128, {"depth_mult": 0.4}),
    "selecsls": Member("selecsls42", 160),
    "senet": Member("legacy_seresnet18", 96),
    "sequencer": Member(
        "sequencer2d_s", 112, {"layers": FOUR, "embed_dims": (32, 32, 64, 64), "hidden_sizes": (8, 8, 16, 16)}
    ),
    "shvit": Member("shvit_s1", 192),
    "sknet": Member("skresnet18", 96, {"layers": FOUR}),
    "starnet": Member("starnet_s050", 96),
    "swiftformer": Member("swiftformer_xs", 96),
    "swin_transformer": Member("swin_tiny_patch4_window7_224", 128, {**WINDOWS, "embed_dim": 16}),
    "swin_transformer_v2": Member("swinv2_tiny_window8_256", 128, WINDOWS),
    "swin_transformer_v2_cr": Member("swinv2_cr_tiny_224", 128, WINDOWS),
    "tiny_vit": Member("tiny_vit_5m_224", 128, {"depths": FOUR}),
    "tnt": Member("tnt_s_legacy_patch16_224", 64, {"img_size": 64, "depth": 2}, other=48),
    "tresnet": Member("tresnet_m", 96, {"layers": FOUR}),
    "twins": Member("twins_svt_small", 128, {"img_size": 128, "depths": (1, 1, 2, 1)}),
    "vgg": Member(VGG, 128, {"cfg": [16, "M", 16, "M", 32, "M", 32, "M", 32, "M"], "mlp_ratio": 0.1}),
    "visformer": Member(
        Visformer,
        128,
        {"img_size": 128, "init_channels": 8, "embed_dim": 64, "depth": (1, 1, 1), "num_heads": 4},
        other=96,
    ),
    "vision_transformer": Member("test_vit", 64, {"img_size": 64}),
    "vision_transformer_hybrid": Member("vit_tiny_r_s16_p8_224", 128, {"img_size": 128, "depth": 2}),
    "vision_transformer_relpos": Member("test_vit_relpos", 64, {"img_size": 64}),
    "vision_transformer_sam": Member(
        "samvit_base_patch16_224",
        128,
        {**VIT, "img_size": 128, "global_attn_indexes": (1,)},
    ),
    "vitamin": Member("vitamin_small_224", 64, {"img_size": 64, "depth": 2}),
    "volo": Member(
        VOLO,
        64,
        {
            "img_size": 64,
            "layers": FOUR,
            "embed_dims": (24, 48, 48, 48),
            "num_heads": (2, 4, 4, 4),
            "stem_hidden_dim": 16,
        },
        other=48,
    ),
    "vovnet": Member("ese_vovnet19b_slim_dw", 96),
    "xception": Member("legacy_xception", 128, cut=("block[5-9]", "block1[01]")),
    "xception_aligned": Member("xception41p", 128, cut=("blocks.[3-9]", "blocks.10")),
    "xcit": Member("xcit_nano_12_p16_224", 64, {"img_size": 64, "embed_dim": 64, "depth": 2, "num_heads": 2}),
}


SLOW = {"pnasnet"}


class Through(nn.Module):
    """Passes on the first of its inputs."""

    def forward(self, x: Tensor, *_others: Tensor) -> Tensor:
        return x


def small(member: Member, **options: Any) -> nn.Module:
    """Build a member with weights that let every part of it do something."""
    options = {"num_classes": 5, **member.options, **options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        named = isinstance(member.make, str)
        model = timm.create_model(member.make, **options) if named else member.make(**options)
    for pattern in member.cut:
        for name in [name for name, _ in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]:
            model.set_submodule(name, Through())
    return perturb(model).to(torch.float64 if member.double else torch.float32)


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in FAMILIES]
)
def test_each_corner_changes_its_own_corner(family: str) -> None:
    member = FAMILIES[family]
    if isinstance(member.make, str) and not timm.is_model(member.make):
        pytest.skip(f"this timm has no {member.make}")
    square = (member.side, member.side)
    ex = explainer.wrap(small(member), size=square)
    if member.other is None:
        proof = assert_layout(ex)
        assert (len({trial.size for trial in proof.trials}), proof.untried) == (3, ())
        return
    assert_layout(ex, square)
    if member.other:
        rectangle = (member.side, member.other)
        for size in (rectangle, rectangle[::-1]):
            assert_layout(explainer.wrap(small(member, img_size=size), size=size), size)


def test_every_family_is_here() -> None:
    assert set(timm.list_modules()) <= set(FAMILIES)
    for family, member in FAMILIES.items():
        if isinstance(member.make, type):
            assert member.make.__module__ == f"timm.models.{family}"
        elif timm.is_model(member.make):
            assert member.make in timm.list_models(module=family)
