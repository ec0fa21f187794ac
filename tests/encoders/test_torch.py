"""Plain torch classifiers: what they return, and which layer is their last map."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from oracles.helpers import random_images
from torch import Tensor, nn

import explainer

from .common import Plain, fresh, message


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
        "layer 'conv3' gives no map of the picture, or does not exist; nearest layers that do: conv2, conv1"
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
