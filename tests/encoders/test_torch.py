"""Plain torch classifiers: what they return, which layer is their last map, and how they read it."""

from __future__ import annotations

import copy
import re
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torchvision
from oracles.helpers import perturb, random_images
from PIL import Image
from torch import Tensor, nn

import explainer

from .common import message, settled, small


class Plain(nn.Module):
    """Two convolutions that share one activation, and a linear head behind an average."""

    def __init__(self, head: nn.Module | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.head = head or nn.Linear(16, 5)

    def features(self, images: Tensor) -> Tensor:
        return self.norm(self.relu(self.conv2(self.pool(self.relu(self.conv1(images))))))

    def forward(self, images: Tensor) -> Any:
        return self.head(self.features(images).mean(dim=(2, 3)))


class Returning(nn.Module):
    """Wraps what a model returns."""

    def __init__(self, how: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.model = Plain()
        self.how = how

    def forward(self, images: Tensor) -> Any:
        return self.how(self.model(images))


class Output(OrderedDict[str, Tensor]):
    """As transformers' ModelOutput: a mapping with attributes."""

    logits: Tensor


def model_output(logits: Tensor) -> Output:
    output = Output(hidden=torch.zeros(1), logits=logits)
    output.logits = logits
    return output


def fresh(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return perturb(make())


SIZE = (32, 32)
IMAGES = random_images(2, 32)


# What models return


@pytest.mark.parametrize(
    "how",
    [
        lambda logits: logits,
        lambda logits: (logits, None),
        lambda logits: [logits, logits],
        lambda logits: {"features": logits[:, :1], "logits": logits},
        lambda logits: {"out": logits, "aux": logits[:, :1]},
        lambda logits: SimpleNamespace(logits=logits),
        model_output,
    ],
)
def test_logits_are_found_in_what_a_model_returns(how: Callable[[Tensor], Any]) -> None:
    model = fresh(lambda: Returning(how))
    e = explainer.wrap(model, size=SIZE)(IMAGES, [0, 4])
    plain = explainer.wrap(model.model, size=SIZE)(IMAGES, [0, 4])
    assert torch.equal(e.maps, plain.maps)
    assert torch.equal(e.scores, plain.scores)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (lambda _: None, "NoneType"),
        (lambda _: "cat", "str"),
        (lambda _: (), "tuple"),
        (lambda _: ("cat", 1), "tuple"),
        (lambda logits: {"scores": logits}, "dict"),
    ],
)
def test_outputs_without_logits(how: Callable[[Tensor], Any], kind: str) -> None:
    assert message(lambda: explainer.wrap(Returning(how), size=SIZE)) == (
        f"the model returns a {kind} in which no logits were found; wrap a module whose forward returns class logits "
        "[B, K]"
    )


@pytest.mark.parametrize(
    ("how", "shape"),
    [
        (lambda logits: logits[:, :, None, None], "[2, 5, 1, 1]"),
        (lambda logits: logits[:, 0], "[2]"),
        (lambda logits: logits.sum(), "[]"),
    ],
)
def test_outputs_of_another_shape(how: Callable[[Tensor], Any], shape: str) -> None:
    assert message(lambda: explainer.wrap(Returning(how), size=SIZE)) == (
        f"torch:Returning gives an output of shape {shape}; a classifier gives class logits [B, K]"
    )


def test_a_model_that_fails() -> None:
    text = message(lambda: explainer.wrap(Plain(nn.Linear(17, 5)), size=SIZE))
    assert re.fullmatch(
        r"torch:Plain cannot run on an input of 32 x 32 \(RuntimeError: .+\); say what it was made for with "
        r"wrap\(model, size=\(height, width\)\), and give tensors of that size",
        text,
    )


def test_a_name_instead_of_a_module() -> None:
    assert message(lambda: explainer.wrap("torch:resnet18")) == (
        "the torch encoder takes a module, not the name 'resnet18'; load the model in Python and use "
        "explainer.wrap(model), or name a timm model: 'timm:resnet50'"
    )


# Layers and layouts


def test_an_activation_that_is_shared_is_no_last_map() -> None:
    """`relu` runs twice; what it gave last could not be told from what it gave first."""
    ex = explainer.wrap(fresh(lambda: nn.Sequential(Plain())), size=SIZE)
    last = ex.inspect().layer
    assert last is not None
    assert last.layer == "0.norm"
    assert ex(IMAGES).maps.shape == (2, 1, 16, 16)


def test_a_layer_that_is_given() -> None:
    ex = explainer.wrap(fresh(Plain), size=SIZE, layer="conv1")
    assert ex.encoder.last_map(IMAGES).layer == "conv1"
    assert ex(IMAGES, 1).maps.shape == (2, 1, 32, 32)
    assert ex(IMAGES, 1).provenance.layer == "conv1"
    # Behind it there is more than pooling and a linear layer.
    assert ex.encoder.readout is None


def test_a_layer_that_does_not_exist() -> None:
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE, layer="conv3")) == (
        "layer 'conv3' gives no single tensor in a forward pass, or does not exist; nearest layers that do: conv2, "
        "conv1"
    )


