"""The picture towers of open_clip at other sizes, however they were built."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import open_clip
import pytest
import torch
from oracles.helpers import SMALL, FakeTokenizer, built, clip, clip_model, random_directions, random_images
from torch import Tensor, nn

import explainer

from .common import message
from .test_open_clip_towers import TINY, timm_clip
from .test_sizes_kinds import close, traces

Size = tuple[int, int]
SWIN = {"img_size": 56, "embed_dim": 24, "depths": (1, 1), "num_heads": (3, 3)}
# Trunks of timm, each with the edge it is built for and the pixels that a cell stands for.
TRUNKS = {
    "siglip": (timm_clip("vit_base_patch16_siglip_224", "map", "none", 32, **TINY), 32, 16),
    "pe-core": (timm_clip("vit_pe_core_tiny_patch16_384", "map", None, 32, **TINY), 32, 16),
    "eva": (timm_clip("eva02_base_patch16_clip_224", "token", None, 32, **TINY), 32, 16),
    "relative positions": (timm_clip("vit_relpos_medium_patch16_cls_224", "", "linear", 32, **TINY), 32, 16),
    "swin": (timm_clip("swin_base_patch4_window7_224", "", "linear", 56, **SWIN), 56, 8),
}


def embed(ex: explainer.Explainer, images: Tensor) -> Tensor:
    with ex.encoder.session() as hooks, torch.no_grad():
        return ex.encoder.forward(images, hooks)


@pytest.mark.parametrize("kind", TRUNKS)
def test_a_trunk_is_set_as_timm_sets_it_and_left_without_a_trace(kind: str) -> None:
    make, edge, cell = TRUNKS[kind]
    model, size = built(make), (edge * 2, edge * 3)
    own, images = random_images(1, edge), random_images(1, *size)
    literal = copy.deepcopy(model)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch has something to say on how timm interpolates tables
        literal.visual.trunk.set_input_size(img_size=size)
        expected, plain = literal.encode_image(images), model.encode_image(own)
    before = traces(model)
    ex = explainer.wrap(model)
    found = [embed(ex, given) for given in (own, images, own, images)]
    assert torch.equal(found[0], plain)
    assert torch.equal(found[2], plain)
    assert close(found[1], expected)
    assert torch.equal(found[1], found[3])
    grid = ex.encoder.last_map(images).grid
    assert (grid.height, grid.width) == (size[0] // cell, size[1] // cell)
    assert traces(model) == before


@pytest.mark.parametrize("kind", ["siglip", "swin"])
def test_a_size_is_chosen_at_once(kind: str) -> None:
    make, edge, cell = TRUNKS[kind]
    ex = explainer.wrap(built(make), size=(edge * 2, edge))
    assert ex.encoder.preprocess.size == (edge * 2, edge)
    e = ex(random_images(1, edge * 2, edge), random_directions(1, 48), method="similarity")
    assert e.maps.shape == (1, 1, edge * 2 // cell, edge // cell)


def test_several_sizes_in_one_session() -> None:
    for model in (clip_model("small"), clip_model("small_resnet"), built(TRUNKS["eva"][0])):
        ex = explainer.wrap(model)
        given = [random_images(1, *size) for size in ((64, 96), (96, 64), ex.encoder.preprocess.size, (64, 96))]
        apart = [embed(ex, images) for images in given]
        with ex.encoder.session() as hooks, torch.no_grad():
            together = [ex.encoder.forward(images, hooks) for images in given]
        assert all(map(torch.equal, together, apart))


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What open_clip is asked to create, in place of which it gives a small CLIP."""
    asked: list[dict[str, Any]] = []

    def create(name: str, **options: Any) -> nn.Module:
        asked.append({"name": name, **options})
        return copy.deepcopy(clip_model("small"))

    monkeypatch.setattr(open_clip, "create_model", create)
    monkeypatch.setattr(open_clip, "get_tokenizer", lambda _name: FakeTokenizer())
    return asked


def test_a_size_by_name(named: list[dict[str, Any]]) -> None:
    ex = explainer.wrap("open_clip:ViT-B-16", size=(48, 64))
    assert len(named) == 1
    assert ex.encoder.preprocess.size == (48, 64)
    assert ex(random_images(1, 48, 64), ["a bus"], method="similarity").maps.shape == (1, 1, 6, 8)


@pytest.mark.parametrize("edge", [48, (48, 32)])
def test_a_vit_that_was_built_for_another_size(edge: int | Size) -> None:
    """As force_image_size builds it."""
    model = built(lambda: clip({**SMALL, "image_size": edge}))
    height, width = (edge, edge) if isinstance(edge, int) else edge
    ex = explainer.wrap(model)
    assert ex.encoder.preprocess.size == (height, width)
    with torch.no_grad():
        assert torch.equal(
            embed(ex, random_images(1, height, width)), model.encode_image(random_images(1, height, width))
        )
    grid = ex.encoder.last_map(random_images(1, 64, 32)).grid
    assert (grid.height, grid.width) == (8, 4)


def test_a_trunk_that_was_forced_to_another_size() -> None:
    """force_image_size tells the trunk after its weights are loaded."""
    model = built(TRUNKS["siglip"][0])
    model.visual.set_input_size((64, 48))
    ex, images = explainer.wrap(model), random_images(1, 64, 48)
    assert ex.encoder.preprocess.size == (64, 48)
    with torch.no_grad():
        assert torch.equal(embed(ex, images), model.encode_image(images))
    assert embed(ex, random_images(1, 32)).shape == (1, 48)


def test_a_vitamin_that_was_built_for_another_size_than_its_configuration() -> None:
    """As ViTamin-XL-384, whose configuration says 256."""
    ex = explainer.wrap(built(timm_clip("vitamin_small_224", "", "linear", 96, img_size=64)))
    assert ex.encoder.preprocess.size == (64, 64)
    assert ex(random_images(1, 64), random_directions(1, 48), method="similarity").maps.shape == (1, 1, 4, 4)


@pytest.mark.parametrize(
    ("make", "given", "text"),
    [
        (
            TRUNKS["siglip"][0],
            (40, 48),
            "cuts its input into patches of 16 x 16, and 40 x 48 is no multiple of that; the nearest sizes are 32 x 48 "
            "and 48 x 48",
        ),
        (
            timm_clip("dla46_c", "avg", "linear", 64),
            (70, 100),
            "cannot run on an input of 70 x 100; the nearest sizes that it takes are 64 x 96 and 96 x 128",
        ),
    ],
)
def test_sizes_that_a_trunk_does_not_take(make: Any, given: Size, text: str) -> None:
    assert message(lambda: explainer.wrap(built(make), size=given)) == f"open_clip:CLIP {text}"
