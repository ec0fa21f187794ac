"""What one cell of a timm model's last map means for its logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import random_images
from torch import Tensor, nn

import explainer

from .common import message, settled, small

EVA = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3}
VIT = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3}
# Architecture, options, size of the input, and what the logits are of the cells' readouts.
HEADS: dict[str, tuple[str | Callable[..., nn.Module], dict[str, Any], int, str]] = {
    "resnet": ("resnet18", {}, 64, "mean"),
    "preactivation resnet, 1x1 conv": ("resnetv2_18", {}, 64, "mean"),
    "densenet": ("densenet121", {"block_config": (1, 1, 1, 1)}, 64, "mean"),
    "efficientnet": ("efficientnet_b0", {}, 64, "mean"),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 56, "embed_dim": 24, "depths": (1, 1), "num_heads": (3, 3)},
        56,
        "mean",
    ),
    "nest, NHWC norm before an NCHW head": (
        timm.models.nest.Nest,
        {"img_size": 64, "embed_dims": (24, 24, 24), "num_heads": (3, 3, 3), "depths": (1, 1, 1)},
        64,
        "mean",
    ),
    "norm inside the classifier": ("efficientvit_m0", {"img_size": 128}, 128, "mean"),
    "norm and two heads": ("repvit_m1", {}, 64, "mean"),
    "two heads on one map": ("levit_128s", {"img_size": 128}, 128, "mean"),
    "gap vit": ("vit_tiny_patch16_224", {**VIT, "global_pool": "avg", "fc_norm": False}, 32, "mean"),
    "mixer": ("mixer_s32_224", {"img_size": 96}, 96, "mean"),
    "class token": ("vit_tiny_patch16_224", VIT, 32, "token"),
    "class token and registers": ("vit_small_patch14_reg4_dinov2", {**VIT, "img_size": 28}, 28, "token"),
    "class token of cait": ("cait_xxs24_224", {**VIT, "depth": 1}, 32, "token"),
    "two class tokens": ("deit_tiny_distilled_patch16_224", VIT, 32, "neither"),
    "norm after pooling": ("convnext_atto", {}, 64, "neither"),
    "fc_norm": ("vit_tiny_patch16_224", {**VIT, "global_pool": "avg"}, 32, "neither"),
    "fc_norm of eva": ("eva02_tiny_patch14_224", {**EVA, "img_size": 28}, 28, "neither"),
    "convolution and activation after pooling": ("mobilenetv3_small_050", {}, 64, "neither"),
    "hidden layer": (timm.models.vgg.VGG, {"cfg": (16, "M", "M", "M"), "mlp_ratio": 0.02}, 64, "neither"),
    "attention pooling": ("vit_base_patch16_siglip_224", VIT, 32, "neither"),
    "maximum": ("resnet18", {"global_pool": "max"}, 64, "neither"),
    "average and maximum": ("resnet18", {"global_pool": "avgmax"}, 64, "neither"),
}


def read_out(model: nn.Module, images: Tensor) -> tuple[explainer.Explainer, dict[str, Tensor], Tensor]:
    """The logits [B, K], and what the mean of the cells and the first token contribute to them."""
    ex = explainer.wrap(model, size=tuple(images.shape[2:]))
    encoder = ex.encoder
    last = encoder.last_map(images)
    with encoder.session() as hooks:
        tap = hooks.tap(last.layer)
        logits = encoder.forward(images, hooks).detach()
        directions = torch.eye(logits.shape[1]).expand(len(images), -1, -1)
        readout = encoder.needed_readout
        with torch.no_grad():
            found = {"mean": readout.contributions(last.grid.to_columns(tap.value), directions).mean(dim=2)}
            if last.grid.prefix:
                found["token"] = readout.contributions(tap.value[:, :1], directions)[:, :, 0]
    return ex, found, logits


@pytest.mark.parametrize("name", HEADS)
def test_exact_readouts_give_the_logits_and_others_say_that_they_do_not(name: str) -> None:
    architecture, options, side, kind = HEADS[name]
    images = random_images(3, side)
    model = small(architecture, num_classes=5, **options)
    settled(model, model, images)
    ex, found, logits = read_out(model, images)
    # The bias is what is the same for every picture.
    apart, size = logits - logits[:1], float(logits.abs().max())
    assert float(apart.abs().max()) > 1e-3 * size, "the pictures are too alike to show anything"
    fitting = [how for how, read in found.items() if (read - read[:1] - apart).abs().max() < 1e-4 * size]
    assert fitting == ([] if kind == "neither" else [kind])
    assert ex.encoder.needed_readout.exact is (kind != "neither")


@pytest.mark.parametrize("name", ["resnet", "preactivation resnet, 1x1 conv", "swin", "mixer"])
def test_mean_of_cam_plus_bias_is_the_logit(name: str) -> None:
    architecture, options, side, _ = HEADS[name]
    model = small(architecture, num_classes=5, **options)
    images, classifier = random_images(3, side), model.get_classifier()
    maps = explainer.wrap(model)(images, list(range(5)), method="cam").maps
    with torch.no_grad():
        assert torch.allclose(maps.mean(dim=(2, 3)) + classifier.bias, model(images), rtol=1e-4, atol=1e-4)


def test_a_cell_is_the_logit_of_a_picture_that_is_that_cell_everywhere() -> None:
    """Through norms and convolutions between pooling and classifier; the definition of a readout."""
    model = small("convnext_atto", num_classes=5)
    ex = explainer.wrap(model)
    cells = torch.randn(1, 4, 320, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = torch.cat([model.forward_head(cell[None, :, None, None].expand(1, -1, 3, 4)) for cell in cells[0]])
        read = ex.encoder.needed_readout.contributions(cells, torch.eye(5)[None])[0].T
    assert torch.allclose(read + model.head.fc.bias, expected, atol=1e-5)


def crossvit(model: Any, cells: Tensor) -> Tensor:
    """The larger patches: half of the average of two heads."""
    return model.head[1](cells) / 2


def efficientvim(model: Any, cells: Tensor) -> Tensor:
    """The last of several maps, weighted."""
    return model.weights.softmax(-1)[-1] * model.heads[-1](cells)


def pit(model: Any, cells: Tensor) -> Tensor:
    """A norm that only the class token goes through."""
    return model.head(model.norm(cells))


@pytest.mark.parametrize(
    ("architecture", "head", "exact"),
    [("crossvit_tiny_240", crossvit, False), ("efficientvim_m1", efficientvim, False), ("pit_xs_224", pit, True)],
)
def test_heads_that_take_something_else_than_the_last_map(
    architecture: str, head: Callable[[Any, Tensor], Tensor], exact: bool
) -> None:
    """Several maps, of which the others count as nothing, or class tokens alone."""
    model = small(architecture, num_classes=5)
    ex = explainer.wrap(model)
    readout, last = ex.encoder.needed_readout, ex.inspect().layer
    assert readout.exact is exact
    assert last is not None
    cells = torch.randn(2, 3, last.channels, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        read = readout.contributions(cells, torch.eye(5).expand(2, 5, 5)).transpose(1, 2)
        expected = head(model, cells) - head(model, torch.zeros_like(cells))
        # A bias is the same for every cell.
        assert torch.allclose(read - read[:, :1], expected - expected[:, :1], atol=1e-5)
    warned = ex(random_images(1, ex.encoder.preprocess.size[0]), 1, method="cam").provenance.warnings
    assert any("read approximately" in warning for warning in warned) is not exact


def test_as_many_tokens_as_channels() -> None:
    vit = {"img_size": 28, "patch_size": 4, "embed_dim": 49, "num_heads": 7, "depth": 1}
    model = small("vit_tiny_patch16_224", num_classes=3, class_token=False, global_pool="avg", fc_norm=False, **vit)
    ex, images = explainer.wrap(model), random_images(1, 28)
    with torch.no_grad():
        expected = model(images)[0] - model.head.bias
    torch.testing.assert_close(ex(images, [0, 1, 2], method="cam").maps.mean(dim=(2, 3))[0], expected)


def nothing_to_read(_features: Any) -> Tensor:
    raise ValueError("a head of another kind")


def test_a_head_that_takes_no_single_cells_has_no_readout() -> None:
    model = small("resnet18", num_classes=5)
    model.forward_head = lambda features, pre_logits=False: (
        nn.functional.linear(features.flatten(1), torch.ones(5, 2048)) if features.shape[2] == 2 else nothing_to_read(0)
    )
    ex = explainer.wrap(model, size=(64, 64))
    assert "readout" not in ex.encoder.capabilities
    assert {fit.name for fit in ex.methods() if fit.fits} == {"gradcam"}
    assert message(lambda: ex(random_images(1, 64), 1, method="cam")) == (
        "method 'cam' does not fit timm:resnet18: nothing says what one cell of its last map means for its "
        "output; methods that fit: gradcam"
    )


@pytest.mark.parametrize(
    ("architecture", "layer"),
    [("efficientvit_b0", "stages"), ("cpubone_nano", "stages"), ("mobilenetv3_small_050", "blocks")],
)
def test_the_convolutions_of_a_head_are_no_last_map(architecture: str, layer: str) -> None:
    last = explainer.wrap(small(architecture)).inspect().layer
    assert last is not None
    assert last.layer == layer
