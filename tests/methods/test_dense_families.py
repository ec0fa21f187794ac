"""Every method over attention on a small member of every family of timm with dense softmax attention.

Shrunk by what their constructors take; sizes at which the last stage of a windowed model is one window. Families whose
attention is none over the patches (channels, parts of patches, factorised) are refused, and so is GEM where a block
attends and adds in one module.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import pytest
import timm
import torch
from oracles.helpers import built, difference, random_images
from torch import Tensor, nn

import explainer
from explainer.attention import ordinary
from explainer.intercept import intercept

ATTENTION_MAPS = ("query_key", "query_query", "key_key", "value_value")
CLASSES = [1, 3]


class Member(NamedTuple):
    """A small member of a family.

    `blocks` attend densely over a grid of `attended` cells a side, `stream` of them add to the last residual stream,
    and the last map has `last` cells a side.
    """

    name: str
    options: dict[str, Any]
    side: int
    blocks: int
    stream: int
    attended: int
    last: int


def vit(name: str, blocks: int = 2, stream: int | None = None, side: int = 64, **options: Any) -> Member:
    """Two layers over 4 x 4 patches."""
    sizes = {"img_size": side, "embed_dim": 64, "depth": 2, "num_heads": 4, **options}
    return Member(name, sizes, side, blocks, blocks if stream is None else stream, 4, 4)


LEVIT = {"img_size": 224, "embed_dim": (32, 48, 72), "num_heads": (2, 3, 4), "depth": (1, 1, 2)}
SWIN = {"img_size": 64, "embed_dim": 16, "depths": (1, 1, 1, 2), "num_heads": (1, 2, 2, 4), "window_size": 2}
CROSSVIT = {"img_size": 240, "embed_dim": (16, 32), "num_heads": (2, 4), "depth": ((1, 2, 0), (1, 1, 0))}
TINY_VIT = {"depths": (1, 1, 1, 2), "embed_dims": (16, 32, 64, 64), "num_heads": (1, 1, 2, 2)}
TWINS = {"img_size": 128, "depths": (1, 1, 1, 2), "embed_dims": (16, 32, 48, 64), "num_heads": (1, 1, 2, 2)}
DAVIT = {"depths": (1, 1, 1, 1), "embed_dims": (16, 32, 48, 64), "num_heads": (1, 2, 3, 4), "window_size": 2}
SAM2 = {"embed_dim": 16, "num_heads": 1, "stages": (1, 1, 2, 2), "global_att_blocks": (3,)}
EFFICIENTFORMER = {"depths": (1, 1, 1, 2), "embed_dims": (16, 32, 48, 64), "num_vit": 1}
EFFICIENTFORMER_V2 = {"img_size": 128, "depths": (1, 1, 2, 2), "embed_dims": (16, 24, 32, 48)}
PIT = {"img_size": 112, "depth": (1, 1, 2), "base_dims": (16, 16, 16)}
FAMILIES = {
    "vit": vit("vit_tiny_patch16_224"),
    "deit distilled": vit("deit_tiny_distilled_patch16_224"),
    "beit": vit("beit_base_patch16_224"),
    "eva": vit("eva02_tiny_patch14_336", side=56),
    "perception encoder": vit("vit_pe_core_tiny_patch16_384"),
    "dinov3": vit("vit_small_patch16_dinov3"),
    "relative positions": vit("vit_relpos_small_patch16_224"),
    "relative positions, norm behind": vit("vit_relpos_small_patch16_rpn_224"),
    "naflex": vit("naflexvit_base_patch16_gap"),
    "gemma4": vit("gemma4_vit_167m"),
    "cait": vit("cait_xxs24_224"),
    "parallel": vit("vit_small_patch16_18x2_224", 4),
    "differential": vit("vit_dlittle_patch16_reg1_gap_256"),
    "parallel scaling": vit("vit_pwee_patch16_reg1_gap_256", stream=0),
    "differential parallel scaling": vit("vit_dpwee_patch16_reg1_gap_256", stream=0),
    "convit": Member("convit_tiny", {"img_size": 64, "depth": 3, "local_up_to_layer": 1}, 64, 3, 2, 4, 4),
    "hybrid": Member(
        "vit_tiny_r_s16_p8_224", {"img_size": 64, "depth": 2, "embed_dim": 64, "num_heads": 4}, 64, 2, 2, 2, 2
    ),
    "vitamin": Member("vitamin_small_224", {"img_size": 64, "depth": 2}, 64, 2, 2, 4, 4),
    "samvit": Member(
        "samvit_base_patch16_224",
        {"img_size": 64, "embed_dim": 64, "depth": 3, "num_heads": 4, "window_size": 4, "neck_chans": 24},
        64,
        3,
        3,
        4,
        4,
    ),
    "tnt": Member(
        "tnt_s_patch16_224", {"depth": 2, "img_size": 64, "embed_dim": 48, "num_heads_outer": 4}, 64, 2, 2, 4, 4
    ),
    "crossvit": Member("crossvit_tiny_240", CROSSVIT, 240, 3, 3, 14, 14),
    "pit": Member("pit_ti_224", PIT, 112, 2, 2, 4, 4),
    "levit": Member("levit_128s", LEVIT, 224, 2, 2, 4, 4),
    "levit, convolutions": Member("levit_conv_128s", LEVIT, 224, 2, 2, 4, 4),
    "efficientformer": Member("efficientformer_l1", EFFICIENTFORMER, 224, 1, 1, 7, 7),
    "efficientformer v2": Member("efficientformerv2_s0", EFFICIENTFORMER_V2, 128, 4, 2, 4, 4),
    "efficientvit msra": Member("efficientvit_m0", {"img_size": 128, "depth": (1, 1, 2)}, 128, 2, 2, 2, 2),
    "botnet": Member("botnet26t_256", {"img_size": 96}, 96, 1, 1, 3, 3),
    "coatnet": Member("test_coatnet", {}, 160, 1, 1, 5, 5),
    "maxvit": Member("test_maxvit", {"img_size": 160}, 160, 2, 2, 5, 5),
    "caformer": Member("caformer_s18", {}, 64, 3, 1, 2, 2),
    "mobilenetv4 hybrid": Member("mobilenetv4_hybrid_medium_075", {}, 96, 4, 4, 3, 3),
    "fastvit": Member("fastvit_sa12", {"layers": (1, 1, 1, 2)}, 96, 2, 2, 3, 3),
    "mvitv2": Member("mvitv2_tiny", {"img_size": 96}, 96, 1, 1, 3, 3),
    "mvitv2, class token": Member("mvitv2_small_cls", {"img_size": 64}, 64, 1, 1, 2, 2),
    "nest": Member("nest_tiny", {"img_size": 64}, 64, 8, 8, 4, 4),
    "nextvit": Member("nextvit_small", {}, 64, 1, 1, 2, 2),
    "pvt v2": Member("pvt_v2_b0", {"depths": (1, 1, 1, 2)}, 96, 2, 2, 3, 3),
    "shvit": Member("shvit_s1", {"depth": (1, 1, 2)}, 128, 2, 2, 2, 2),
    "swin": Member("swin_tiny_patch4_window7_224", SWIN, 64, 2, 2, 2, 2),
    "swin v2": Member("swinv2_tiny_window8_256", SWIN, 64, 2, 2, 2, 2),
    "swin v2 cr": Member("swinv2_cr_tiny_224", SWIN, 64, 2, 2, 2, 2),
    "tiny vit": Member("tiny_vit_5m_224", {**TINY_VIT, "window_sizes": (2, 2, 4, 2)}, 64, 2, 1, 2, 2),
    "twins": Member("twins_svt_small", TWINS, 128, 1, 1, 4, 4),
    "visformer": Member("visformer_tiny", {"img_size": 96}, 96, 4, 4, 3, 3),
    "volo": Member("volo_d1_224", {"img_size": 64}, 64, 14, 14, 4, 4),
    "hiera": Member("hiera_tiny_224", {"embed_dim": 16, "num_heads": 1, "stages": (1, 1, 1, 2)}, 224, 1, 1, 7, 7),
    "sam2 hiera": Member("sam2_hiera_tiny", SAM2, 224, 1, 1, 7, 7),
    # Windows of 7 x 7 reach beyond 4 x 4 cells; the block that attends to all is of the stage before.
    "sam2 hiera, windows that are filled up": Member("sam2_hiera_tiny", SAM2, 128, 1, 1, 8, 4),
    "iformer": Member("iformer_t", {}, 96, 2, 2, 3, 3),
    "lowformer": Member("lowformer_b0", {}, 96, 7, 4, 3, 3),
    "cpubone": Member("cpubone_nano", {}, 96, 3, 2, 3, 3),
    "csatv2": Member("csatv2", {}, 128, 2, 2, 2, 2),
    "gcvit": Member("gcvit_xxtiny", {"img_size": 64}, 64, 2, 2, 2, 2),
    "davit": Member("davit_tiny", DAVIT, 64, 1, 1, 2, 2),
}


@lru_cache(maxsize=1)
def member(name: str, options: tuple[tuple[str, Any], ...], side: int) -> explainer.Explainer:
    """The model, with statistics of its batch norms that fit, so that nothing dies out or explodes on the way."""
    model = built(lambda: timm.create_model(name, num_classes=5, **dict(options)))
    norms = [m for m in model.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    if norms:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model.train()(random_images(8, side, seed=9))
    return explainer.wrap(model.eval(), size=(side, side))


def explained(family: str) -> explainer.Explainer:
    found = FAMILIES[family]
    return member(found.name, tuple(found.options.items()), found.side)


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    ex, expected = explained(family), FAMILIES[family]
    geometry = ex.encoder.geometry((expected.side, expected.side))
    assert (len(geometry.blocks), len(geometry.stream)) == (expected.blocks, expected.stream)
    check_identity(ex, expected.side)
    images = random_images(2, expected.side)
    for method in (*ATTENTION_MAPS, "self_self", "gem"):
        if method == "gem" and not expected.stream:
            continue
        maps = ex(images, CLASSES, method=method).maps
        cells = expected.attended if method in ATTENTION_MAPS else expected.last
        assert maps.shape == (2, 2, cells, cells), method
        assert maps.isfinite().all(), method
        assert (maps.flatten(2).std(dim=2) > 1e-3 * maps.abs().max()).all(), f"{method} shows nothing"


def check_identity(ex: explainer.Explainer, side: int) -> None:
    """Replacing every attention by itself changes nothing."""
    images, model = random_images(2, side), ex.encoder.model
    with torch.no_grad():
        plain = model(images)
        with ex.encoder.session() as hooks:
            tap = intercept(hooks, rule=ordinary)
            output = ex.encoder.forward(images, hooks)
    assert tap.calls
    assert difference(output, plain) <= 1e-5


def at(ex: explainer.Explainer, images: Tensor, point: tuple[float, float], block: int, heads: str = "mean") -> Tensor:
    """The q-k map of one block for an anchor point."""
    return ex(images, [1], method={"name": "query_key", "point": point, "block": block, "heads": heads}).maps


@pytest.mark.parametrize(
    ("family", "blocks", "prefix"),
    [("cait", (0, 1), (0, 0)), ("convit", (0, 1, 2), (0, 1, 1)), ("beit", (0, 1), (1, 1))],
)
def test_weights_are_shown_as_they_are_applied(family: str, blocks: tuple[int, ...], prefix: tuple[int, ...]) -> None:
    """Mixed over the heads, or gated; the class token of ConViT joins behind its gated blocks."""
    ex, images = explained(family), random_images(2, 64)
    for block, before in zip(blocks, prefix, strict=True):
        owner = ex.encoder.model.blocks[block].attn
        owner.fused_attn = False
        with torch.no_grad(), ex.encoder.session() as hooks:
            tap = hooks.tap(owner.attn_drop)
            ex.encoder.forward(images, hooks)
        rows = tap.value[:, :, before + 4 * 1 + 2, before:].unflatten(2, (4, 4))
        torch.testing.assert_close(at(ex, images, (0.6, 0.4), block)[:, 0], rows.mean(dim=1))
        torch.testing.assert_close(at(ex, images, (0.6, 0.4), block, "each"), rows)


def test_heads_that_attend_one_after_the_other() -> None:
    ex, images = explained("efficientvit msra"), random_images(2, 128)
    each = at(ex, images, (0.6, 0.4), -1, "each")
    assert each.shape == (2, 4, 2, 2)
    torch.testing.assert_close(each.mean(dim=1), at(ex, images, (0.6, 0.4), -1)[:, 0])
    torch.testing.assert_close(each.sum(dim=(2, 3)), torch.ones(2, 4))
    assert (each.std(dim=1) > 1e-3).all()


def test_anchors_are_moved_to_the_grid_that_attends() -> None:
    """The most similar cell of a last map of 4 x 4, where attention is over 8 x 8."""
    ex = explained("sam2 hiera, windows that are filled up")
    images = random_images(3, 128)
    best = ex(images, [1], method="similarity").maps.flatten(2).argmax(dim=2).flatten().tolist()
    found = ex(images, [1], method="query_key").maps
    for row, cell in enumerate(best):
        point = ((cell % 4 + 0.5) / 4, (cell // 4 + 0.5) / 4)
        assert torch.equal(found[row], at(ex, images, point, -1)[row])


NO_ATTENTION = "it has no dense softmax attention over its patches that could be reached"
NO_STREAM = "what its attentions add to the patches could not be followed to its last map"
READABLE = "cam, gradcam, similarity"
WITH_ATTENTION = "cam, gradcam, key_key, query_key, query_query, self_self, similarity, value_value"


@pytest.mark.parametrize("family", ["parallel scaling", "differential parallel scaling"])
def test_gem_needs_a_stream(family: str) -> None:
    with pytest.raises(explainer.ExplainerError) as caught:
        explained(family)(random_images(1, 64), CLASSES, method="gem")
    assert str(caught.value) == (
        f"method 'gem' does not fit timm:{FAMILIES[family].name}: {NO_STREAM}; methods that fit: {WITH_ATTENTION}"
    )


XCIT = {"embed_dim": 64, "depth": 2, "num_heads": 4, "img_size": 64}
REFUSED: dict[str, tuple[str, dict[str, Any], int]] = {
    "channels": ("xcit_nano_12_p16_224", XCIT, 64),
    "as many channels as tokens": ("xcit_nano_12_p16_224", {**XCIT, "num_heads": 1, "img_size": 128}, 128),
    "parts of patches": ("mobilevit_xxs", {}, 64),
    "channels, among convolutions": ("edgenext_xx_small", {"depths": (1, 1, 2, 1)}, 64),
    "factorised": ("coat_lite_tiny", {"img_size": 64, "serial_depths": (1, 1, 1, 1)}, 64),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_attention_that_is_not_over_the_patches(kind: str) -> None:
    name, options, side = REFUSED[kind]
    ex = member(name, tuple(options.items()), side)
    check = check_identity if kind != "factorised" else lambda *_: None
    check(ex, side)
    for method in (*ATTENTION_MAPS, "self_self", "gem"):
        with pytest.raises(explainer.ExplainerError) as caught:
            ex(random_images(1, side), CLASSES, method=method)
        assert str(caught.value) == (
            f"method '{method}' does not fit timm:{name}: {NO_ATTENTION}; methods that fit: {READABLE}"
        )
