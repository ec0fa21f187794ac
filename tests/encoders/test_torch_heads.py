"""How plain torch classifiers read their last map, found out by running them."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torchvision
from oracles.helpers import random_images
from PIL import Image
from torch import Tensor, nn

import explainer

from .common import Plain, fresh, message, settled, small

SIZE = (32, 32)
IMAGES = random_images(2, 32)


def test_mean_of_cam_plus_bias_is_the_logit() -> None:
    model = fresh(Plain)
    maps = explainer.wrap(model, size=SIZE)(IMAGES, list(range(5)), method="cam").maps
    with torch.no_grad():
        assert torch.allclose(maps.mean(dim=(2, 3)) + model.head.bias, model(IMAGES), atol=1e-5)


@pytest.mark.parametrize(
    "head",
    [
        lambda: nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 5)),
        lambda: nn.Sequential(nn.ReLU(), nn.Linear(16, 5)),
        lambda: nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 5)),
        lambda: nn.Sequential(nn.Linear(16, 5), nn.Softmax(dim=1)),
        lambda: nn.Sequential(nn.Linear(16, 7), nn.Linear(7, 5)),
    ],
)
def test_a_head_that_is_more_than_linear_has_no_readout(head: Callable[[], nn.Module]) -> None:
    """Its last layer takes as many channels as the map has, but other ones."""
    model = fresh(lambda: Plain(head()))
    ex = explainer.wrap(settled(model, model, IMAGES), size=SIZE)
    assert ex.encoder.readout is None
    assert "gradient" in ex.encoder.capabilities
    assert ex(IMAGES).method == "gradcam"
    assert message(lambda: ex(IMAGES, method="cam")) == (
        "method 'cam' does not fit torch:Plain: nothing says what one cell of its last map means for its output; "
        "methods that fit: gradcam"
    )


def test_log_probabilities_have_a_gradient_to_find_things_out_with() -> None:
    """Their sum over classes is flat where the model is sure of nothing."""
    vit = small("vit_tiny_patch16_224", img_size=32, depth=2, embed_dim=48, num_heads=3, num_classes=5)
    model = nn.Sequential(vit, nn.LogSoftmax(dim=1))
    ex = explainer.wrap(model, size=SIZE)
    assert ex.encoder.gradient_map(IMAGES).layer == "0.blocks.1.norm1"


class TestVision:
    """torchvision's own."""

    @pytest.mark.parametrize(
        ("name", "layer", "exact"),
        [("resnet18", "layer4", True), ("convnext_tiny", "features", False), ("squeezenet1_1", "classifier.2", False)],
    )
    def test_convolutional_networks(self, name: str, layer: str, exact: bool) -> None:
        model = fresh(getattr(torchvision.models, name))
        images = random_images(2, 64)
        ex = explainer.wrap(settled(model, model, images), size=(64, 64))
        assert ex.encoder.name == f"torch:{type(model).__name__}"
        assert ex.encoder.last_map(images).layer == layer
        assert (ex.encoder.readout is not None) is exact
        if exact:
            maps = ex(images, [3, 999], method="cam").maps
            with torch.no_grad():
                logits = model(images)[:, [3, 999]]
            assert torch.allclose(maps.mean(dim=(2, 3)) + model.fc.bias[[3, 999]], logits, atol=1e-4)
        assert ex(images, 3, method="gradcam", relu=False).maps.abs().max() > 0

    def test_swin(self) -> None:
        """The last map is turned to channels first behind the norm; the window is 7."""
        model = fresh(lambda: torchvision.models.SwinTransformer([4, 4], 24, [1, 1], [3, 3], [7, 7], num_classes=5))
        images = random_images(2, 56)
        ex = explainer.wrap(model, size=(56, 56))
        last = ex.encoder.last_map(images)
        assert (last.layer, last.grid.layout, last.grid.height) == ("permute", "NCHW", 7)
        maps = ex(images, list(range(5)), method="cam").maps
        with torch.no_grad():
            assert torch.allclose(maps.mean(dim=(2, 3)) + model.head.bias, model(images), atol=1e-5)

    def test_the_class_token_of_a_vit(self) -> None:
        """Behind the last attention patches have no gradient; in front of it they have."""
        model = fresh(lambda: torchvision.models.VisionTransformer(32, 8, 2, 3, 48, 96, num_classes=5))
        ex = explainer.wrap(model, size=SIZE)
        report = ex.inspect()
        assert report.layer is not None
        assert report.gradient is not None
        assert (report.layer.layer, report.layer.grid.prefix) == ("encoder", 1)
        assert report.gradient.layer == "encoder.layers.encoder_layer_1.ln_1"
        assert len(report.blocks) == 2
        assert ex(IMAGES, [1, 2], method="gradcam", relu=False).maps.flatten(2).std(dim=2).min() > 0
        readout = ex.encoder.needed_readout
        with ex.encoder.session() as hooks, torch.no_grad():
            tap = hooks.tap("encoder")
            logits = ex.encoder.forward(IMAGES, hooks)
            read = readout.contributions(tap.value[:, :1], torch.eye(5).expand(2, -1, -1))[:, :, 0]
        assert torch.allclose(read + model.heads.head.bias, logits, atol=1e-5)

    def test_a_head_that_is_still_zero(self) -> None:
        """As torchvision makes it: nothing can be found out, and Grad-CAM says why it has no map."""
        with torch.random.fork_rng(devices=[]):
            model = torchvision.models.VisionTransformer(32, 8, 2, 3, 48, 96, num_classes=5).eval()
        assert not model.heads.head.weight.any()
        assert message(lambda: explainer.wrap(model, size=SIZE)(IMAGES, 1, method="gradcam")) == (
            "the gradient at layer 'encoder' is zero everywhere, so the map would be all zero; the score does not "
            "change with this layer (a head whose weights are still zero, or a saturated score: try score='logit')"
        )


