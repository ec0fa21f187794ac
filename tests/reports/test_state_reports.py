"""Public reports about what is given as a layer, and what is left behind: pytorch-grad-cam (pgc), TorchCAM, oodeel."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from core.nets import snapshot
from encoders.common import Plain, fresh, message, small
from oracles.helpers import SMALL, FakeTokenizer, built, clip, random_images
from torch import nn

import explainer

SIZE = (64, 64)


def vit() -> nn.Module:
    return small("vit_tiny_patch16_224", num_classes=7, img_size=64, embed_dim=32, depth=2, num_heads=2)


MODELS: dict[str, tuple[Callable[[], nn.Module], str, int]] = {
    "cnn": (lambda: small("test_resnet", num_classes=7), "layer3", 64),
    "vit": (vit, "blocks.0", 64),
    "plain": (lambda: fresh(Plain), "conv1", 64),
    "clip": (lambda: built(lambda: clip({**SMALL, "layers": 2})), "visual.transformer.resblocks.0", 32),
}


def wrap(model: nn.Module, **options: Any) -> explainer.Explainer:
    if hasattr(model, "visual"):
        return explainer.wrap(model, tokenizer=FakeTokenizer(), **options)
    return explainer.wrap(model, size=SIZE, **options)


def asked(name: str) -> list[Any]:
    return ["a bus", "a cat"] if name == "clip" else [1, 3]


# A layer by module or by name: pgc 134 150 174 375 489


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_by_module_or_name(name: str) -> None:
    make, path, side = MODELS[name]
    model, pictures = make(), random_images(2, side)
    ex, module = wrap(model), model.get_submodule(path)
    e = ex(pictures, asked(name), method="gradcam", layer=path)
    assert e.provenance.layer == path
    for spelling in (
        lambda: ex(pictures, asked(name), method="gradcam", layer=module),
        lambda: ex(pictures, asked(name), method={"name": "gradcam", "layer": module}),
        lambda: ex(pictures, asked(name), method={"name": "gradcam", "layer": path}),
    ):
        assert spelling() == e
    assert torch.equal(ex.features(pictures, module), ex.features(pictures, path))


def test_the_last_layer_of_a_torch_model_by_module() -> None:
    model, pictures = fresh(Plain), random_images(2, *SIZE)
    assert wrap(model, layer=model.conv1)(pictures, 1) == wrap(model, layer="conv1")(pictures, 1)


@pytest.mark.parametrize("give", [lambda module: [module], lambda module: (module, module), lambda _: ["blocks.0"]])
def test_a_list_of_layers(give: Callable[[nn.Module], Any]) -> None:
    model = vit()
    ex, given = wrap(model), give(model.blocks[0])
    before = snapshot(model)
    for ask in (
        lambda: ex(random_images(1, 64), 1, method="gradcam", layer=given),
        lambda: ex(random_images(1, 64), 1, method={"name": "gradcam", "layer": given}),
        lambda: ex.features(random_images(1, 64), given),
        lambda: explainer.wrap(model, layer=given),
    ):
        text = message(ask)
        assert text.startswith("a layer is one module, or its dotted name; got ")
        assert text.endswith(f" ({type(given).__name__}); a map comes from one layer, so ask once for each")
    assert snapshot(model) == before


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_nothing_is_raised_when_what_failed_is_thrown_away() -> None:
    """A destructor that misses what a failed constructor never set prints an error of its own."""
    for _ in range(2):
        message(lambda: explainer.wrap(vit(), nonsense=3))
        message(lambda: wrap(vit())(random_images(1, 64), 1, method="gradcam", layer="nonsense"))
    gc.collect()


# Several explainers of one model, and their end: TorchCAM 197 195 22, oodeel 122


def hooks(model: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


@pytest.mark.parametrize("name", MODELS)
def test_no_explainer_holds_a_hook(name: str) -> None:
    make, path, side = MODELS[name]
    model, pictures = make(), random_images(2, side)
    assert hooks(model) == 0
    one, other = wrap(model), wrap(model)
    assert hooks(model) == 0
    expected = one(pictures, asked(name), method="gradcam", layer=path)
    assert other(pictures, asked(name), method="gradcam", layer=path) == expected
    assert hooks(model) == 0
    del other
    assert one(pictures, asked(name), method="gradcam", layer=path) == expected
    assert hooks(model) == 0
