"""timm models by name, checkpoint and module, and the names of their classes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from oracles.helpers import random_images
from torch import nn

import explainer
from explainer_plugins.timm import load

from .common import message, resnet, small


def vit(**options: Any) -> nn.Module:
    return small("vit_tiny_patch16_224", depth=2, embed_dim=48, num_heads=3, num_classes=7, **options)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that cannot be reached, and nothing of it kept from earlier."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


# Loading


def test_random_weights_are_told_in_the_result_and_by_the_explainer() -> None:
    ex = explainer.wrap("timm:resnet18", pretrained=False)
    e = ex(random_images(1, 64), 3)
    told = ("the weights of timm:resnet18 are random: no published weights were loaded, so its maps mean nothing",)
    assert ex.encoder.warnings == told
    assert e.warnings[:1] == told
    assert e.provenance.weights == "random"
    assert e.provenance.encoder == "timm:resnet18"
    assert repr(ex) == "<Explainer of timm:resnet18, weights: random, input 224 x 224>"
    assert f"warning      {told[0]}" in str(ex.inspect())


def test_a_module_is_taken_as_it_is() -> None:
    model = small()
    ex = explainer.wrap(model)
    assert ex.encoder.model is model
    assert (ex.encoder.name, ex.encoder.weights, ex.encoder.warnings) == ("timm:resnet18", "as given", ())


def test_a_subclass_of_a_timm_model_is_a_timm_model() -> None:
    class Mine(timm.models.ResNet):
        pass

    ex = explainer.wrap(Mine(timm.models.resnet.BasicBlock, (1, 1, 1, 1), num_classes=4))
    assert ex.encoder.name == "timm:Mine"
    assert ex.encoder.capabilities >= {"classes", "features", "gradient", "readout"}


def test_a_checkpoint_fills_the_model(tmp_path: Path) -> None:
    model, path = small(num_classes=5), tmp_path / "mine.pt"
    torch.save(model.state_dict(), path)
    ex = explainer.wrap("timm:resnet18", checkpoint=str(path), num_classes=5)
    assert ex.encoder.weights == str(path)
    assert ex.encoder.warnings == ()
    for name, tensor in ex.encoder.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_a_checkpoint_of_another_architecture(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.save(vit().state_dict(), path)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' does not fit timm model 'resnet18': 102 tensors are missing (conv1.weight, "
        "bn1.weight, ...); 32 tensors are unknown (cls_token, pos_embed, ...); name the architecture that it was "
        "saved from, and its num_classes"
    )


def test_a_checkpoint_with_other_classes(tmp_path: Path) -> None:
    path = tmp_path / "seven.pt"
    torch.save(small(num_classes=7).state_dict(), path)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' does not fit timm model 'resnet18': fc.weight is [7, 512] where the model has "
        "[1000, 512], and 1 more; name the architecture that it was saved from, and its num_classes"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "EOFError: no further message"), (b"hello world" * 50, "KeyError: 101")],
)
def test_a_checkpoint_that_is_none(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.pt"
    path.write_bytes(content)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' cannot be read ({reason}); give a file written with "
        "torch.save(model.state_dict(), PATH), or a safetensors file"
    )


def test_a_checkpoint_that_holds_a_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save(small(), path)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' cannot be read (it holds Python objects, not only weights); give a file written "
        "with torch.save(model.state_dict(), PATH), or a safetensors file"
    )


def test_no_checkpoint_there() -> None:
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint="nowhere.pt")) == (
        "there is no checkpoint at 'nowhere.pt'; give the path of a file"
    )


def test_an_unknown_architecture_offers_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "list_models", lambda: ["convnext_atto", "convnext_tiny", "resnet18"])
    assert message(lambda: explainer.wrap("timm:convnext_ato", pretrained=False)) == (
        "timm has no model named 'convnext_ato'; did you mean 'convnext_atto' or 'convnext_tiny'? "
        "(timm.list_models('*convne*') searches)"
    )
    assert message(lambda: explainer.wrap("timm:zzz")) == (
        "timm has no model named 'zzz' (timm.list_models('*zzz*') searches)"
    )


def test_an_unknown_tag_offers_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = ["a1_in1k", "a2_in1k", "fb_dino", *(f"other{n}" for n in range(9))]
    monkeypatch.setattr(timm, "list_pretrained", lambda pattern: [pattern.replace("*", tag) for tag in tags])
    assert message(lambda: explainer.wrap("timm:resnet18.a1")) == (
        "timm has no weights 'a1' for resnet18; did you mean 'a2_in1k' or 'a1_in1k'? (available: a1_in1k, "
        "a2_in1k, fb_dino, other0, other1, other2, other3, other4, and 4 more)"
    )


@pytest.mark.usefixtures("no_hub")
def test_published_weights_without_a_network() -> None:
    text = message(lambda: explainer.wrap("timm:resnet18"))
    assert re.fullmatch(
        r"the weights of timm model 'resnet18' could not be loaded: .+; load a local file with "
        r"checkpoint='PATH', or use pretrained=False to see the model with random weights",
        text,
    )
    assert "\n" not in text


@pytest.mark.usefixtures("no_hub")
def test_a_hub_name_without_a_network() -> None:
    text = message(lambda: explainer.wrap("timm:hf-hub:owner/name"))
    assert re.fullmatch(
        r"timm model 'hf-hub:owner/name' could not be loaded: .+; for weights in a file name an architecture and "
        r"the file: wrap\('timm:resnet50', checkpoint='PATH'\)",
        text,
    )


def test_a_host_without_an_address_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of the hub retries for most of a minute; its cache is read instead."""

    def unknown(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with load.quick_hub():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})
    with load.quick_hub():
        assert not constants.HF_HUB_OFFLINE


