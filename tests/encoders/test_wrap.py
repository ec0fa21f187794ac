"""The front door: what wrap takes, and what an explainer does with settings."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles.helpers import FakeTokenizer, clip_model, random_directions, random_images
from torch import Tensor, nn

import explainer
from explainer.encoder import Encoder
from explainer.selection import select
from explainer_plugins.cam import GradCAM
from explainer_registry import Selected

from .common import message, resnet


def classifier() -> nn.Module:
    return resnet(num_classes=4)


class Own(nn.Module):
    """A module of no library that an encoder knows."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.conv(images).mean(dim=(2, 3)))


# Names


def test_a_name_without_its_library() -> None:
    assert message(lambda: explainer.wrap("resnet50")) == (
        "'resnet50' does not say which library the model comes from; put its encoder in front, such as "
        "'open_clip:resnet50' or 'timm:resnet50' or 'transformers:resnet50' (encoders: demo, open_clip, stickers, "
        "timm, torch, transformers)"
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "tim:resnet50",
            "no encoder named 'tim'; did you mean 'timm'? (available: demo, open_clip, stickers, timm, torch, "
            "transformers)",
        ),
        ("jax:resnet50", "no encoder named 'jax' (available: demo, open_clip, stickers, timm, torch, transformers)"),
        ("timm:", "'timm:' lacks the model after ':'; say 'timm:<model>'"),
        ("timm", "model: 'timm' needs this setting and has no default for it"),
    ],
)
def test_names_that_are_none(name: str, text: str) -> None:
    assert message(lambda: explainer.wrap(name)) == text


@pytest.mark.parametrize(
    ("given", "shown"),
    [(None, "None (NoneType)"), (3, "3 (int)"), (nn.Linear, "<class 'torch.nn.modules.linear.Linear'> (type)")],
)
def test_what_is_no_model(given: Any, shown: str) -> None:
    assert message(lambda: explainer.wrap(given)) == (
        f"wrap takes a model or its name, such as 'timm:resnet50'; got {shown}"
    )


def test_an_encoder_beside_a_name() -> None:
    assert message(lambda: explainer.wrap("timm:resnet50", encoder="torch")) == (
        "encoder='torch' chooses who takes a module; a name says that itself: 'torch:NAME'"
    )


def test_a_selection() -> None:
    selected = select("encoders", "timm:resnet18", {"pretrained": False, "num_classes": 3})
    assert isinstance(selected, Selected)
    assert explainer.wrap(selected).encoder.model.num_classes == 3


# Modules


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (classifier, "timm:resnet18"),
        (lambda: clip_model("small"), "open_clip:CLIP"),
        (Own, "torch:Own"),
        (lambda: nn.Sequential(Own()), "torch:Sequential"),
    ],
)
def test_a_module_finds_its_encoder_by_the_library_of_its_class(make: Any, name: str) -> None:
    model = make()
    ex = explainer.wrap(model)
    assert ex.encoder.name == name
    assert ex.encoder.model is model


def test_another_encoder_can_be_named() -> None:
    ex = explainer.wrap(classifier(), encoder="torch", size=(64, 64))
    assert ex.encoder.name == "torch:ResNet"
    assert ex(random_images(1, 64), 1).maps.shape == (1, 1, 2, 2)


def test_an_encoder_that_does_not_exist() -> None:
    assert message(lambda: explainer.wrap(classifier(), encoder="tim")) == (
        "no encoder named 'tim'; did you mean 'timm'? (available: demo, open_clip, stickers, timm, torch, transformers)"
    )


def test_an_encoder_that_takes_no_module() -> None:
    assert message(lambda: explainer.wrap(classifier(), encoder="demo")) == (
        "model: no such setting of 'demo' (settings: none)"
    )


def test_a_clip_encoder_on_something_else() -> None:
    assert message(lambda: explainer.wrap(Own(), encoder="open_clip")) == (
        "this Own is no whole CLIP: it has no encode_image and visual; wrap the model that open_clip.create_model "
        "returns, not a part of it"
    )


@pytest.mark.parametrize("wrapped", [classifier, Own])
def test_data_parallel_is_refused(wrapped: Any) -> None:
    text = "a DataParallel model runs in threads of its own, where hooks cannot follow; wrap model.module instead"
    assert message(lambda: explainer.wrap(nn.DataParallel(wrapped()))) == text
    assert message(lambda: explainer.wrap(nn.DataParallel(wrapped()), encoder="torch")) == text


