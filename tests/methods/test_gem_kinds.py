"""GEM on models that are no plain ViT, against the literal oracles.

Swin whose last stage is one window (NHWC), CoAtNet (NCHW, a first block that shrinks the map), parallel attentions of
ViT, SAM's ViT and a network made here, whose last maps lie behind convolutions; pictures alone and together.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import pytest
import timm
import torch
from core import deceptive
from oracles import gem_kinds
from oracles.helpers import assert_same_maps, built, random_images
from torch import Tensor, nn
from torch.nn import functional as F

import explainer

CLASSES = [1, 4]
SETTINGS = [(1, None), (2, 40.0)]
Added = Callable[[Tensor, Tensor], Tensor]


class MapAttention(nn.Module):
    """Attention over an NCHW map."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.qkv, self.proj = nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part.flatten(2).unflatten(1, (2, -1)).mT for part in self.qkv(x).chunk(3, dim=1))
        return self.proj(F.scaled_dot_product_attention(query, key, value).mT.reshape(x.shape))


class MapBlock(nn.Module):
    """Adds its attention to the stream in one of the ways that there are."""

    def __init__(self, dim: int, added: str) -> None:
        super().__init__()
        self.norm, self.attn, self.mlp = nn.BatchNorm2d(dim), MapAttention(dim), nn.Conv2d(dim, dim, 1)
        self.added = added

    def forward(self, x: Tensor) -> Tensor:
        y = self.attn(self.norm(x))
        if self.added == "plainly":
            x = x + y
        else:
            x = x.clone()
            if self.added == "in place":
                x += y
            elif self.added == "in place, without a name":
                x.add_(y)
            elif self.added == "into a view":
                x[:] += y
        return x + self.mlp(x)


class Convolved(nn.Module):
    """Attention over a map of 4 x 4, then convolutions."""

    def __init__(self, added: str = "plainly", dim: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 8, 8)
        self.blocks = nn.ModuleList([MapBlock(dim, added) for _ in range(3)])
        self.first, self.second = nn.Conv2d(dim, dim, 3, padding=1), nn.Conv2d(dim, 24, 3, padding=1)
        self.head = nn.Linear(24, 7)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return self.head(self.behind(x).mean(dim=(2, 3)))

    def behind(self, x: Tensor) -> Tensor:
        """What follows the blocks."""
        return self.second(self.first(x).relu())


class Kind(NamedTuple):
    """A model, the side of its pictures, its oracle, how many attentions it has on its stream, whether it resumes."""

    make: Callable[[], nn.Module]
    side: int
    oracle: Callable[..., Tensor]
    count: int
    resumes: bool


def of_timm(name: str, side: int, oracle: Callable[..., Tensor], count: int, resumes: bool, **options: Any) -> Kind:
    return Kind(lambda: timm.create_model(name, num_classes=7, **options), side, oracle, count, resumes)


SWIN = {"img_size": 128, "embed_dim": 16, "depths": (1, 1, 1, 3), "num_heads": (1, 2, 2, 4), "window_size": 4}
SAM = {"img_size": 64, "embed_dim": 64, "depth": 3, "num_heads": 4, "window_size": 4, "neck_chans": 24}
PARALLEL = {"img_size": 64, "embed_dim": 64, "depth": 3, "num_heads": 4}
KINDS = {
    "swin": of_timm("swin_tiny_patch4_window7_224", 128, gem_kinds.gem_swin, 3, False, **SWIN),
    "coatnet": of_timm("test_coatnet", 160, gem_kinds.gem_coatnet, 1, False),
    "parallel": of_timm("vit_small_patch16_18x2_224", 64, gem_kinds.gem_parallel, 6, False, **PARALLEL),
    "sam": of_timm("samvit_base_patch16_224", 64, gem_kinds.gem_sam, 3, True, **SAM),
    "convolved": Kind(Convolved, 32, gem_kinds.gem_convolved, 3, True),
}


@lru_cache
def model_of(kind: str) -> nn.Module:
    return built(KINDS[kind].make)


