"""query_key, query_query, key_key, value_value against softmax rows formed by hand from the weights.

Families: open_clip ViT over torch.nn.MultiheadAttention (packed projections; batch-first and
sequence-first; fast path in no_grad and inference_mode); timm ViT, fused and unfused, with q/k norm, two
prefix tokens (distilled), registers; EVA with rotation, fused and separate projections; DINOv3; BEiT with
its relative position bias, which belongs to q.k and is not part of its kin. Real size (slow): open_clip
ViT-B/16.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import timm
import torch
from oracles import (
    anchor_row,
    attention_rows,
    open_clip_tower,
    original_path,
    patch_class_similarity_timm,
    patch_text_similarity_open_clip,
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
from oracles.towers import Tower, additive_bias, first_norm, qkv
from torch import Tensor

import explainer
from explainer.explain import MethodError

from .common import explained

CLASSES = [1, 4]
KINDS = {"query_key": "qk", "query_query": "qq", "key_key": "kk", "value_value": "vv"}
TIMM_VITS = ["vit", "vit_qk_norm", "deit_distilled", "dinov2_reg", "eva_rope_separate", "eva_rope_fused"]
TIMM_VITS += ["dinov3", "beit"]
POINT = (0.7, 0.3)


def expected_rows(tower: Tower, kind: str, block: int, anchors: Tensor) -> Tensor:
    """[B, T, H, gh, gw] of one block, by the formula."""
    block %= len(tower.blocks)
    chosen = tower.blocks[block]
    with torch.no_grad():
        q, k, v = qkv(chosen, first_norm(chosen, original_path(tower, block)), tower)
        a, b = ({"q": q, "k": k, "v": v}[letter] for letter in KINDS[kind])
        bias = additive_bias(chosen, tower) if kind == "query_key" else None
        weights = attention_rows(a, b, a.shape[-1] ** -0.5, bias)
    return anchor_row(weights, anchors, tower.prefix, tower.grid)


def patch_at(point: tuple[float, float], tower: Tower, targets: int) -> Tensor:
    """Number of the patch under (x, y), for every picture and target: [B, T]."""
    height, width = tower.grid
    number = int(point[1] * height) * width + int(point[0] * width)
    return torch.full((len(tower.tokens), targets), number)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["small", "small_layer_scale", "small_sequence_first", "small_tall"])
def test_open_clip_at_a_point(name: str, kind: str) -> None:
    model, directions = clip_model(name), random_directions(2, 48)
    images = random_images(3, 48 if name == "small_tall" else 32, 32)
    ex = explained(model)
    maps = ex(images, directions, method={"name": kind, "block": -1, "point": POINT}).maps
    tower = open_clip_tower(model.visual, images)
    assert_same_maps(maps, expected_rows(tower, kind, -1, patch_at(POINT, tower, 2)).mean(dim=2))


@pytest.mark.parametrize("block", [-1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_open_clip_at_the_patch_most_like_the_target(kind: str, block: int) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    ex = explained(model)
    maps = ex(images, directions, method={"name": kind, "block": block, "anchor": "similarity"}).maps
    anchors = best_patches(patch_text_similarity_open_clip(model, images, directions))
    tower = open_clip_tower(model.visual, images)
    assert_same_maps(maps, expected_rows(tower, kind, block, anchors).mean(dim=2))


@pytest.mark.parametrize("kind", KINDS)
def test_open_clip_at_the_hottest_patch_of_gem(kind: str) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    ex = explained(model)
    maps = ex(images, directions, method={"name": kind, "block": 2, "anchor": "gem"}).maps
    anchors = ex(images, directions, method="gem").maps.flatten(2).argmax(dim=-1)
    assert not anchors.equal(best_patches(patch_text_similarity_open_clip(model, images, directions)))
    tower = open_clip_tower(model.visual, images)
    assert_same_maps(maps, expected_rows(tower, kind, 2, anchors).mean(dim=2))


def test_gem_finds_the_anchors_of_models_that_read_text() -> None:
    ex, images, words = explainer.wrap("stickers"), random_images(2, 96), ["a cat", "a pizza"]
    by = {
        anchor: ex(images, words, method={"name": "key_key", "anchor": anchor}).maps for anchor in ("gem", "similarity")
    }
    assert not by["gem"].equal(by["similarity"])
    assert ex(images, words, method="key_key").maps.equal(by["gem"])
    at_a_point = ex(images, words, method={"name": "key_key", "point": POINT, "anchor": "gem"}).maps
    assert at_a_point.equal(ex(images, words, method={"name": "key_key", "point": POINT}).maps)


def test_gem_cannot_find_the_anchors_of_every_model() -> None:
    ex = explainer.wrap(timm.create_model("test_vit", num_classes=3), size=160)
    ex.encoder.capabilities = ex.encoder.capabilities - {"stream"}
    with pytest.raises(MethodError) as caught:
        ex(random_images(1, 160), [0], method="query_key", anchor="gem")
    assert str(caught.value).startswith("anchor=gem cannot be had: method 'gem' does not fit timm:")
    assert str(caught.value).endswith("; use anchor=similarity, or give a point")


@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
def test_open_clip_fast_path(mode: Callable[[], AbstractContextManager]) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    ex = explained(model)
    with mode():
        maps = ex(images, directions, method={"name": "query_key", "point": POINT}).maps
    tower = open_clip_tower(model.visual, images)
    assert_same_maps(maps, expected_rows(tower, "query_key", -1, patch_at(POINT, tower, 2)).mean(dim=2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TIMM_VITS)
def test_timm_at_a_point(name: str, kind: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"])
    maps = explained(model)(images, CLASSES, method={"name": kind, "block": 2, "point": POINT}).maps
    tower = timm_tower(model, images)
    assert_same_maps(maps, expected_rows(tower, kind, 2, patch_at(POINT, tower, 2)).mean(dim=2))


@pytest.mark.parametrize("name", ["vit", "dinov2_reg", "eva_rope_separate", "beit"])
def test_timm_at_the_patch_most_like_the_class(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"], seed=1)
    maps = explained(model)(images, CLASSES, method="query_key").maps
    anchors = best_patches(patch_class_similarity_timm(model, images, class_rows(model, CLASSES)))
    tower = timm_tower(model, images)
    assert_same_maps(maps, expected_rows(tower, "query_key", -1, anchors).mean(dim=2))


@pytest.mark.parametrize("name", ["vit", "eva_rope_separate", "beit"])
def test_timm_unfused(name: str) -> None:
    model, images = unfused(timm_model(name)), random_images(3, TIMM[name][1]["img_size"])
    maps = explained(model)(images, CLASSES, method={"name": "query_key", "point": POINT}).maps
    tower = timm_tower(model, images)
    assert_same_maps(maps, expected_rows(tower, "query_key", -1, patch_at(POINT, tower, 2)).mean(dim=2))


@pytest.mark.parametrize("kind", ["query_key", "value_value"])
def test_every_head(kind: str) -> None:
    model, images = timm_model("vit"), random_images(3, 64)
    method: dict[str, Any] = {"name": kind, "point": POINT, "heads": "each"}
    maps = explained(model)(images, CLASSES, method=method).maps
    tower = timm_tower(model, images)
    expected = expected_rows(tower, kind, -1, patch_at(POINT, tower, 2))
    assert_same_maps(maps.reshape(expected.shape).flatten(1, 2), expected.flatten(1, 2))


@pytest.mark.parametrize(
    ("point", "cell"),
    [
        ((0.0, 0.0), (0, 0)),
        ((1.0, 1.0), (2, 4)),
        ((0.99, 0.0), (0, 4)),
        ((0.0, 0.99), (2, 0)),
        ((0.41, 0.34), (1, 2)),
    ],
)
def test_points_on_a_rectangle(point: tuple[float, float], cell: tuple[int, int]) -> None:
    """(x, y) from the left and from the top; the far edges belong to the last patches."""
    model, images = timm_model("vit_dynamic"), random_images(3, 48, 80)
    maps = explained(model)(images, CLASSES, method={"name": "query_key", "point": point}).maps
    tower = timm_tower(model, images)
    anchors = torch.full((3, 2), cell[0] * 5 + cell[1])
    assert_same_maps(maps, expected_rows(tower, "query_key", -1, anchors).mean(dim=2))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_open_clip_real_size(kind: str) -> None:
    model, directions, images = clip_model("vit_b_16"), random_directions(2, 512), random_images(2, 224)
    maps = explained(model)(images, directions, method={"name": kind, "anchor": "similarity"}).maps
    anchors = best_patches(patch_text_similarity_open_clip(model, images, directions))
    tower = open_clip_tower(model.visual, images)
    assert_same_maps(maps, expected_rows(tower, kind, -1, anchors).mean(dim=2))
