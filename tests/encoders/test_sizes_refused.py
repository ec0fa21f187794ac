"""Sizes that a timm model does not take: what is said, that it is true, and building a model for its size by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import random_images
from torch import nn

import explainer

from .common import message, resnet, small

Size = tuple[int, int]
CAIT = {"embed_dim": 32, "depth": 1, "num_heads": 2, "depth_token_only": 1}
MAXVIT = {"img_size": 64, "embed_dim": (32, 64), "depths": (1, 1), "block_type": ("M", "M")}


def refused(model: nn.Module, size: Size) -> str:
    return message(lambda: explainer.wrap(model).encoder.geometry(size))


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Options with which timm makes every model from now on: smaller than by name alone."""
    create, added = timm.create_model, dict[str, Any]()
    monkeypatch.setattr(timm, "create_model", lambda *args, **given: create(*args, **{**added, **given}))
    return added


# Multiples

# What stands behind the name of the model, and whether the whole is said of it before it runs.
NEAREST: dict[str, tuple[Callable[[], nn.Module], Size, str]] = {
    "dla46_c": (
        lambda: small("dla46_c", num_classes=5),
        (70, 100),
        "cannot run on an input of 70 x 100; the nearest sizes that it takes are 64 x 96 and 96 x 128",
    ),
    "maxvit_rmlp_pico_rw_256": (
        lambda: small("maxvit_rmlp_pico_rw_256", **MAXVIT),
        (70, 100),
        "cannot run on an input of 70 x 100; the nearest sizes that it takes are 64 x 96 and 96 x 128",
    ),
    "maxvit_nano_rw_256": (
        lambda: small("maxvit_nano_rw_256", **MAXVIT),
        (20, 70),
        "cannot run on an input of 20 x 70; it takes 32 x 80",
    ),
    "swin_tiny_patch4_window7_224": (
        lambda: small("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(1, 1), num_heads=(3, 3)),
        (57, 91),
        "cuts its input into patches of 4 x 4, and 57 x 91 is no multiple of that; the nearest sizes are 56 x 88 and "
        "60 x 92",
    ),
    "vit_tiny_r_s16_p8_224": (
        lambda: small("vit_tiny_r_s16_p8_224", img_size=64, depth=1),
        (72, 100),
        "cuts its input into patches of 32 x 32, and 72 x 100 is no multiple of that; the nearest sizes are 64 x 96 "
        "and 96 x 128",
    ),
    "beit_base_patch16_224": (
        lambda: small("beit_base_patch16_224", img_size=64, embed_dim=48, depth=1, num_heads=3),
        (72, 100),
        "cuts its input into patches of 16 x 16, and 72 x 100 is no multiple of that; the nearest sizes are 64 x 96 "
        "and 80 x 112",
    ),
}


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_sizes_are_named_and_work(name: str) -> None:
    make, size, text = NEAREST[name]
    model = make()
    ex = explainer.wrap(model)
    assert refused(model, size) == f"timm:{name} {text}"
    named = re.findall(r"(\d+) x (\d+)", text.rpartition("; ")[2])
    for height, width in named:
        grid = ex.encoder.geometry((int(height), int(width))).last
        assert grid is not None
        with ex.encoder.session() as hooks, torch.no_grad():
            ex.encoder.forward(random_images(1, int(height), int(width)), hooks)


# Built for one size


@pytest.mark.parametrize("size", [(256, 256), (256, 192)])
def test_a_model_that_was_built_for_a_size_says_how_to_make_it_for_another(size: Size) -> None:
    assert refused(small("cait_xxs24_224", **CAIT), size) == (
        f"timm:cait_xxs24_224 was built for an input of 224 x 224 and cannot run on {size[0]} x {size[1]}; make it for "
        f"that size with timm.create_model('cait_xxs24_224', img_size={size}) or wrap('timm:cait_xxs24_224', "
        f"size={size})"
    )


def test_a_size_that_no_model_of_the_kind_can_be_made_for(options: dict[str, Any]) -> None:
    options.update(CAIT)
    expected = (
        "timm:cait_xxs24_224 was built for an input of 96 x 96 and cannot run on 100 x 130; the nearest sizes that it "
        "can be made for are 96 x 128 and 112 x 144: timm.create_model('cait_xxs24_224', img_size=(height, width)) or "
        "wrap('timm:cait_xxs24_224', size=(height, width))"
    )
    assert refused(timm.create_model("cait_xxs24_224", img_size=96).eval(), (100, 130)) == expected


def test_a_model_of_squares(options: dict[str, Any]) -> None:
    options.update(depth=1, local_up_to_layer=1)
    assert message(lambda: explainer.wrap("timm:convit_tiny", size=(100, 60), pretrained=False)) == (
        "timm:convit_tiny was built for an input of 224 x 224 and cannot run on 100 x 60; the nearest sizes that it "
        "can be made for are 48 x 48 and 112 x 112: timm.create_model('convit_tiny', img_size=(height, width)) or "
        "wrap('timm:convit_tiny', size=(height, width))"
    )


def test_a_model_of_one_size(options: dict[str, Any]) -> None:
    """It takes img_size= without a word, and does not follow it."""
    options.update(depths=(1, 1, 1, 1), embed_dims=(8, 16, 24, 32))
    text = (
        "timm:efficientformer_l1 was built for an input of 224 x 224 and cannot run on 256 x 256; its size cannot be "
        "changed, so leave size= out and give tensors of its own size"
    )
    assert refused(timm.create_model("efficientformer_l1").eval(), (256, 256)) == text
    assert message(lambda: explainer.wrap("timm:efficientformer_l1", size=256, pretrained=False)) == text


class Unnamed(nn.Module):
    """A model of a user's own that timm knows no name of, and that runs at the size it states."""

    def __init__(self) -> None:
        super().__init__()
        self.num_classes = 10
        self.img_size = (64, 64)
        self.features = nn.Conv2d(3, 8, 8, 8)
        self.head = nn.Linear(8 * 64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


def test_a_model_that_timm_cannot_make() -> None:
    text = message(lambda: explainer.wrap(Unnamed(), encoder="timm", size=(96, 64)))
    assert text == (
        "timm:Unnamed was built for an input of 64 x 64 and cannot run on 96 x 64; its size cannot be changed, so "
        "leave size= out and give tensors of its own size"
    )


def test_an_error_that_is_not_about_the_size_stays() -> None:
    model = resnet()
    ex = explainer.wrap(model)

    def fail(*_args: Any) -> None:
        raise RuntimeError("out of paper")

    model.layer4.register_forward_hook(fail)
    with ex.encoder.session() as hooks, pytest.raises(RuntimeError, match="out of paper"):
        ex.encoder.forward(random_images(1, 96), hooks)


# Built for a size by name


@pytest.mark.parametrize(
    ("name", "built", "size", "grid"),
    [
        ("cait_xxs24_224", CAIT, (64, 96), (4, 6)),
        ("pit_ti_224", {"depth": (1, 1, 1)}, (64, 96), (2, 3)),
        ("efficientformerv2_s0", {"depths": (1, 1, 1, 1)}, (64, 96), (2, 3)),
        ("convit_tiny", {"depth": 1, "local_up_to_layer": 1}, (64, 64), (4, 4)),
    ],
)
def test_a_model_is_built_for_the_size_that_is_asked_for(
    options: dict[str, Any], name: str, built: dict[str, Any], size: Size, grid: Size
) -> None:
    options.update(built)
    ex = explainer.wrap(f"timm:{name}", size=size, pretrained=False, num_classes=7)
    state = ex.encoder.model.state_dict()
    oracle = timm.create_model(name, img_size=size, num_classes=7).eval()
    oracle.load_state_dict(state)
    images = random_images(1, *size)
    with ex.encoder.session() as hooks, torch.no_grad():
        assert torch.equal(ex.encoder.forward(images, hooks), oracle(images))
    assert ex.encoder.preprocess.size == size
    last = ex.encoder.last_map(images).grid
    assert (last.height, last.width) == grid


def test_a_model_that_can_be_set_to_a_size_is_not_built_for_it(options: dict[str, Any]) -> None:
    """Built for a size, a Swin keeps its windows; set to it, its windows keep their share of the picture."""
    options.update(embed_dim=24, depths=(1, 1), num_heads=(3, 3))
    ex = explainer.wrap("timm:swin_tiny_patch4_window7_224", size=(256, 192), pretrained=False)
    assert ex.encoder.model.patch_embed.img_size == (224, 224)
    last = ex.encoder.geometry((256, 192)).last
    assert last is not None
    assert (last.grid.height, last.grid.width) == (32, 24)


def test_a_wrong_size_is_refused_before_weights_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model

    def without_weights(*args: Any, pretrained: bool, **given: Any) -> nn.Module:
        assert not pretrained
        return create(*args, pretrained=False, **given)

    monkeypatch.setattr(timm, "create_model", without_weights)
    assert message(lambda: explainer.wrap("timm:test_vit3", size=(100, 96))) == (
        "timm:test_vit3 cuts its input into patches of 16 x 16, and 100 x 96 is no multiple of that; the nearest "
        "sizes are 96 x 96 and 112 x 96"
    )


def saved(path: Path, model: nn.Module) -> str:
    torch.save(model.state_dict(), path)
    return str(path)


def test_a_checkpoint_of_another_size_where_timm_can_resize_it(options: dict[str, Any], tmp_path: Path) -> None:
    options.update(embed_dim=48, inner_dim=8, depth=1, num_heads_inner=2, num_heads_outer=3, num_classes=5)
    model = small("tnt_s_patch16_224", **options)
    checkpoint = saved(tmp_path / "tnt.pt", model)
    ex = explainer.wrap("timm:tnt_s_patch16_224", checkpoint=checkpoint, size=(256, 192))
    oracle = timm.create_model("tnt_s_patch16_224", img_size=(256, 192)).eval()
    oracle.load_state_dict(timm.models.tnt.checkpoint_filter_fn(model.state_dict(), oracle))
    images = random_images(1, 256, 192)
    with ex.encoder.session() as hooks, torch.no_grad():
        assert torch.equal(ex.encoder.forward(images, hooks), oracle(images))


def test_a_checkpoint_of_another_size_where_timm_cannot(options: dict[str, Any], tmp_path: Path) -> None:
    options.update(CAIT)
    checkpoint = saved(tmp_path / "cait.pt", timm.create_model("cait_xxs24_224"))
    text = message(lambda: explainer.wrap("timm:cait_xxs24_224", checkpoint=checkpoint, size=(256, 192)))
    assert text == (
        f"the checkpoint '{checkpoint}' does not fit timm model 'cait_xxs24_224': pos_embed is [1, 196, 32] where the "
        "model has [1, 192, 32]; name the architecture that it was saved from, and its num_classes"
    )