def test_a_long_message_of_a_library_is_shortened_to_one_line() -> None:
    assert load.brief(ValueError("one\n  two.")) == "one two"
    assert load.brief(ValueError()) == "no further message"
    assert load.brief(ValueError("x" * 600)) == "x" * 500 + " ..."


def test_a_device_that_is_not_there() -> None:
    text = message(lambda: explainer.wrap("timm:resnet18", pretrained=False, device="cudda"))
    assert re.fullmatch(r"there is no device 'cudda' here \(Expected one of cpu, cuda, .+\); say device='cpu'", text)


@pytest.mark.parametrize(
    ("name", "value"), [("pretrained", True), ("checkpoint", "x.pt"), ("num_classes", 5), ("device", "cpu")]
)
def test_settings_of_loading_beside_a_module(name: str, value: object) -> None:
    assert message(lambda: explainer.wrap(small(), **{name: value})) == (
        f"{name}={value!r} says how a model is loaded by its name, but a module was given; leave it out"
    )


# Classes


def test_imagenet_names_come_with_the_model() -> None:
    names = explainer.wrap(small()).encoder.class_names
    assert names is not None
    assert len(names) == 1000
    assert names[281].startswith("tabby")


@pytest.mark.parametrize(
    ("tag", "count", "first"),
    [
        ("resnet18.fb_swsl_ig1b_ft_in1k", 1000, "tench"),
        ("mobilenetv3_large_100.miil_in21k", 11221, None),
        ("tiny_vit_5m_224.dist_in22k", 21841, None),
        ("convnext_nano.in12k", 11821, None),
    ],
)
def test_names_of_the_larger_imagenets(tag: str, count: int, first: str | None) -> None:
    ex = explainer.wrap(f"timm:{tag}", pretrained=False)
    names = ex.encoder.class_names
    assert names is not None
    assert len(names) == count == ex.encoder.model.num_classes
    assert all(names)
    assert first is None or names[0].startswith(first)


def test_other_numbers_of_classes_have_no_names() -> None:
    ex = explainer.wrap("timm:resnet18", pretrained=False, num_classes=5)
    assert ex.encoder.class_names is None
    assert ex.inspect().classes == 5
    e = ex(random_images(2, 64))
    assert e.names == ("top class",)
    assert all(re.fullmatch(r"class [0-4]", label) for (label,) in e.labels)
    assert message(lambda: ex(random_images(1, 64), "tabby")) == (
        "the class names of timm:resnet18 are not known, so 'tabby' cannot be looked up; give a class index "
        "(0 to 4), or the names with wrap(..., classes=[...])"
    )


def test_names_that_a_model_carries() -> None:
    """As models of the hub do that were trained on something else than ImageNet."""
    model = resnet(num_classes=3)
    model.pretrained_cfg = {
        "architecture": "resnet18",
        "label_names": ["n1", "n2", "bus"],
        "label_descriptions": {"n1": "cat, kitten", "n2": "dog"},
    }
    assert explainer.wrap(model).encoder.class_names == ("cat, kitten", "dog", "bus")
    model.pretrained_cfg["label_names"] = ["cat", "dog"]
    assert explainer.wrap(model).encoder.class_names is None


def test_published_weights_for_other_classes_leave_the_classifier_random(monkeypatch: pytest.MonkeyPatch) -> None:
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **options: create(name, **options))
    ex = explainer.wrap("timm:resnet18.a1_in1k", num_classes=5)
    assert ex.encoder.weights == "a1_in1k"
    assert ex.encoder.warnings == (
        "the classifier of timm:resnet18.a1_in1k is random: its published weights are for 1000 classes, not 5, so its "
        "maps mean nothing",
    )
    for options in ({}, {"num_classes": 1000}):
        published = explainer.wrap("timm:resnet18.a1_in1k", **options)
        assert (published.encoder.weights, published.encoder.warnings) == ("a1_in1k", ())


def test_own_class_names() -> None:
    ex = explainer.wrap(small(num_classes=3), classes=["cat", "dog, hound", "bus"])
    assert ex(random_images(1, 64), [1, "hound", "BUS"]).names == ("dog", "hound", "BUS")


def test_too_few_class_names() -> None:
    assert message(lambda: explainer.wrap(small(num_classes=3), classes=["cat", "dog"])) == (
        "2 class names were given, but timm:resnet18 has 3 classes"
    )