def test_a_layer_that_does_not_lie_on_the_picture() -> None:
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE, layer="head")) == (
        "layer 'head' gives 5 per picture, which does not lie on the picture; nearest layers that do: pool, conv2, norm"
    )


def test_a_layer_that_runs_twice() -> None:
    text = (
        "layer 'relu' runs 2 times in a forward pass, so it has no one map; nearest layers that do: pool, conv2, norm"
    )
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE, layer="relu")) == text
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE)(IMAGES, method="gradcam", layer="relu")) == text


class ChannelsLast(nn.Module):
    """A map of 4 x 4 cells with 4 channels last: its shape does not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 8, 8)
        self.turn = nn.Identity()
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.turn(self.conv(images).permute(0, 2, 3, 1)).mean(dim=(1, 2)))


def test_a_layout_that_is_given() -> None:
    model = fresh(ChannelsLast)
    ex = explainer.wrap(model, size=SIZE, layer="turn", layout="NHWC")
    assert ex.encoder.last_map(IMAGES).grid.layout == "NHWC"
    with torch.no_grad():
        cells = model.conv(IMAGES)
        expected = torch.einsum("bchw,kc->bkhw", cells, model.head.weight)
    assert torch.allclose(ex(IMAGES, list(range(5)), method="cam").maps, expected, atol=1e-5)
    # Read with channels first, the average is not what the head takes: there is no readout to be wrong.
    assert explainer.wrap(model, size=SIZE, layer="turn", layout="NCHW").encoder.readout is None


def test_a_layout_without_a_layer() -> None:
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE, layout="NHWC")) == (
        "layout='NHWC' says how the output of a layer is laid out; name the layer too: layer=..."
    )


def test_an_unknown_layout() -> None:
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE, layer="conv2", layout="NCWH")) == (
        "layout: Input should be 'NCHW', 'NHWC', 'NLC' or 'NCL'; did you mean 'NCHW'? (given: 'NCWH')"
    )


def test_a_layout_that_the_layer_cannot_have() -> None:
    assert message(lambda: explainer.wrap(fresh(Plain), size=SIZE, layer="conv2", layout="NLC")) == (
        "an output of shape [2, 16, 16, 16] cannot have the layout NLC"
    )


def test_a_model_without_a_map() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3 * 32 * 32, 5)

        def forward(self, images: Tensor) -> Tensor:
            return self.head(images.flatten(1))

    ex = explainer.wrap(fresh(Flat), size=SIZE)
    report = ex.inspect()
    assert (report.layer, report.layers, report.classes) == (None, (), 5)
    assert message(lambda: ex(IMAGES, method="gradcam")) == (
        "method 'gradcam' does not fit torch:Flat: no layer gives a map of the picture; methods that fit: none"
    )
    assert message(lambda: ex.features(IMAGES)) == (
        "no layer of torch:Flat gives a map of the picture; name one with layer=... and say how it is laid out with "
        "layout='NCHW', 'NHWC' or 'NLC'"
    )
    text = message(lambda: ex(IMAGES))
    assert text.startswith("no method fits torch:Flat (cam, ")
    assert text.count("no layer gives a map of the picture") == 1
    assert text.endswith("); ex.inspect() shows what was found")


# How the last map is read


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
