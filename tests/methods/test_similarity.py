"""Patch-text and patch-class cosine similarity against the oracle.

Families: open_clip ViT (GELU, QuickGELU, layer scale, sequence-first blocks, tall input), open_clip ResNet
(value path of the attention pool), open_clip with a timm ViT trunk; timm ViT (class token, fc_norm,
registers), EVA, DINOv3, BEiT; timm residual and Swin classifiers. Real size (slow): open_clip ViT-B/16.
"""

from __future__ import annotations

import pytest
import torch
from oracles import (
    grid_similarity_timm,
    patch_class_similarity_timm,
    patch_text_similarity_open_clip,
    patch_text_similarity_open_clip_resnet,
    patch_text_similarity_timm_tower,
)
from oracles.helpers import (
    TIMM,
    FakeTokenizer,
    assert_same_maps,
    class_rows,
    clip_model,
    random_directions,
    random_images,
    timm_model,
)
from torch import Tensor, nn
from torch.nn import functional as F

from .common import explained

CLASSES = [1, 4]


def clip_maps(model: nn.Module, images: Tensor, directions: Tensor) -> Tensor:
    return explained(model)(images, directions, method="similarity").maps


@pytest.mark.parametrize(
    "name", ["small", "small_quickgelu", "small_layer_scale", "small_sequence_first", "small_tall"]
)
def test_open_clip(name: str) -> None:
    model, directions = clip_model(name), random_directions(2, 48)
    images = random_images(3, 48 if name == "small_tall" else 32, 32)
    maps = clip_maps(model, images, directions)
    assert_same_maps(maps, patch_text_similarity_open_clip(model, images, directions))


def test_open_clip_resnet() -> None:
    model, directions, images = clip_model("small_resnet"), random_directions(2, 48), random_images(3, 96)
    maps = clip_maps(model, images, directions)
    assert_same_maps(maps, patch_text_similarity_open_clip_resnet(model, images, directions))


def test_open_clip_with_a_timm_trunk() -> None:
    model, directions, images = clip_model("timm_vit"), random_directions(2, 48), random_images(3, 224)
    maps = clip_maps(model, images, directions)
    assert_same_maps(maps, patch_text_similarity_timm_tower(model, images, directions))


def test_length_of_a_direction_does_not_matter() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    maps = clip_maps(model, images, directions * torch.tensor([[0.1], [40.0]]))
    assert_same_maps(maps, patch_text_similarity_open_clip(model, images, directions))
    assert maps.abs().max() <= 1


def test_prompts_are_averaged_over_templates() -> None:
    """Each filled template is encoded and normalised; their mean is the direction (Radford 2021)."""
    model, images, tokenizer = clip_model("small"), random_images(3, 32), FakeTokenizer()
    prompts, templates = ["a bus", "old cat"], ["{}", "a photo of {}."]
    with torch.no_grad():
        texts = [[t.format(p) for t in templates] for p in prompts]
        encoded = [F.normalize(model.encode_text(tokenizer(t)), dim=-1).mean(dim=0) for t in texts]
    ex = explained(model)
    maps = ex(images, prompts, method="similarity", templates=templates).maps
    assert_same_maps(maps, patch_text_similarity_open_clip(model, images, torch.stack(encoded)))


@pytest.mark.parametrize(
    "name",
    ["vit", "vit_avg", "vit_qk_norm", "dinov2_reg", "eva_rope_separate", "eva_rope_fused", "dinov3", "beit"],
)
def test_timm_tokens(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"])
    maps = explained(model)(images, CLASSES, method="similarity").maps
    assert_same_maps(maps, patch_class_similarity_timm(model, images, class_rows(model, CLASSES)))


def test_timm_tokens_rectangular() -> None:
    model, images = timm_model("vit_dynamic"), random_images(3, 48, 80)
    maps = explained(model)(images, CLASSES, method="similarity").maps
    assert maps.shape == (3, 2, 3, 5)
    assert_same_maps(maps, patch_class_similarity_timm(model, images, class_rows(model, CLASSES)))


@pytest.mark.parametrize(("name", "layout"), [("resnet18", "NCHW"), ("resnetv2", "NCHW"), ("swin", "NHWC")])
def test_timm_grids(name: str, layout: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1].get("img_size", 96))
    maps = explained(model)(images, CLASSES, method="similarity").maps
    assert_same_maps(maps, grid_similarity_timm(model, images, class_rows(model, CLASSES), layout))


@pytest.mark.slow
def test_open_clip_real_size() -> None:
    model, directions, images = clip_model("vit_b_16"), random_directions(2, 512), random_images(3, 224)
    maps = clip_maps(model, images, directions)
    assert_same_maps(maps, patch_text_similarity_open_clip(model, images, directions))
