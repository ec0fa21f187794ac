"""CAM against Zhou's formula, and in proportion to Grad-CAM where the head is average pooling.

Families: timm residual, DenseNet, EfficientNet-Lite, RegNet, BiT (1x1-conv classifier), Swin (NHWC), Mixer
(tokens without prefix); the general form through the read-out on ViT (class token, fc_norm, registers) and
open_clip ViT, where a target is a unit direction. Real size (slow): resnet50 at 224, open_clip ViT-B/16.
"""

from __future__ import annotations

import pytest
import torch
from oracles import cam_gap, cam_tokens, open_clip_tower, timm_tower
from oracles.helpers import (
    TIMM,
    assert_same_maps,
    class_rows,
    clip_model,
    random_directions,
    random_images,
    timm_model,
)

from .common import explained

CLASSES = [1, 4]
POOLED = {
    "resnet18": "NCHW",
    "small_resnet50": "NCHW",
    "densenet121": "NCHW",
    "efficientnet_lite0": "NCHW",
    "regnet": "NCHW",
    "resnetv2": "NCHW",
    "swin": "NHWC",
    "mixer": "NLC",
}


@pytest.mark.parametrize("name", POOLED)
def test_average_pooled_heads(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1].get("img_size", 96))
    maps = explained(model)(images, CLASSES, method="cam").maps
    assert_same_maps(maps, cam_gap(model, images, CLASSES, POOLED[name]))


@pytest.mark.parametrize("name", POOLED)
def test_proportional_to_signed_gradcam(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1].get("img_size", 96))
    ex = explained(model)
    cam = ex(images, CLASSES, method="cam").maps
    gradcam = ex(images, CLASSES, method={"name": "gradcam", "relu": False}).maps
    assert_same_maps(gradcam * cam[0, 0].numel(), cam)


def test_mean_of_the_map_and_the_bias_make_the_logit() -> None:
    model, images = timm_model("resnet18"), random_images(3, 96, 160)
    maps = explained(model)(images, CLASSES, method="cam").maps
    with torch.no_grad():
        logits = model(images)[:, CLASSES]
    assert torch.allclose(maps.mean(dim=(2, 3)) + model.fc.bias[CLASSES], logits, atol=1e-5)


@pytest.mark.parametrize("name", ["vit", "vit_avg", "dinov2_reg"])
def test_tokens_through_the_readout(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"])
    maps = explained(model)(images, CLASSES, method="cam").maps
    assert_same_maps(maps, cam_tokens(timm_tower(model, images), class_rows(model, CLASSES)))


@pytest.mark.parametrize("name", ["small", "small_quickgelu", "small_tall"])
def test_open_clip(name: str) -> None:
    model, directions = clip_model(name), random_directions(2, 48)
    images = random_images(3, 48 if name == "small_tall" else 32, 32)
    maps = explained(model)(images, directions, method="cam").maps
    assert_same_maps(maps, cam_tokens(open_clip_tower(model.visual, images), directions))


@pytest.mark.slow
def test_real_size() -> None:
    model, images = timm_model("resnet50"), random_images(3, 224)
    maps = explained(model)(images, CLASSES, method="cam").maps
    assert_same_maps(maps, cam_gap(model, images, CLASSES))


@pytest.mark.slow
def test_open_clip_real_size() -> None:
    model, directions, images = clip_model("vit_b_16"), random_directions(2, 512), random_images(3, 224)
    maps = explained(model)(images, directions, method="cam").maps
    assert_same_maps(maps, cam_tokens(open_clip_tower(model.visual, images), directions))
