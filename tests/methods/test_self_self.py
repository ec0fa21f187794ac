"""Iterated self-self attention, as a replacement in the last blocks and as a map, against the oracle.

Families: open_clip ViT (packed nn.MultiheadAttention; layer scale; sequence-first), timm ViT (class token,
average pooling with fc_norm, q/k norm, registers and layer scale), EVA with rotation (q and k as rotated).
Real size (slow): open_clip ViT-B/16.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles import (
    open_clip_tower,
    patch_class_similarity_timm,
    patch_text_similarity_open_clip,
    self_self_map,
    self_self_replaced,
    timm_tower,
)
from oracles.helpers import (
    TIMM,
    assert_same_maps,
    best_patches,
    class_rows,
    clip_model,
    random_directions,
    random_images,
    timm_model,
    unfused,
)

from .common import explained

CLASSES = [1, 4]
MEASURE = "logit"  # what a replaced classifier's patches are compared with the class rows by
# (start, iterations, temperature, depth); a high temperature lets no iteration and no start hide.
SETTINGS = [
    ("q", 0, None, 1),
    ("k", 1, None, 3),
    ("v", 1, None, 4),
    ("qkv", 1, None, 3),
    ("q", 1, 40.0, 2),
    ("v", 2, 40.0, 2),
    ("qkv", 3, 40.0, 2),
]


def method(start: str, iterations: int, temperature: float | None, depth: int, output: str) -> dict[str, Any]:
    return {
        "name": "self_self",
        "start": start,
        "iterations": iterations,
        "temperature": temperature,
        "depth": depth,
        "output": output,
    }


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_open_clip_replaced(setting: tuple[str, int, float | None, int]) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    ex = explained(model)
    maps = ex(images, directions, method=method(*setting, output="replace")).maps
    assert_same_maps(maps, self_self_replaced(open_clip_tower(model.visual, images), directions, *setting))


@pytest.mark.parametrize("name", ["small_layer_scale", "small_sequence_first", "small_tall"])
def test_open_clip_families_replaced(name: str) -> None:
    model, directions = clip_model(name), random_directions(2, 48)
    images = random_images(3, 48 if name == "small_tall" else 32, 32)
    setting = ("qkv", 1, None, 3)
    ex = explained(model)
    maps = ex(images, directions, method=method(*setting, output="replace")).maps
    assert_same_maps(maps, self_self_replaced(open_clip_tower(model.visual, images), directions, *setting))


@pytest.mark.parametrize("setting", SETTINGS[2:5], ids=str)
@pytest.mark.parametrize("name", ["vit", "vit_avg", "vit_qk_norm", "dinov2_reg", "eva_rope_separate"])
def test_timm_replaced(name: str, setting: tuple[str, int, float | None, int]) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"])
    maps = explained(model)(images, CLASSES, method=method(*setting, output="replace")).maps
    rows = class_rows(model, CLASSES)
    assert_same_maps(maps, self_self_replaced(timm_tower(model, images), rows, *setting, MEASURE))


def test_timm_unfused_replaced() -> None:
    model, images, setting = unfused(timm_model("vit")), random_images(3, 64), ("qkv", 1, None, 3)
    maps = explained(model)(images, CLASSES, method=method(*setting, output="replace")).maps
    rows = class_rows(model, CLASSES)
    assert_same_maps(maps, self_self_replaced(timm_tower(model, images), rows, *setting, MEASURE))


@pytest.mark.parametrize("setting", [s[:3] for s in SETTINGS], ids=str)
def test_open_clip_map(setting: tuple[str, int, float | None]) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    ex = explained(model)
    maps = ex(images, directions, method=method(*setting, depth=1, output="map")).maps
    anchors = best_patches(patch_text_similarity_open_clip(model, images, directions))
    assert_same_maps(maps, self_self_map(open_clip_tower(model.visual, images), anchors, *setting))


@pytest.mark.parametrize("name", ["vit", "dinov2_reg", "eva_rope_separate"])
def test_timm_map(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"], seed=1)
    setting = ("qkv", 1, 40.0)
    maps = explained(model)(images, CLASSES, method=method(*setting, depth=1, output="map")).maps
    anchors = best_patches(patch_class_similarity_timm(model, images, class_rows(model, CLASSES)))
    assert_same_maps(maps, self_self_map(timm_tower(model, images), anchors, *setting))


def test_replacement_leaves_the_model_as_it_was() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    with torch.no_grad():
        before = model.encode_image(images)
    ex = explained(model)
    ex(images, directions, method=method("qkv", 1, None, 3, "replace"))
    with torch.no_grad():
        assert torch.equal(model.encode_image(images), before)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["replace", "map"])
def test_open_clip_real_size(output: str) -> None:
    model, directions, images = clip_model("vit_b_16"), random_directions(2, 512), random_images(2, 224)
    setting = ("qkv", 1, 40.0)
    ex = explained(model)
    maps = ex(images, directions, method=method(*setting, depth=1, output=output)).maps
    tower = open_clip_tower(model.visual, images)
    if output == "replace":
        expected = self_self_replaced(tower, directions, *setting, blocks=1)
    else:
        anchors = best_patches(patch_text_similarity_open_clip(model, images, directions))
        expected = self_self_map(tower, anchors, *setting)
    assert_same_maps(maps, expected)
