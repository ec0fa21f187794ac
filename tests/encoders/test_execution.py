"""Models in every type of number, memory layout and way of running: the maps are those of the plain model.

A CNN and a ViT of timm and a CLIP of open_clip, each with Grad-CAM, CAM, similarity and (where it attends) query-key
attention and GEM; types also on Swin, DINOv3 and a ResNet CLIP.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest
import timm
import torch
from core.nets import snapshot
from oracles.helpers import built, clip, random_images
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

import explainer

from .common import Plain, fresh
from .kinds import (
    ALL,
    KINDS,
    assert_all_expected,
    assert_expected,
    expected,
    images,
    maps,
    model,
    shared,
    targets,
    wrap,
)

every = pytest.mark.parametrize("kind", KINDS)
ROUGH = {torch.bfloat16: 0.08, torch.float16: 0.01, torch.float64: 1e-4}
OF_TIMM = ("cnn", "vit", "swin", "dinov3")


# Types


@pytest.mark.parametrize("dtype", ROUGH, ids=str)
@pytest.mark.parametrize("kind", ALL)
def test_weights_of_another_type(kind: str, dtype: torch.dtype) -> None:
    ex = wrap(kind, model(kind).to(dtype))
    for method in ALL[kind].methods:
        assert_expected(maps(kind, ex, method), kind, method, ROUGH[dtype])
    assert {p.dtype for p in ex.encoder.model.parameters()} == {dtype}


@every
def test_norms_of_a_wider_type(kind: str) -> None:
    """As mixed-precision training keeps them."""
    module = model(kind).bfloat16()
    norms = [each for each in module.modules() if isinstance(each, (nn.LayerNorm, nn.BatchNorm2d))]
    for norm in norms:
        norm.float()
    assert norms
    assert_expected(maps(kind, wrap(kind, module), "cam"), kind, "cam", ROUGH[torch.bfloat16])


@pytest.mark.parametrize(
    ("dtype", "around"),
    [(torch.bfloat16, "the call"), (torch.float16, "the call"), (torch.bfloat16, "everything")],
    ids=str,
)
@every
def test_autocast(kind: str, dtype: torch.dtype, around: str) -> None:
    ex = shared(kind)
    with torch.autocast("cpu", dtype):
        if around == "everything":
            ex = wrap(kind, model(kind))
        found = {method: maps(kind, ex, method) for method in KINDS[kind].methods}
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == dtype
    for method, each in found.items():
        assert_expected(each, kind, method, ROUGH[dtype])


def test_texts_that_were_read_in_autocast_are_read_anew_outside() -> None:
    ex = wrap("clip", model("clip"))
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            inside = maps("clip", ex, "cam")
        assert not torch.equal(inside, expected("clip", "cam"))
        assert_expected(maps("clip", ex, "cam"), "clip", "cam")


@contextmanager
def default_type(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@every
def test_another_default_type(kind: str, dtype: torch.dtype) -> None:
    module, pictures = model(kind), images(kind)
    with default_type(dtype):
        ex = wrap(kind, module)
        found = {method: maps(kind, ex, method, pictures) for method in KINDS[kind].methods}
    for method, each in found.items():
        assert_expected(each, kind, method)


# Memory


@pytest.mark.parametrize("what", ["pictures", "both"])
@every
def test_channels_last(kind: str, what: str) -> None:
    module, pictures = model(kind), images(kind).contiguous(memory_format=torch.channels_last)
    ex = wrap(kind, module.to(memory_format=torch.channels_last)) if what == "both" else shared(kind)
    for method in KINDS[kind].methods:
        assert_expected(maps(kind, ex, method, pictures), kind, method)


@every
def test_weights_without_data(kind: str) -> None:
    ex = wrap(kind, model(kind))
    ex.encoder.model.to("meta")
    for ask in (lambda: ex(images(kind), targets(kind)), lambda: ex.features(images(kind))):
        with pytest.raises(explainer.ExplainerError) as raised:
            ask()
        assert str(raised.value) == (
            f"the weights of {ex.encoder.name} are on the device 'meta' and hold no data, so there is nothing to "
            "explain; load them with model.to_empty(device='cpu') and model.load_state_dict(...)"
        )


# Modes and flags


def dropping(kind: str) -> nn.Module:
    """A model with dropout and stochastic depth."""
    options: dict[str, Any] = {"drop_rate": 0.5, "drop_path_rate": 0.5, "num_classes": 7}
    if kind == "cnn":
        return timm.create_model("test_resnet", **options)
    if kind == "vit":
        return timm.create_model("test_vit", img_size=64, **options)
    return clip({"layers": 3, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32, "patch_dropout": 0.5})


@every
def test_a_model_that_is_being_trained(kind: str) -> None:
    """Explained in evaluation mode; afterwards as it was, with its statistics."""
    module = built(lambda: dropping(kind))
    ex = wrap(kind, copy.deepcopy(module))
    still = [maps(kind, ex, method) for method in KINDS[kind].methods]
    module.train()
    assert any(
        isinstance(each, nn.modules.dropout._DropoutNd) or "Drop" in type(each).__name__ for each in module.modules()
    )
    before = snapshot(module)
    training = wrap(kind, module)
    found = [maps(kind, training, method) for method in KINDS[kind].methods]
    assert all(map(torch.equal, found, still))
    assert snapshot(module) == before
    assert all(each.training for each in module.modules())


@every
def test_weights_of_which_some_are_frozen(kind: str) -> None:
    module = model(kind)
    for index, parameter in enumerate(module.parameters()):
        parameter.requires_grad_(index % 2 == 0)
    before = snapshot(module)
    assert_all_expected(kind, module)
    assert snapshot(module) == before


# Threads


@every
def test_two_threads_at_once(kind: str) -> None:
    module = model(kind)
    pictures, methods = [images(kind), images(kind).flip(3)], KINDS[kind].methods
    ex, start = wrap(kind, module), Barrier(2)
    alone = [[maps(kind, ex, method, each) for method in methods] for each in pictures]
    assert not any(map(torch.equal, *alone))

    def explain(index: int) -> list[Tensor]:
        start.wait(20)
        return [maps(kind, ex, method, pictures[index]) for method in methods]

    before = snapshot(module)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(explain, range(2)))
    assert all(map(torch.equal, found[0] + found[1], alone[0] + alone[1]))
    assert snapshot(module) == before


# Unusual modules


class Unattached(nn.Module):
    """As a Lightning module: properties that raise until something is attached, and slots."""

    __slots__ = ("_attached",)

    def __init__(self) -> None:
        super().__init__()
        self.model = Plain()

    @property
    def trainer(self) -> Any:
        raise RuntimeError("not attached to a trainer")

    device = dtype = visual = pretrained_cfg = global_pool = logits = trainer
    grad_checkpointing = property(lambda _: 1 / 0)
    forward_features = property(lambda _: [][0])

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x)


def test_properties_that_raise_and_slots() -> None:
    module, pictures = fresh(Unattached), random_images(2, 32)
    found = explainer.wrap(module, size=(32, 32))(pictures, [1, 3]).maps
    assert torch.equal(found, explainer.wrap(module.model, size=(32, 32))(pictures, [1, 3]).maps)


def normalised(module: Plain) -> None:
    parametrizations.weight_norm(module.conv2)


def spectral(module: Plain) -> None:
    parametrizations.spectral_norm(module.conv2)


def pruned(module: Plain) -> None:
    prune.l1_unstructured(module.conv2, "weight", 0.5)


@pytest.mark.parametrize("change", [normalised, spectral, pruned], ids=lambda change: change.__name__)
@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
def test_weights_that_are_computed(change: Callable[[Plain], None], training: bool) -> None:
    def make() -> Plain:
        module = Plain()
        change(module)
        return module

    module, pictures = fresh(make), random_images(2, 32)
    with torch.no_grad():
        module(pictures)
    plain = fresh(Plain)
    state = {**module.state_dict(), "conv2.weight": module.conv2.weight.detach()}
    plain.load_state_dict({name: state[name] for name in plain.state_dict()})
    expected = explainer.wrap(plain, size=(32, 32))(pictures, [1, 3], method="gradcam", relu=False).maps
    module.train(training)
    found = explainer.wrap(module, size=(32, 32))(pictures, [1, 3], method="gradcam", relu=False).maps
    torch.testing.assert_close(found, expected)
    assert all(each.training is training for each in module.modules())
