"""GEM against the literal oracle, and against gem-torch 1.0.1 where that is installed.

Families: open_clip ViT (GELU, QuickGELU, layer scale, sequence-first blocks) at its own size, larger and
rectangular; timm ViT classifiers (class token, average pooling with fc_norm, registers and layer scale,
dynamic input size). Real size (slow): ViT-B/16 at 224, 448 and 336 x 448.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from oracles import gem_open_clip, gem_timm
from oracles.helpers import (
    TIMM,
    FakeTokenizer,
    assert_same_maps,
    class_rows,
    clip_model,
    difference,
    random_directions,
    random_images,
    timm_model,
)
from torch import Tensor, nn

import explainer

from .common import explained

# (depth, iterations, temperature): the four settings that the method is held to, and peaked ones, in which
# neither the number of iterations nor the choice of starts can hide.
SETTINGS = [(7, 1, None), (4, 2, None), (7, 1, 10.0), (7, 0, None), (4, 1, 40.0), (7, 3, 40.0)]
NAMES = ("depth", "iterations", "temperature")
SIZES = [(32, 32), (64, 64), (48, 64)]


def gem(depth: int = 7, iterations: int = 1, temperature: float | None = None, **options: Any) -> dict[str, Any]:
    return {"name": "gem", "depth": depth, "iterations": iterations, "temperature": temperature, **options}


def gem_maps(model: nn.Module, images: Tensor, directions: Tensor, **options: Any) -> Tensor:
    return explained(model)(images, directions, method=gem(**options)).maps


@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_open_clip(size: tuple[int, int], setting: tuple[int, int, float | None]) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, *size)
    maps = gem_maps(model, images, directions, **dict(zip(NAMES, setting, strict=True)))
    assert_same_maps(maps, gem_open_clip(model, images, directions, *setting))


@pytest.mark.parametrize("name", ["small_quickgelu", "small_layer_scale", "small_sequence_first"])
def test_open_clip_families(name: str) -> None:
    model, directions, images = clip_model(name), random_directions(2, 48), random_images(3, 32)
    assert_same_maps(gem_maps(model, images, directions), gem_open_clip(model, images, directions))


def test_default_configuration_is_the_papers() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(2, 64)
    maps = explained(model)(images, directions, method="gem").maps
    expected = gem_open_clip(model, images, directions, 7, 1, None, "bicubic_antialias", "qkv")
    assert_same_maps(maps, expected)


@pytest.mark.parametrize("ensemble", [("q",), ("k",), ("v",), ("q", "k"), ("v", "q", "k")], ids="".join)
def test_ensemble(ensemble: tuple[str, ...]) -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(2, 32)
    maps = gem_maps(model, images, directions, depth=5, temperature=40.0, ensemble=ensemble)
    expected = gem_open_clip(model, images, directions, 5, 1, 40.0, ensemble="".join(ensemble))
    assert_same_maps(maps, expected)


def test_more_targets_than_pictures_and_unnormalised_directions() -> None:
    model, images = clip_model("small"), random_images(2, 32)
    directions = random_directions(5, 48) * torch.tensor([1.0, 0.1, 7.0, 30.0, 0.5])[:, None]
    assert_same_maps(gem_maps(model, images, directions), gem_open_clip(model, images, directions))


def test_size_after_size_leaves_no_trace() -> None:
    model, directions = copy.deepcopy(clip_model("small")), random_directions(2, 48)
    before = copy.deepcopy(model.state_dict())
    ex = explainer.wrap(model, tokenizer=FakeTokenizer())
    small, large = random_images(2, 32), random_images(2, 64)
    first = ex(small, directions, method="gem").maps
    ex(large, directions, method="gem")
    assert torch.equal(ex(small, directions, method="gem").maps, first)
    assert all(torch.equal(p, before[name]) for name, p in model.state_dict().items())


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("name", ["vit", "vit_avg", "dinov2_reg"])
def test_timm(name: str, setting: tuple[int, int, float | None]) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"])
    maps = explained(model)(images, [1, 4], method=gem(*setting)).maps
    assert_same_maps(maps, gem_timm(model, images, class_rows(model, [1, 4]), *setting))


def test_timm_rectangular() -> None:
    model, images = timm_model("vit_dynamic"), random_images(3, 48, 80)
    maps = explained(model)(images, [1, 4], method="gem").maps
    assert maps.shape == (3, 2, 3, 5)
    assert_same_maps(maps, gem_timm(model, images, class_rows(model, [1, 4])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "setting"),
    [
        ((224, 224), (7, 1, None)),
        ((224, 224), (4, 2, None)),
        ((224, 224), (7, 1, 10.0)),
        ((224, 224), (7, 0, None)),
        ((448, 448), (7, 1, None)),
        ((336, 448), (4, 2, None)),
    ],
    ids=str,
)
def test_open_clip_real_size(size: tuple[int, int], setting: tuple[int, int, float | None]) -> None:
    model, directions, images = clip_model("vit_b_16"), random_directions(2, 512), random_images(2, *size)
    maps = explained(model)(images, directions, method=gem(*setting)).maps
    assert_same_maps(maps, gem_open_clip(model, images, directions, *setting))


def test_more_blocks_than_there_are() -> None:
    with pytest.raises(explainer.ExplainerError) as caught:
        gem_maps(clip_model("small"), random_images(1, 32), random_directions(1, 48), depth=40)
    blocks = len(clip_model("small").visual.transformer.resblocks)
    assert str(caught.value) == (
        f"depth=40 lets the last 39 blocks take part, but this model has {blocks} over its patch tokens; the most is "
        f"depth={blocks + 1}"
    )


def gem_torch(model: nn.Module, setting: tuple[int, int, float | None]) -> nn.Module:
    """gem-torch around a copy of the model, made right for batch-first open_clip.

    It feeds [N, B, C] to blocks that nowadays expect [B, N, C]; the ones it does not replace then attend
    over the batch. Telling their attention so puts it right.
    """
    wrapper = pytest.importorskip("gem.gem_wrapper", exc_type=ImportError).GEMWrapper
    model = copy.deepcopy(model)
    for block in model.visual.transformer.resblocks:
        block.attn.batch_first = False
    return wrapper(model, FakeTokenizer(), *setting).eval()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", SIZES, ids=lambda s: f"{s[0]}x{s[1]}")
@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@torch.no_grad()
def test_gem_torch_made_right(size: tuple[int, int], setting: tuple[int, int, float | None]) -> None:
    model, images = clip_model("small"), random_images(2, *size)
    theirs = gem_torch(model, setting)
    directions = theirs.encode_text(["cat", "old bus"])[0]
    expected = theirs(images, ["cat", "old bus"], normalize=False)
    maps = gem_maps(model, images, directions, **dict(zip(NAMES, setting, strict=True)))
    resized = nn.functional.interpolate(maps, size=size, mode="bilinear")
    assert difference(resized, expected) < 1e-5
    oracle = gem_open_clip(model, images, directions, *setting)
    assert difference(nn.functional.interpolate(oracle, size=size, mode="bilinear"), expected) < 1e-5
