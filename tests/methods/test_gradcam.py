"""Grad-CAM against a clone with an ordinary hook and a whole backward pass per picture and target.

Families: timm residual, ConvNeXt, DenseNet, EfficientNet-Lite, ViT (class token, average pooling,
distilled, registers), EVA, BEiT, Swin (NHWC), Mixer; torchvision ResNet; open_clip ViT and ResNet with
direction targets. Batch of three, two targets, with gradients on, in no_grad, in inference_mode, with
frozen parameters. Real size (slow): the networks of the table at their own input size, and open_clip RN50,
ViT-B/32 and ViT-B/16.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import pytest
import timm
import torch
from oracles import gradcam_clone
from oracles.helpers import (
    TIMM,
    assert_same_maps,
    built,
    clip_model,
    random_directions,
    random_images,
    timm_model,
)
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.models import resnet18

import explainer

from .common import explained

CLASSES = [1, 4]


class Case(NamedTuple):
    """Where the default layer of a family is, as the formula wants it."""

    layer: str
    layout: str = "NCHW"
    prefix: int = 0


DEFAULTS = {
    "small_resnet50": Case("layer4"),
    "convnext": Case("norm_pre"),
    "densenet121": Case("features"),
    "efficientnet_lite0": Case("bn2"),
    "vit": Case("blocks.11.norm1", "NLC", 1),
    "vit_avg": Case("norm", "NLC", 1),
    "deit_distilled": Case("blocks.11.norm1", "NLC", 2),
    "dinov2_reg": Case("blocks.6.norm1", "NLC", 5),
    "eva_rope_fused": Case("blocks.3.norm1", "NLC", 1),
    "beit": Case("norm", "NLC", 1),
    "swin": Case("norm", "NHWC"),
    "mixer": Case("norm", "NLC"),
}


def chosen_classes(logits: Tensor) -> Tensor:
    return logits[0, CLASSES]


def cosine_scores(directions: Tensor) -> Callable[[Tensor], Tensor]:
    """The scalar of a direction target: the cosine of the embedding with it."""
    return lambda embedding: F.normalize(embedding, dim=-1)[0] @ F.normalize(directions, dim=-1).T


@contextmanager
def count_calls(module: nn.Module) -> Iterator[list[int]]:
    calls: list[int] = []
    handle = module.register_forward_pre_hook(lambda _m, args: calls.append(len(args[0])))
    yield calls
    handle.remove()


SIGNED = {"name": "gradcam", "relu": False}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_layer(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1].get("img_size", 96))
    case, ex = DEFAULTS[name], explained(model)
    expected = gradcam_clone(model, case.layer, images, chosen_classes, case.layout, case.prefix, relu=False)
    assert_same_maps(ex(images, CLASSES, method=SIGNED).maps, expected)
    positive = ex(images, CLASSES, method="gradcam").maps
    assert positive.min() >= 0
    assert (positive - expected.clamp_min(0)).abs().max() <= 1e-5 * expected.abs().max()


def test_relu_is_the_papers() -> None:
    model, images = timm_model("resnet18"), random_images(3, 160)
    maps = explained(model)(images, CLASSES, method="gradcam").maps
    assert_same_maps(maps, gradcam_clone(model, "layer4", images, chosen_classes))


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("resnet18", Case("layer4.1.bn2")),  # written over in place by the shortcut right after
        ("resnet18", Case("layer2")),
        ("resnet18", Case("layer3.0.act1")),
        ("vit", Case("blocks.5", "NLC", 1)),
        ("dinov2_reg", Case("blocks.3.norm2", "NLC", 5)),
        ("swin", Case("layers.2", "NHWC")),
        ("densenet121", Case("features.denseblock4")),
    ],
    ids=lambda value: value if isinstance(value, str) else value.layer,
)
def test_named_layer_signed(name: str, case: Case) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1].get("img_size", 64))
    method = {**SIGNED, "layer": case.layer}
    maps = explained(model)(images, CLASSES, method=method).maps
    expected = gradcam_clone(model, case.layer, images, chosen_classes, case.layout, case.prefix, relu=False)
    assert_same_maps(maps, expected)
    assert maps.min() < 0 < maps.max()


@pytest.mark.parametrize("frozen", [False, True], ids=["trainable", "frozen"])
@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", ["resnet18", "vit", "eva_rope_fused"])
def test_modes(name: str, mode: Callable[[], AbstractContextManager], frozen: bool) -> None:
    model = copy.deepcopy(timm_model(name)).requires_grad_(not frozen)
    images = random_images(3, TIMM[name][1].get("img_size", 64))
    ex = explainer.wrap(model)
    with mode():
        maps = ex(images.clone(), CLASSES, method=SIGNED).maps
    case = {"resnet18": Case("layer4"), **DEFAULTS}[name]
    expected = gradcam_clone(model, case.layer, images, chosen_classes, case.layout, case.prefix, relu=False)
    assert_same_maps(maps, expected)
    assert not maps.requires_grad
    assert all(p.grad is None and p.requires_grad is not frozen for p in model.parameters())


@pytest.mark.parametrize("name", ["resnet18", "vit"])
def test_two_targets_from_one_forward(name: str) -> None:
    model, images = timm_model(name), random_images(3, 64)
    ex = explained(model)
    ex(images, CLASSES, method="gradcam")
    entrance = model.conv1 if name == "resnet18" else model.patch_embed
    with count_calls(entrance) as calls:
        ex(images, CLASSES, method="gradcam")
    assert calls == [3]


def test_pictures_of_another_size() -> None:
    model, images = timm_model("resnet18"), random_images(3, 96, 160)
    maps = explained(model)(images, CLASSES, method=SIGNED).maps
    assert maps.shape == (3, 2, 3, 5)
    assert_same_maps(maps, gradcam_clone(model, "layer4", images, chosen_classes, relu=False))


def test_rectangular_tokens() -> None:
    model, images = timm_model("vit_dynamic"), random_images(3, 48, 80)
    maps = explained(model)(images, CLASSES, method=SIGNED).maps
    expected = gradcam_clone(model, "blocks.11.norm1", images, chosen_classes, "NLC", 1, grid=(3, 5), relu=False)
    assert_same_maps(maps, expected)


def test_only_negative_evidence_is_said() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    nn.init.constant_(model[4].weight, 0.5)  # every activation speaks for every class
    against = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]])
    e = explainer.wrap(model, size=(32, 32))(random_images(1, 32), against, method="gradcam")
    assert e.warnings[0] == "all evidence for some target is negative, and Grad-CAM cuts it off; relu=False shows it"
    assert e.maps[0, 0].max() > 0
    assert e.maps[0, 1].max() == 0


def test_torchvision() -> None:
    model, images = built(lambda: resnet18(num_classes=7)), random_images(3, 96)
    maps = explainer.wrap(model)(images, CLASSES, method={**SIGNED, "layer": "layer4"}).maps
    assert_same_maps(maps, gradcam_clone(model, "layer4", images, chosen_classes, relu=False))


OPEN_CLIP = {
    "small": (Case("transformer.resblocks.6.ln_1", "NLC", 1), 32),
    "small_layer_scale": (Case("transformer.resblocks.6.ln_1", "NLC", 1), 32),
    "small_resnet": (Case("layer4"), 96),
}


@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode], ids=lambda m: m.__name__)
@pytest.mark.parametrize("name", OPEN_CLIP)
def test_open_clip(name: str, mode: Callable[[], AbstractContextManager]) -> None:
    model, directions = clip_model(name), random_directions(2, 48)
    case, size = OPEN_CLIP[name]
    images = random_images(3, size)
    ex = explained(model)
    with mode():
        maps = ex(images, directions, method=SIGNED).maps
    expected = gradcam_clone(
        model.visual, case.layer, images, cosine_scores(directions), case.layout, case.prefix, relu=False
    )
    assert_same_maps(maps, expected)


def test_open_clip_named_layer() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    method = {**SIGNED, "layer": "visual.transformer.resblocks.3"}
    maps = explained(model)(images, directions, method=method).maps
    expected = gradcam_clone(
        model.visual, "transformer.resblocks.3", images, cosine_scores(directions), "NLC", 1, relu=False
    )
    assert_same_maps(maps, expected)


REAL = {
    "resnet50": Case("layer4"),
    "convnext_atto": Case("norm_pre"),
    "densenet121": Case("features"),
    "vit_tiny_patch16_224": Case("blocks.11.norm1", "NLC", 1),
    "vit_small_patch14_reg4_dinov2": Case("blocks.11.norm1", "NLC", 5),
    "swin_tiny_patch4_window7_224": Case("norm", "NHWC"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_size(name: str) -> None:
    sized = {"img_size": 224} if "dinov2" in name else {}
    model = built(lambda: timm.create_model(name, pretrained=False, num_classes=7, **sized))
    case, images = REAL[name], random_images(3, 224)
    maps = explainer.wrap(model)(images, CLASSES, method=SIGNED).maps
    expected = gradcam_clone(model, case.layer, images, chosen_classes, case.layout, case.prefix, relu=False)
    assert_same_maps(maps, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "width", "case"),
    [
        ("rn50", 1024, Case("layer4")),
        ("vit_b_32", 512, Case("transformer.resblocks.11.ln_1", "NLC", 1)),
        ("vit_b_16", 512, Case("transformer.resblocks.11.ln_1", "NLC", 1)),
    ],
)
def test_open_clip_real_size(name: str, width: int, case: Case) -> None:
    model, directions, images = clip_model(name), random_directions(2, width), random_images(3, 224)
    ex = explained(model)
    maps = ex(images, directions, method=SIGNED).maps
    expected = gradcam_clone(
        model.visual, case.layer, images, cosine_scores(directions), case.layout, case.prefix, relu=False
    )
    assert_same_maps(maps, expected)
