"""Public reports about grids and layers: pytorch-grad-cam (pgc), TorchCAM, captum, DINOv2, timm.

What they share: a grid of 14 x 14 cells behind one class token is taken for granted, channels are looked for in the
wrong place, or a layer is taken that the score does not depend on, and the map that comes out is wrong or blank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
import torchvision
from encoders.common import message, small
from oracles import gradcam_clone
from oracles.helpers import SMALL, FakeTokenizer, assert_same_maps, built, clip, random_images
from torch import nn

import explainer

S = {"embed_dim": 32, "depth": 2, "num_heads": 2}
SWIN = {"embed_dim": 24, "depths": (1, 1), "num_heads": (1, 2)}


class Case(NamedTuple):
    """A model, its input, the grid that follows from both by hand, and where its last cells with a gradient are."""

    report: str
    make: Callable[[], nn.Module]
    size: tuple[int, int]
    grid: tuple[int, int]
    layer: str
    layout: str = "NCHW"
    prefix: int = 0


def vit(report: str, name: str, size: tuple[int, int], patch: int, prefix: int, layer: str, **options: Any) -> Case:
    grid = (-(-size[0] // patch), -(-size[1] // patch))
    built_for = {} if options.get("dynamic_img_size") else {"img_size": size}
    return Case(
        report, lambda: small(name, num_classes=7, **{**built_for, **options, **S}), size, grid, layer, "NLC", prefix
    )


def cnn(report: str, name: str, side: int, stride: int, layer: str, **options: Any) -> Case:
    cells = -(-side // stride)
    return Case(report, lambda: small(name, num_classes=7, **options), (side, side), (cells, cells), layer)


NORM = "blocks.1.norm1"
CASES = [
    vit("pgc 257 355 511 403 503: no reshape given", "vit_tiny_patch16_224", (224, 224), 16, 1, NORM),
    vit("pgc 509 76: 16 x 16 cells", "vit_small_patch14_dinov2", (224, 224), 14, 1, NORM),
    vit("pgc 509: patches of 32", "vit_tiny_patch16_224", (96, 96), 32, 1, NORM, patch_size=32),
    vit("registers", "vit_small_patch14_reg4_dinov2", (112, 112), 14, 5, NORM),
    vit("registers and rotary positions", "vit_small_patch16_dinov3", (96, 96), 16, 5, "norm"),
    vit("two class tokens", "deit_tiny_distilled_patch16_224", (64, 64), 16, 2, NORM),
    vit("no class token", "vit_base_patch16_siglip_224", (96, 96), 16, 0, "norm"),
    vit("averaged tokens", "vit_base_patch16_gap_224", (96, 96), 16, 0, "norm"),
    vit("pgc 51 452: wide", "vit_tiny_patch16_224", (64, 96), 16, 1, NORM),
    vit("DINOv2 153: tall", "vit_small_patch14_reg4_dinov2", (84, 56), 14, 5, NORM),
    vit("pgc 51 452: any size", "vit_tiny_patch16_224", (80, 128), 16, 1, NORM, dynamic_img_size=True),
    vit("padded", "vit_tiny_patch16_224", (75, 123), 16, 1, NORM, dynamic_img_size=True, dynamic_img_pad=True),
    vit("a wide input of a model for squares", "eva02_tiny_patch14_224", (56, 84), 14, 1, "norm"),
    vit("relative positions", "beit_base_patch16_224", (64, 64), 16, 1, "norm"),
    vit("the class token joins late", "cait_xxs24_224", (96, 96), 16, 1, "blocks_token_only.1.norm1"),
    Case(
        "pgc 426 445 84 99 124 125 448, captum 392 916: channels last",
        lambda: small("swin_tiny_patch4_window7_224", num_classes=7, img_size=(64, 128), **SWIN),
        (64, 128),
        (8, 16),
        "norm",
        "NHWC",
    ),
    Case(
        "pgc 426: channels last",
        lambda: small("swinv2_tiny_window8_256", num_classes=7, img_size=64, **SWIN),
        (64, 64),
        (8, 8),
        "norm",
        "NHWC",
    ),
    Case("channels last", lambda: small("test_mambaout", num_classes=7), (96, 160), (3, 5), "stages", "NHWC"),
    Case("mixer", lambda: small("mixer_s32_224", num_classes=7, img_size=96), (96, 96), (3, 3), "norm", "NLC"),
    Case(
        "tokens of windows in another order",
        lambda: small("hiera_tiny_224", num_classes=7, embed_dim=16, num_heads=1, stages=(1, 1, 1, 1)),
        (224, 224),
        (7, 7),
        "blocks.3",
        "NLC",
    ),
    Case(
        "patches of convolutional features",
        lambda: small("vit_tiny_r_s16_p8_224", num_classes=7, img_size=(64, 128), **S),
        (64, 128),
        (2, 4),
        NORM,
        "NLC",
        1,
    ),
    cnn("TorchCAM 68 71 81: 1 x 1 convolution as classifier", "resnetv2_18", 64, 32, "norm"),
    cnn("efficientnet", "test_efficientnet", 96, 32, "bn2"),
    cnn("nfnet", "test_nfnet", 96, 32, "final_act"),
    Case(
        "TorchCAM 81: SqueezeNet",
        lambda: built(lambda: torchvision.models.squeezenet1_1(num_classes=7)),
        (96, 96),
        (5, 5),
        "classifier.2",
    ),
    Case(
        "a ViT of torchvision",
        lambda: built(lambda: torchvision.models.VisionTransformer(64, 16, 2, 2, 32, 64, num_classes=7)),
        (64, 64),
        (4, 4),
        "encoder.layers.encoder_layer_1.ln_1",
        "NLC",
        1,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.report)
def test_cells_lie_where_the_model_has_them(case: Case) -> None:
    model, pictures = case.make(), random_images(2, *case.size)
    ex = explainer.wrap(model, size=case.size)
    e = ex(pictures, 3, method="gradcam", relu=False)
    expected = gradcam_clone(
        model, case.layer, pictures, lambda out: out[0, [3]], case.layout, case.prefix, case.grid, relu=False
    )
    assert e.maps.shape[2:] == case.grid
    assert_same_maps(e.maps, expected)
    assert e.provenance.layer == case.layer
    assert e.heat().shape == (2, 1, *case.size)
    assert ex(pictures, [1]).maps.shape[2:] == case.grid, "the default method has another grid"


# Layers that the score does not depend on, patch by patch: pgc 513 363 140


class Pooled(NamedTuple):
    """A model whose head reads its class token alone, and the last layer whose patches still reach the score."""

    make: Callable[[], nn.Module]
    side: int
    better: str
    blank: tuple[str, ...]


def block(prefix: str, *parts: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{part}" if part else prefix for part in parts)


BEHIND = ("", "attn", "norm2", "mlp")
POOLED = {
    "vit": Pooled(
        lambda: small("vit_tiny_patch16_224", num_classes=7, img_size=64, **S),
        64,
        NORM,
        (*block("blocks.1", *BEHIND), "blocks", "norm"),
    ),
    "deit distilled": Pooled(
        lambda: small("deit_tiny_distilled_patch16_224", num_classes=7, img_size=64, **S),
        64,
        NORM,
        (*block("blocks.1", *BEHIND), "norm"),
    ),
    "registers": Pooled(
        lambda: small("vit_small_patch14_reg4_dinov2", num_classes=7, img_size=56, **S),
        56,
        NORM,
        (*block("blocks.1", *BEHIND), "norm"),
    ),
    "rotary": Pooled(
        lambda: small("eva02_tiny_patch14_224", num_classes=7, img_size=56, global_pool="token", **S),
        56,
        NORM,
        (*block("blocks.1", *BEHIND), "norm"),
    ),
    "torchvision": Pooled(
        lambda: built(lambda: torchvision.models.VisionTransformer(64, 16, 2, 2, 32, 64, num_classes=7)),
        64,
        "encoder.layers.encoder_layer_1.ln_1",
        (*block("encoder.layers.encoder_layer_1", "", "dropout", "ln_2", "mlp"), "encoder.ln"),
    ),
    "clip": Pooled(
        lambda: built(lambda: clip({**SMALL, "layers": 2})),
        32,
        "visual.transformer.resblocks.1.ln_1",
        (*block("visual.transformer.resblocks.1", "", "ln_2", "mlp"), "visual.transformer", "visual.ln_post"),
    ),
}


@pytest.mark.parametrize(("name", "layer"), [(name, layer) for name, each in POOLED.items() for layer in each.blank])
def test_a_map_that_would_be_blank_is_refused(name: str, layer: str) -> None:
    make, side, better, _ = POOLED[name]
    ex = wrapped(make(), side)
    asked = ["a bus"] if name == "clip" else [1]
    text = message(lambda: ex(random_images(2, side), asked, method="gradcam", layer=layer))
    assert text == (
        f"behind layer '{layer}' the model only reads its class token, so no patch has a gradient there and the map "
        f"would be all zero; use layer='{better}'"
    )
    found = ex(random_images(2, side), asked, method="gradcam", layer=better, relu=False).maps
    assert torch.equal(found, ex(random_images(2, side), asked, method="gradcam", relu=False).maps)
    assert (found.flatten(2).std(dim=2) > 1e-3 * found.abs().max()).all()


def wrapped(model: nn.Module, side: int) -> explainer.Explainer:
    if hasattr(model, "visual"):
        return explainer.wrap(model, tokenizer=FakeTokenizer())
    return explainer.wrap(model, size=(side, side))


@pytest.mark.parametrize("layer", [*block("blocks.1", "", "norm2", "mlp"), "norm"])
def test_the_same_layers_where_patches_are_averaged(layer: str) -> None:
    model = small("vit_tiny_patch16_224", num_classes=7, img_size=64, global_pool="avg", **S)
    found = explainer.wrap(model)(random_images(2, 64), [1], method="gradcam", layer=layer, relu=False).maps
    assert (found.flatten(2).std(dim=2) > 1e-3 * found.abs().max()).all()


# Heads: TorchCAM 68 71 81, "multiple fully connected layers"


def several_linear() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2),
        nn.ReLU(inplace=True),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, 16),
        nn.ReLU(inplace=True),
        nn.Linear(16, 7),
    )


@pytest.mark.parametrize(
    "make",
    [several_linear, lambda: torchvision.models.mobilenet_v3_small(num_classes=7)],
    ids=["as VGG and AlexNet", "MobileNetV3"],
)
def test_cam_is_refused_where_the_head_is_more_than_one_layer(make: Callable[[], nn.Module]) -> None:
    """A hidden layer leaves no row of weights to read cells with; Grad-CAM needs none."""
    ex = explainer.wrap(built(make), size=(64, 64))
    pictures = random_images(2, 64)
    fitting = ", ".join(fit.name for fit in ex.methods() if fit.fits)
    assert message(lambda: ex(pictures, 1, method="cam")) == (
        f"method 'cam' does not fit {ex.encoder.name}: nothing says what one cell of its last map means for its "
        f"output; methods that fit: {fitting}"
    )
    assert ex(pictures, 1).method in fitting
    assert float(ex(pictures, 1, method="gradcam", relu=False).maps.abs().max()) > 0


def test_a_head_of_two_classifiers_is_read_as_their_mean() -> None:
    model = small("deit_tiny_distilled_patch16_224", num_classes=7, img_size=64, **S)
    pictures = random_images(2, 64)
    maps = explainer.wrap(model)(pictures, [1, 3], method="cam").maps
    with torch.no_grad():
        tokens = model.forward_features(pictures)[:, 2:]
    rows = (model.head.weight + model.head_dist.weight)[[1, 3]].detach() / 2
    assert_same_maps(maps, (tokens @ rows.T).transpose(1, 2).reshape(2, 2, 4, 4))
