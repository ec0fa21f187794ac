"""Other input sizes for models of transformers, and what the models are left with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles.helpers import random_directions, random_images
from PIL import Image
from torch import nn

import explainer

from .common import message
from .small_transformers import classifier, output_of, pair

INTERPOLATED = [
    (classifier, "vit"),
    (classifier, "deit"),
    (classifier, "clip"),
    (classifier, "siglip"),
    (classifier, "swin"),
    (pair, "clip"),
    (pair, "siglip"),
    (pair, "blip"),
]
# Nothing is told to these: they take any size of their own accord.
FREE = [(classifier, "dinov2"), (classifier, "registers"), (classifier, "resnet"), (classifier, "convnext")]


def targets_of(ex: explainer.Explainer) -> Any:
    return [2, 5] if "classes" in ex.encoder.capabilities else random_directions(2, ex.encoder.width)


@pytest.mark.parametrize(("make", "name"), [*INTERPOLATED, *FREE])
def test_a_rectangle_is_seen_as_the_model_itself_sees_it(make: Callable[[str], nn.Module], name: str) -> None:
    model = make(name)
    state = copy.deepcopy(model.state_dict())
    ex, images = explainer.wrap(model), random_images(2, 64, 96)
    with ex.encoder.session() as hooks, torch.no_grad():
        found = ex.encoder.forward(images, hooks)
    told = {"interpolate_pos_encoding": True} if (make, name) in INTERPOLATED else {}
    expected = output_of(model, images, **told)
    assert torch.allclose(found, expected, atol=1e-5 * float(expected.abs().max()))
    grid = ex.encoder.last_map(images).grid
    assert grid.height * 3 == grid.width * 2
    assert ex(images, targets_of(ex), method="cam").maps.shape == (2, 2, grid.height, grid.width)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("make", "name"), [(classifier, "vit"), (pair, "clip"), (pair, "siglip")])
def test_a_size_and_back_is_bit_identical(make: Callable[[str], nn.Module], name: str) -> None:
    ex, images = explainer.wrap(make(name)), random_images(2, 32)
    targets = targets_of(ex)
    before = ex(images, targets, method="gem").maps
    assert ex(random_images(2, 64, 48), targets, method="gem").maps.shape == (2, 2, 8, 6)
    assert torch.equal(ex(images, targets, method="gem").maps, before)


def test_a_size_that_is_chosen_applies_to_pictures() -> None:
    ex = explainer.wrap(pair("clip"), size=(64, 96))
    assert ex(Image.new("RGB", (300, 200), "red"), random_directions(1, 24)).maps.shape == (1, 1, 8, 12)


@pytest.mark.parametrize(("make", "name"), [(classifier, "vit"), (classifier, "dinov2"), (pair, "siglip")])
def test_a_size_that_is_no_multiple_of_the_patch(make: Callable[[str], nn.Module], name: str) -> None:
    model = make(name)
    text = (
        f"transformers:{type(model).__name__} cuts its input into patches of 8 x 8, and 30 x 41 is no multiple of "
        "that; the nearest sizes are 24 x 40 and 32 x 48"
    )
    ex = explainer.wrap(model)
    assert message(lambda: ex(random_images(1, 30, 41), targets_of(ex))) == text
    assert message(lambda: explainer.wrap(model, size=(30, 41))) == text


def test_an_interpolation_that_is_not_the_models_own() -> None:
    ex = explainer.wrap(pair("clip"))
    targets = random_directions(1, 24)
    assert message(lambda: ex(random_images(1, 64), targets, method="gem", pos_interp="bilinear")) == (
        "transformers:CLIPModel interpolates its positions itself; it can only be run at another size with "
        "pos_interp='bicubic_antialias', which stands for the model's own way"
    )
    # At the size that it was built for, there is nothing to interpolate.
    images = random_images(1, 32)
    own = ex(images, targets, method="gem").maps
    assert torch.equal(ex(images, targets, method="gem", pos_interp="bilinear").maps, own)


@pytest.mark.parametrize(("make", "name"), [(classifier, "vit"), (classifier, "beit"), (pair, "clip")])
def test_wrapping_and_explaining_leave_no_trace(make: Callable[[str], nn.Module], name: str) -> None:
    model, images = make(name).train(), random_images(2, 32)
    next(model.parameters()).requires_grad_(False)
    flags = [p.requires_grad for p in model.parameters()]
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    settings = model.config.to_dict()
    ex = explainer.wrap(model)
    ex(images, targets_of(ex), method="gem")
    ex(random_images(1, 48), targets_of(ex), method="gradcam")
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in model.modules())
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.config.to_dict() == settings


def test_what_models_of_a_class_share_is_never_a_tensor_without_data() -> None:
    """BEiT keeps its relative positions in a cache of the class, by the size of the grid."""
    model, other = classifier("beit"), classifier("beit")
    images = random_images(1, 72)  # a size that no other test has
    explainer.wrap(model)(images, 1)
    output = output_of(other, images, interpolate_pos_encoding=True)
    assert type(output) is torch.Tensor
    assert output.isfinite().all()


@pytest.mark.parametrize("change", [lambda model: model.bfloat16(), lambda model: model.double()])
def test_other_types(change: Callable[[nn.Module], nn.Module]) -> None:
    images = random_images(2, 32)
    expected = explainer.wrap(classifier("vit"))(images, [2, 5], method="cam").maps
    found = explainer.wrap(change(classifier("vit")))(images, [2, 5], method="cam").maps
    assert found.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(found.flatten(), expected.flatten(), dim=0) > 0.99
