"""Public reports about gradients: pytorch-grad-cam (pgc), TorchCAM, PyTorch and torchvision.

What they share: hooks for whole backward passes break on layers that work in place, and gradients that the user has,
or wants, are lost.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from core.nets import snapshot
from encoders.common import Plain, fresh, small
from oracles.helpers import built, difference, random_images
from torch import nn

import explainer

SIZE = (64, 64)


# In place: pgc 147 183, TorchCAM 72 80, pytorch 61519, vision 4164


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 8), (8, 8), (8, 16)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
    head = [nn.Linear(64, 16), nn.ReLU(inplace=True), nn.Linear(16, 7)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), *head)


def activations() -> nn.Module:
    kinds = (nn.Hardswish, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Hardtanh, nn.Hardsigmoid, nn.CELU, nn.Mish, nn.ReLU6)
    layers = [part for kind in kinds for part in (nn.Conv2d(8, 8, 1), kind(inplace=True))]
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 7))


IN_PLACE: dict[str, Callable[[], nn.Module]] = {
    "densenet": lambda: small("densenet121", num_classes=7, block_config=(1, 2), growth_rate=8),
    "vgg": lambda: built(vgg),
    "resnet": lambda: small("test_resnet", num_classes=7),
    "every activation": lambda: built(activations),
    "efficientnet, SiLU": lambda: small("test_efficientnet", num_classes=7),
}


def out_of_place(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for module in model.modules():
        if getattr(module, "inplace", False):
            module.inplace = False
    return model


@pytest.mark.parametrize("name", IN_PLACE)
def test_layers_that_work_in_place(name: str) -> None:
    """Every layer on the way, also those whose output is written over right away."""
    model, pictures = IN_PLACE[name](), random_images(2, *SIZE)
    assert any(getattr(module, "inplace", False) for module in model.modules())
    ex, other = explainer.wrap(model, size=SIZE), explainer.wrap(out_of_place(model), size=SIZE)
    layers = ex.inspect().layers
    for layer in layers[:: max(1, len(layers) // 12)]:
        found, expected = (
            each(pictures, [1, 3], method="gradcam", relu=False, layer=layer).maps for each in (ex, other)
        )
        assert difference(found, expected) < 1e-5, layer


def doubled(_module: nn.Module, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(2 * gradient for gradient in gradients)


@pytest.mark.parametrize("name", ["densenet", "vgg", "resnet"])
def test_backward_hooks_of_the_user(name: str) -> None:
    """A tool that logs gradients, and one that changes them, have to do with training alone; both stay."""
    model, pictures, told = IN_PLACE[name](), random_images(2, *SIZE), []
    expected = explainer.wrap(model, size=SIZE)(pictures, [1, 3], method="gradcam", relu=False).maps
    for module in model.modules():
        module.register_full_backward_hook(lambda *_: told.append(1))
        module.register_full_backward_pre_hook(doubled)
    before = snapshot(model)
    found = explainer.wrap(model, size=SIZE)(pictures, [1, 3], method="gradcam", relu=False).maps
    assert torch.equal(found, expected)
    assert snapshot(model) == before
    assert not told


# Frozen, without gradients: pgc 80 187 239 254 251 473 381, TorchCAM 26, captum 226, MONAI 3035

KINDS: dict[str, Callable[[], nn.Module]] = {
    "convnext": lambda: small("test_convnext", num_classes=7),
    "swin": lambda: small(
        "swin_tiny_patch4_window7_224", num_classes=7, img_size=64, embed_dim=24, depths=(1, 1), num_heads=(1, 2)
    ),
    "plain": lambda: fresh(Plain),
}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("name", KINDS)
def test_a_frozen_model_in_a_validation_loop(name: str, mode: Callable[[], AbstractContextManager[Any]]) -> None:
    model, pictures = KINDS[name](), random_images(2, *SIZE)
    expected = explainer.wrap(model, size=SIZE)(pictures, [1, 3], method="gradcam", relu=False).maps
    model.requires_grad_(False).eval()
    before = snapshot(model)
    with mode():
        e = explainer.wrap(model, size=SIZE)(pictures, [1, 3], method="gradcam", relu=False)
        assert e.overlay().size == SIZE
        assert e.mask().any()
    assert torch.equal(e.maps, expected)
    assert snapshot(model) == before


# In the midst of training: pgc 266 488 and TorchCAM 195 lose what the user has


@pytest.mark.parametrize("name", KINDS)
def test_an_explanation_between_forward_and_backward(name: str) -> None:
    model, pictures = KINDS[name](), random_images(2, *SIZE)
    twin = copy.deepcopy(model)
    ex = explainer.wrap(model, size=SIZE)
    for each, explain in ((model, True), (twin, False)):
        each.train()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            each(pictures).square().mean().backward()  # gradients from an earlier step
            loss = each(pictures).square().mean()
            if explain:
                ex(pictures, [1, 3], method="gradcam")
            loss.backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None)
        assert ours.grad is None or torch.equal(ours.grad, theirs.grad)
    assert all(map(torch.equal, model.buffers(), twin.buffers()))
    assert all(module.training for module in model.modules())