def test_tokens_that_are_averaged_are_read_behind_the_last_norm() -> None:
    model = nn.Sequential(
        small(
            "vit_tiny_patch16_224",
            img_size=64,
            depth=2,
            embed_dim=48,
            num_heads=3,
            num_classes=5,
            global_pool="avg",
            fc_norm=False,
        )
    )
    ex, images = explainer.wrap(model, size=(64, 64)), random_images(2, 64)
    assert ex.encoder.gradient_map(images).layer == ex.encoder.last_map(images).layer == "0.norm"
    maps = ex(images, list(range(5)), method="cam").maps
    with torch.no_grad():
        assert torch.allclose(maps.mean(dim=(2, 3)) + model[0].head.bias, model(images), atol=1e-5)


def test_a_model_that_cuts_its_own_graph_can_still_be_read() -> None:
    class Cut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = small("vit_tiny_patch16_224", img_size=32, depth=1, embed_dim=48, num_heads=3, num_classes=5)

        @torch.no_grad()
        def forward(self, images: Tensor) -> Tensor:
            return self.model(images)

    ex = explainer.wrap(Cut(), size=SIZE)
    assert ex.encoder.gradient_map(IMAGES).layer == ex.encoder.last_map(IMAGES).layer == "model.norm"
    assert message(lambda: ex(IMAGES, 1, method="gradcam")) == (
        "the score does not depend on layer 'model.norm', so it has no gradient there; choose a layer between the "
        "picture and the score (ex.inspect() lists them)"
    )


def test_finding_out_leaves_no_trace() -> None:
    model = fresh(lambda: torchvision.models.VisionTransformer(32, 8, 2, 3, 48, 96, num_classes=5)).train()
    next(model.parameters()).requires_grad_(False)
    flags = [p.requires_grad for p in model.parameters()]
    state, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    explainer.wrap(model, size=SIZE)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(module.training for module in model.modules())
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


# Settings


def test_pictures_are_prepared_as_the_settings_say() -> None:
    ex = explainer.wrap(fresh(Plain), size=(32, 48), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    white = ex.encoder.preprocess(Image.new("RGB", (60, 40), "white"))
    assert white.shape == (3, 32, 48)
    assert torch.allclose(white, torch.full((3, 32, 48), 2.0))


def test_own_class_names() -> None:
    ex = explainer.wrap(fresh(Plain), size=SIZE, classes=["cat", "dog", "bus", "car", "tree"])
    e = ex(IMAGES, ["dog", 2])
    assert e.names == ("dog", "bus")
    assert torch.equal(e.maps, ex(IMAGES, [1, 2]).maps)


def test_a_model_in_half_precision() -> None:
    e = explainer.wrap(fresh(Plain).bfloat16(), size=SIZE)(IMAGES, [1, 2], method="cam")
    assert e.maps.dtype == torch.float32
    assert e.maps.isfinite().all()