@lru_cache
def explained(kind: str) -> explainer.Explainer:
    side = KINDS[kind].side
    return explainer.wrap(model_of(kind), size=(side, side))


def gem(depth: int, iterations: int, temperature: float | None) -> dict[str, Any]:
    return {"name": "gem", "depth": depth, "iterations": iterations, "temperature": temperature}


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str, setting: tuple[int, float | None]) -> None:
    _, side, oracle, count, resumes = KINDS[kind]
    ex, images = explained(kind), random_images(3, side)
    geometry = ex.encoder.geometry((side, side))
    assert (len(geometry.stream), geometry.direct) == (count, not resumes)
    for taking_part in {count, max(count - 1, 1)}:
        maps = ex(images, CLASSES, method=gem(taking_part + 1, *setting)).maps
        assert_same_maps(maps, oracle(model_of(kind), images, CLASSES, taking_part, *setting))


@pytest.mark.parametrize("kind", KINDS)
def test_by_default_all_blocks_of_a_shallow_model_take_part(kind: str) -> None:
    _, side, oracle, count, _ = KINDS[kind]
    images = random_images(1, side)
    maps = explained(kind)(images, CLASSES, method="gem").maps
    assert_same_maps(maps, oracle(model_of(kind), images, CLASSES, count))


@pytest.mark.parametrize("kind", KINDS)
def test_the_class_that_the_model_sees(kind: str) -> None:
    side = KINDS[kind].side
    images, model = random_images(2, side), model_of(kind)
    with torch.no_grad():
        seen = model(images).argmax(dim=1)
    maps = explained(kind)(images, method="gem").maps
    expected = explained(kind)(images, seen.unique().tolist(), method="gem").maps
    places = [seen.unique().tolist().index(number) for number in seen.tolist()]
    for row, place in enumerate(places):
        torch.testing.assert_close(maps[row, 0], expected[row, place], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("added", ["in place", "in place, without a name", "into a view"])
def test_ways_of_adding_where_the_model_goes_on(added: str) -> None:
    model, images = built(lambda: Convolved(added)), random_images(2, 32)
    maps = explainer.wrap(model, size=(32, 32))(images, CLASSES, method="gem").maps
    assert_same_maps(maps, gem_kinds.gem_convolved(model, images, CLASSES, 3))


def test_one_picture_is_explained_as_it_is_among_others() -> None:
    """What a block adds beside its attention has, for one picture, the shape of a residual stream."""
    model, images = built(lambda: deceptive.net(deceptive.plainly, "with positions")), random_images(3, 32)
    ex = explainer.wrap(model, size=(32, 32))
    together = ex(images, CLASSES, method="gem").maps
    for row in range(3):
        torch.testing.assert_close(ex(images[row : row + 1], CLASSES, method="gem").maps[0], together[row])


class Autocast(nn.Module):
    """Runs a part in half precision."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.part(x).float()


def test_blocks_that_run_in_half_precision_by_themselves() -> None:
    model = built(lambda: deceptive.net(deceptive.plainly))
    images = random_images(2, 32)
    expected = explainer.wrap(model, size=(32, 32))(images, CLASSES, method="gem").maps
    model.blocks = nn.ModuleList([Autocast(block) for block in model.blocks])
    found = explainer.wrap(model, size=(32, 32))(images, CLASSES, method="gem").maps
    assert 0 < (found - expected).abs().max() < 0.03 * expected.abs().max()


def test_a_stream_that_is_none_is_refused() -> None:
    ex = explainer.wrap(built(lambda: deceptive.net(deceptive.plainly, "both at once")), size=(32, 32))
    with pytest.raises(explainer.ExplainerError) as caught:
        ex(random_images(1, 32), CLASSES, method="gem")
    assert str(caught.value) == (
        "method 'gem' does not fit torch:Net: what its attentions add to the patches could not be followed to its last "
        "map; methods that fit: cam, gradcam, key_key, query_key, query_query, self_self, similarity, value_value"
    )
