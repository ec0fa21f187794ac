"""timm models at other input sizes than their own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from oracles.helpers import random_images
from PIL import Image
from torch import Tensor, nn

import explainer
from explainer.testing import tiny_vit

from .common import message, resnet, small


def vit(**options: Any) -> nn.Module:
    return small("vit_tiny_patch16_224", depth=2, embed_dim=48, num_heads=3, num_classes=7, **options)


def output(ex: explainer.Explainer, images: Tensor) -> Tensor:
    with ex.encoder.session() as hooks:
        return ex.encoder.forward(images, hooks).detach()


def literal(model: nn.Module, size: tuple[int, int], images: Tensor) -> Tensor:
    """timm's own way to another size, which changes the model for good."""
    model = copy.deepcopy(model)
    model.set_input_size(img_size=size)
    with torch.no_grad():
        return model(images)


@pytest.mark.parametrize("size", [(448, 448), (336, 448), (224, 64)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_vit_takes_other_sizes(size: tuple[int, int], dynamic: bool) -> None:
    model = vit(dynamic_img_size=dynamic)
    reference, images = copy.deepcopy(model), random_images(2, *size)
    ex = explainer.wrap(model)
    expected = literal(vit(), size, images)
    assert torch.allclose(output(ex, images), expected, atol=1e-5 * float(expected.abs().max()))
    assert ex(images, 3).maps.shape[-2:] == (size[0] // 16, size[1] // 16)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, reference.state_dict()[name])
    assert model.patch_embed.grid_size == (14, 14)


@pytest.mark.parametrize(
    ("architecture", "patch"),
    [
        ("eva02_tiny_patch14_224", 14),
        ("eva02_base_patch16_clip_224", 16),
        ("vit_small_patch16_dinov3", 16),
        ("vit_pe_core_tiny_patch16_384", 16),
        ("vit_small_patch14_reg4_dinov2", 14),
        ("deit_tiny_distilled_patch16_224", 16),
        ("vit_base_patch16_siglip_224", 16),
    ],
)
def test_relatives_of_the_vit_take_other_sizes(architecture: str, patch: int) -> None:
    options = {"img_size": 4 * patch, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 5}
    model, size = small(architecture, **options), (5 * patch, 7 * patch)
    state, images = copy.deepcopy(model.state_dict()), random_images(2, *size)
    ex = explainer.wrap(model)
    expected = literal(model, size, images)
    assert torch.allclose(output(ex, images), expected, atol=1e-5 * float(expected.abs().max()))
    assert ex(images, 3).maps.shape == (2, 1, 5, 7)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_vit_that_went_to_another_size_and_back_is_bit_identical() -> None:
    model = vit()
    ex, images = explainer.wrap(model), random_images(2, 224)
    before, maps = output(ex, images), ex(images, 3).maps
    with torch.no_grad():
        plain = model(images)
    ex(random_images(1, 448), 3)
    ex(random_images(1, 336, 448), 3)
    assert torch.equal(output(ex, images), before)
    assert torch.equal(before, plain)
    assert torch.equal(ex(images, 3).maps, maps)


@pytest.mark.parametrize("size", [(224, 224), (336, 448), (100, 61), (33, 40)])
def test_a_convolutional_network_takes_any_size(size: tuple[int, int]) -> None:
    model = resnet(num_classes=4)
    ex, images = explainer.wrap(model), random_images(2, *size)
    with torch.no_grad():
        assert torch.equal(output(ex, images), model(images))
    assert ex(images, 1).maps.shape == (2, 1, -(-size[0] // 32), -(-size[1] // 32))


def test_a_size_that_is_chosen_applies_to_pictures() -> None:
    ex = explainer.wrap(vit(), size=(64, 96))
    assert ex.encoder.preprocess.size == (64, 96)
    assert ex(Image.new("RGB", (300, 200), "red"), 1).maps.shape == (1, 1, 4, 6)


@pytest.mark.parametrize(
    "build", [{"img_size": 96}, {"img_size": (64, 96)}, {"img_size": 32, "dynamic_img_size": True}]
)
def test_a_model_built_for_another_size_is_run_at_that_size(build: dict[str, Any]) -> None:
    ex = explainer.wrap(vit(**build))
    side = build["img_size"]
    assert ex.encoder.preprocess.size == (side if isinstance(side, tuple) else (side, side))


def test_a_mixer_built_for_another_size_is_run_at_that_size() -> None:
    assert explainer.wrap(small("mixer_s32_224", img_size=96)).encoder.preprocess.size == (96, 96)


def test_a_size_that_is_no_multiple_of_the_patch() -> None:
    text = (
        "timm:vit_tiny_patch16_224 cuts its input into patches of 16 x 16, and 200 x 300 is no multiple of that; the "
        "nearest sizes are 192 x 288 and 208 x 304"
    )
    assert message(lambda: explainer.wrap(vit(), size=(200, 300))) == text
    assert message(lambda: explainer.wrap(vit())(random_images(1, 200, 300), 1)) == text


def test_pictures_of_one_cell_are_refused_where_the_last_map_cannot_be_told() -> None:
    ex = explainer.wrap(tiny_vit())
    for method in ("cam", "gem", "similarity"):
        assert message(lambda method=method: ex(torch.zeros(1, 3, 8, 8), [0], method=method)) == (
            "on an input of 8 x 8 the last map of timm:vit_tiny_patch16_224 cannot be told from its other layers; give "
            "larger pictures, such as 32 x 32"
        )
