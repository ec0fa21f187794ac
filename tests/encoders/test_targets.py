"""Classes and prompts as targets, and every way to get one wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from oracles.helpers import FakeTokenizer, clip_model, random_images

import explainer
from explainer.target import Targets

from .common import message, resnet, settled

IMAGES = random_images(2, 64)


@pytest.fixture(scope="module")
def imagenet() -> explainer.Explainer:
    return explainer.wrap(resnet())


@pytest.fixture(scope="module")
def clip() -> explainer.Explainer:
    return explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer())


def names(ex: explainer.Explainer, targets: Any) -> tuple[str, ...]:
    return ex(random_images(2, 32), targets).names


# Class indices and names


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (281, ("tabby",)),
        (0, ("tench",)),
        (999, ("toilet tissue",)),
        (np.int64(281), ("tabby",)),
        (np.array(281), ("tabby",)),
        ([281, np.int32(3)], ("tabby", "tiger shark")),
        (np.array([281, 3]), ("tabby", "tiger shark")),
        (range(2), ("tench", "goldfish")),
        ((281, "tabby cat"), ("tabby", "tabby cat")),
        ("tabby", ("tabby",)),
        ("tabby cat", ("tabby cat",)),
        ("tabby, tabby cat", ("tabby, tabby cat",)),
        ("TABBY Cat", ("TABBY Cat",)),
        ("  tabby\n", ("tabby",)),
        ("tiger", ("tiger",)),
    ],
)
def test_classes_by_index_and_name(imagenet: explainer.Explainer, given: Any, expected: tuple[str, ...]) -> None:
    assert names(imagenet, given) == expected


@pytest.mark.parametrize(
    ("name", "index"),
    [("tabby", 281), ("tabby cat", 281), ("TABBY, Tabby Cat", 281), ("tiger", 292), ("sunglasses", 837)],
)
def test_a_name_means_the_same_as_its_index(imagenet: explainer.Explainer, name: str, index: int) -> None:
    assert torch.equal(imagenet(IMAGES, name).maps, imagenet(IMAGES, index).maps)


def test_a_generator_of_targets(imagenet: explainer.Explainer) -> None:
    assert names(imagenet, (index for index in (281, 3))) == ("tabby", "tiger shark")


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("crane", "134: crane; 517: crane"),
        ("Maillot", "638: maillot; 639: maillot, tank suit"),
    ],
)
def test_names_of_several_classes(imagenet: explainer.Explainer, name: str, classes: str) -> None:
    assert message(lambda: imagenet(IMAGES, name)) == (
        f"'{name}' is the name of 2 classes; give the index of one ({classes})"
    )


def test_classes_that_share_a_name_are_told_apart_in_the_result(imagenet: explainer.Explainer) -> None:
    assert names(imagenet, [134, 517, 638]) == ("crane (134)", "crane (517)", "maillot (638)")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("tabbi cat", "(nearest: tabby cat, lab coat, tiger cat, taxicab); `ex.encoder.class_names` lists all"),
        (
            "cat",
            "(nearest: tabby cat, tiger cat, Persian cat, Siamese cat, Egyptian cat); `ex.encoder.class_names` lists "
            "all",
        ),
        (
            "(cat",
            "(nearest: crate, coast, oxcart, castle, carton); `ex.encoder.class_names` lists all",
        ),
        ("zzzzz", "(no name is near); `ex.encoder.class_names` lists all"),
        ("", "(no name is near); `ex.encoder.class_names` lists all"),
    ],
)
def test_a_name_that_is_none(imagenet: explainer.Explainer, name: str, hint: str) -> None:
    assert message(lambda: imagenet(IMAGES, name)) == f"timm:resnet18 has no class named '{name}' {hint}"


def test_an_index_written_as_text(imagenet: explainer.Explainer) -> None:
    assert message(lambda: imagenet(IMAGES, "281")) == (
        "timm:resnet18 has no class named '281'; a class index is a number: 281"
    )


@pytest.mark.parametrize("index", [-1, 1000, np.int64(5000)])
def test_an_index_out_of_range(imagenet: explainer.Explainer, index: int) -> None:
    assert message(lambda: imagenet(IMAGES, [3, index])) == (
        f"class index {index} is out of range: timm:resnet18 has 1000 classes, 0 to 999"
    )


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (True, "True (bool)"),
        (np.bool_(True), "np.True_ (bool)"),
        (3.5, "3.5 (float)"),
        ([np.float32(3)], "np.float32(3.0) (float32)"),
        ([None], "None (NoneType)"),
        ([[1, 2]], "[1, 2] (list)"),
        ([["tabby", "tiger"]], "['tabby', 'tiger'] (list)"),
        ({"tabby": 1}, "{'tabby': 1} (dict)"),
        ({281}, "{281} (set)"),
        (b"tabby", "b'tabby' (bytes)"),
    ],
)
def test_what_is_no_target_of_a_classifier(imagenet: explainer.Explainer, given: Any, shown: str) -> None:
    assert message(lambda: imagenet(IMAGES, given)) == (
        f"a target of timm:resnet18 is a class index, a class name or a direction [1000] over its logits; got {shown}"
    )


@pytest.mark.parametrize("given", [[], (), np.array([]), iter(())])
def test_no_targets(imagenet: explainer.Explainer, clip: explainer.Explainer, given: Any) -> None:
    text = "the list of targets is empty; give at least one"
    assert message(lambda: imagenet(IMAGES, given)) == text
    assert message(lambda: clip(random_images(2, 32), list(given))) == text


@pytest.mark.parametrize("target", ["tabby", None])
def test_templates_on_a_classifier(imagenet: explainer.Explainer, target: str | None) -> None:
    assert message(lambda: imagenet(IMAGES, target, templates="photo")) == (
        "timm:resnet18 is a classifier and reads no text, so it takes no templates"
    )


def test_templates_without_prompts(clip: explainer.Explainer) -> None:
    assert message(lambda: clip(random_images(2, 32), torch.ones(48), templates="photo")) == (
        "templates are for prompts, and only directions were asked; leave the templates out"
    )


# The top class


def test_the_top_class_of_each_picture() -> None:
    model, images = resnet(num_classes=4), random_images(6, 48)
    settled(model, model, images)
    ex = explainer.wrap(model, classes=["cat", "dog", "bus", "dog"])
    with torch.no_grad():
        top = model(images).argmax(dim=1).tolist()
    assert len(set(top)) > 1
    spelled = ["cat", "dog (1)", "bus", "dog (3)"]
    e = ex(images)
    assert e.names == ("top class",)
    assert e.labels == tuple((spelled[index],) for index in top)
    for b, index in enumerate(top):
        assert torch.allclose(e.maps[b], ex(images[b], index).maps[0], atol=1e-5 * float(e.maps.abs().max()))
        assert torch.isclose(e.scores[b, 0], ex(images[b], index).scores[0, 0], atol=1e-5)


def test_a_clip_has_no_top_class(clip: explainer.Explainer) -> None:
    text = (
        "open_clip:CLIP has no classes, so there is no top class to explain; say what to look for, such as "
        "ex(picture, ['a bus'])"
    )
    assert message(lambda: clip(random_images(2, 32))) == text


def test_the_top_class_is_not_known_before_the_model_has_answered(imagenet: explainer.Explainer) -> None:
    encoder = imagenet.encoder
    targets = Targets(encoder, encoder.default_question(), 2, lambda answer: answer.logits, "logit")
    assert targets.pending
    assert message(lambda: targets.directions) == (
        "the direction of 'top class' is only known once the model has answered: call targets.scores(outputs) with "
        "the encoder's output before reading targets.directions"
    )
    targets.scores(torch.eye(2, 1000))
    assert not targets.pending
    assert targets.labels == (("tench",), ("goldfish",))
    assert torch.equal(targets.directions[:, 0], torch.eye(2, 1000))


# Prompts


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a bus", ("a bus",)),
        (["a bus", "a cat"], ("a bus", "a cat")),
        (["a bus", ["a cat", "a dog"]], ("a bus", "a cat / a dog")),
        ([("a cat",)], ("a cat",)),
        (["a bus", "a bus", "a bus (2)"], ("a bus", "a bus (2)", "a bus (2) (2)")),
    ],
)
def test_prompts(clip: explainer.Explainer, given: Any, expected: tuple[str, ...]) -> None:
    assert names(clip, given) == expected


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([""], "'' (str)"),
        (["  "], "'  ' (str)"),
        ([["a cat", ""]], "['a cat', ''] (list)"),
        ([[]], "[] (list)"),
        ([["a cat", 3]], "['a cat', 3] (list)"),
        ([None], "None (NoneType)"),
        (3.5, "3.5 (float)"),
        ({"a cat"}, "{'a cat'} (set)"),
        ([np.zeros(48)], f"{' '.join(repr(np.zeros(48)).split())[:77]}... (ndarray)"),
    ],
)
def test_what_is_no_target_of_a_clip(clip: explainer.Explainer, given: Any, shown: str) -> None:
    assert message(lambda: clip(random_images(2, 32), given)) == (
        f"a target of open_clip:CLIP is a prompt, a sequence of prompts or a direction [48]; got {shown}"
    )


@pytest.mark.parametrize("index", [3, True])
def test_a_class_index_on_a_clip(clip: explainer.Explainer, index: Any) -> None:
    assert message(lambda: clip(random_images(2, 32), [index])) == (
        f"open_clip:CLIP has no classes, so the class index {index} means nothing to it; give a prompt, such as 'a bus'"
    )