@pytest.mark.parametrize("run_first", [False, True])
def test_a_compiled_module_is_the_module_inside(run_first: bool) -> None:
    model, images = classifier(), random_images(2, 64)
    expected = explainer.wrap(model)(images, 1, method="gradcam")
    compiled = torch.compile(copy.deepcopy(model), backend="eager")
    if run_first:
        with torch.no_grad():
            compiled(images)
    ex = explainer.wrap(compiled)
    assert ex.encoder.name == "timm:resnet18"
    assert torch.equal(ex(images, 1, method="gradcam").maps, expected.maps)


def test_a_module_compiled_in_place() -> None:
    model, images = classifier(), random_images(2, 64)
    expected = explainer.wrap(model)(images, 1, method="gradcam")
    model.compile(backend="eager")
    with torch.no_grad():
        before = model(images)
    assert torch.equal(explainer.wrap(model)(images, 1, method="gradcam").maps, expected.maps)
    with torch.no_grad():
        assert torch.equal(model(images), before)


# Settings


@pytest.mark.parametrize(
    ("make", "options", "text"),
    [
        (
            classifier,
            {"clases": ["a"]},
            "clases: no such setting of 'timm'; did you mean 'classes'? (settings: model, pretrained, checkpoint, "
            "num_classes, classes, size, device)",
        ),
        (
            lambda: clip_model("small"),
            {"tokeniser": None},
            "tokeniser: no such setting of 'open_clip'; did you mean 'tokenizer'? (settings: model, pretrained, "
            "tokenizer, size, device)",
        ),
        (
            Own,
            {"layers": "conv"},
            "layers: no such setting of 'torch'; did you mean 'layer'? (settings: model, layer, layout, classes, size, "
            "mean, std)",
        ),
    ],
)
def test_settings_that_do_not_exist(make: Any, options: dict[str, Any], text: str) -> None:
    assert message(lambda: explainer.wrap(make(), **options)) == text


@pytest.mark.parametrize("size", [(224,), (224, "wide"), (1, 2, 3), (0, 64), (64, -1), 0, True, 64.0, "wide"])
@pytest.mark.parametrize("make", [classifier, lambda: clip_model("small"), Own])
def test_a_size_that_is_none(make: Callable[[], nn.Module], size: Any) -> None:
    assert message(lambda: explainer.wrap(make(), size=size)) == (
        f"size: expected (height, width) in pixels, or one number for a square (given: {size!r})"
    )


def test_one_number_is_a_square() -> None:
    assert explainer.wrap(classifier(), size=96).encoder.preprocess.size == (96, 96)


def test_methods_and_their_settings() -> None:
    ex, images = explainer.wrap(classifier()), random_images(1, 64)
    assert message(lambda: ex(images, 1, method="gradcm")).startswith(
        "no method named 'gradcm'; did you mean 'gradcam'? (available: cam, "
    )
    assert message(lambda: ex(images, 1, method="gradcam", leyer="layer4")) == (
        "leyer: no such setting of 'gradcam'; did you mean 'layer'? (settings: layer, relu)"
    )
    assert message(lambda: ex(images, 1, method={"name": "gradcam", "relu": "perhaps"})) == (
        "relu: Input should be a valid boolean, unable to interpret input (given: 'perhaps')"
    )


def test_a_method_in_every_spelling() -> None:
    ex, images = explainer.wrap(classifier()), random_images(1, 64)
    expected = ex(images, 1, method="gradcam", layer="layer3", relu=False)
    for e in (
        ex(images, 1, method={"name": "gradcam", "layer": "layer3", "relu": False}),
        ex(images, 1, method={"name": "gradcam", "layer": "layer3"}, relu=False),
        ex(images, 1, method=GradCAM(layer="layer3", relu=False)),
        ex(images, 1, method=Selected("gradcam", GradCAM(layer="layer3", relu=False))),
        ex(images, 1, method="gradcam", layer=ex.encoder.model.layer3, relu=False),
    ):
        assert e == expected
    assert message(lambda: ex(images, 1, method=GradCAM(), relu=False)) == (
        "GradCAM already holds all settings, so relu cannot be given beside it; set it there"
    )


def test_a_layer_of_another_model() -> None:
    ex = explainer.wrap(classifier())
    assert message(lambda: ex(random_images(1, 64), 1, method="gradcam", layer=nn.ReLU())) == (
        "this ReLU is not part of the ResNet that was wrapped; give a module of that model, or its dotted name"
    )


def test_a_method_that_does_not_fit() -> None:
    ex = explainer.wrap(classifier())
    assert message(lambda: ex(random_images(1, 64), 1, method="gem")) == (
        "method 'gem' does not fit timm:resnet18: it has no dense softmax attention over its patches that could be "
        "reached; methods that fit: cam, gradcam, similarity"
    )


# Explainers


def test_features_of_a_layer() -> None:
    model, images = classifier(), random_images(2, 64)
    ex = explainer.wrap(model)
    with torch.no_grad():
        expected = model.forward_features(images)
    assert torch.equal(ex.features(images), expected)
    assert torch.equal(ex.features(images, "layer4"), expected)
    assert torch.equal(ex.features(images, model.layer4), expected)
    assert ex.features(images, "layer2").shape == (2, 128, 8, 8)
    assert not ex.features(images).requires_grad
    assert message(lambda: ex.features(images, "layer5")) == (
        "no layer named 'layer5' in ResNet (nearest: layer4, layer3, layer2); ex.inspect() lists the layers"
    )
    assert message(lambda: ex.features(images, "fc")) == (
        "layer 'fc' gives no map of the picture, or does not exist; nearest layers that do: "
        f"{', '.join(ex.encoder.geometry((64, 64)).layers[-3:])}"
    )


def test_features_of_tokens_lie_on_the_grid() -> None:
    model, images = clip_model("small_tall"), random_images(2, 48, 32)
    ex = explainer.wrap(model)
    features = ex.features(images)
    assert features.shape == (2, 64, 6, 4)
    tokens = ex.features(images, "visual.transformer.resblocks.3")
    with ex.encoder.session() as hooks:
        tap = hooks.tap("visual.transformer.resblocks.3")
        ex.encoder.forward(images, hooks)
    assert torch.equal(tokens[:, :, 2, 3], tap.value[:, 1 + 2 * 4 + 3])


def test_what_is_known_is_in_the_report() -> None:
    ex = explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer())
    report = ex.inspect()
    assert (report.encoder, report.weights, report.size) == ("open_clip:CLIP", "as given", (32, 32))
    assert (report.classes, report.embedding) == (None, 48)
    assert len(report.blocks) == 7
    assert report.methods == tuple(ex.methods())
    assert [fit.name for fit in ex.methods() if fit.default] == ["gem"]
    text = str(report)
    assert text.startswith(
        "model        open_clip:CLIP, weights: as given\ninput        32 x 32, embedding of 48\nlast map     visual."
    )
    assert "gradients    visual.transformer.resblocks.6.ln_1" in text


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (torch.zeros(2, 3, 4), "shape [2, 3, 4]"),
        (torch.zeros(2, 1, 4, 4), "shape [2, 1, 4, 4]"),
        (None, "a NoneType"),
    ],
)
def test_a_method_that_gives_something_else_than_maps(monkeypatch: pytest.MonkeyPatch, value: Any, got: str) -> None:
    monkeypatch.setattr("explainer_plugins.cam.cam.run", lambda *_: value)
    ex = explainer.wrap(classifier())
    assert message(lambda: ex(random_images(2, 64), [1, 2, 3], method="cam")) == (
        f"method 'cam' has to give maps [2, 3, h, w], one for each picture and target; it gave {got}"
    )


def test_wrapping_inside_inference_mode() -> None:
    """Weights that are made there without further ado could never be differentiated through."""
    images = random_images(1, 64)
    with torch.inference_mode():
        ex = explainer.wrap("timm:resnet18", pretrained=False)
        inside = ex(images, 1, method="gradcam")
    assert not any(p.is_inference() for p in ex.encoder.model.parameters())
    assert torch.equal(ex(images, 1, method="gradcam").maps, inside.maps)


@pytest.mark.parametrize("make", [classifier, Own, lambda: clip_model("small")])
def test_other_defaults_of_torch_do_not_matter(make: Any) -> None:
    model, images = make().eval(), random_images(1, 32)
    targets = torch.eye(48)[:2] if hasattr(model, "visual") else [1, 2]
    expected = explainer.wrap(model)(images, targets).maps
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        found = explainer.wrap(model)(images, targets).maps
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert torch.allclose(found, expected, atol=1e-5)


def test_two_explainers_of_one_model_do_not_disturb_each_other() -> None:
    model, images = clip_model("small"), random_images(2, 32)
    one, other = explainer.wrap(model), explainer.wrap(model, size=(64, 64))
    targets = random_directions(1, 48)
    expected = one(images, targets).maps
    other(random_images(1, 64), targets)
    assert torch.equal(one(images, targets).maps, expected)
    assert isinstance(one.encoder, Encoder)
