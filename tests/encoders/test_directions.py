"""Directions as targets, and several targets at once."""

from __future__ import annotations

import pytest
import timm
import torch
from oracles.helpers import FakeTokenizer, clip_model, random_directions, random_images

import explainer
from explainer.target import Target, Targets

from .common import message, resnet

IMAGES = random_images(2, 64)


@pytest.fixture(scope="module")
def imagenet() -> explainer.Explainer:
    return explainer.wrap(resnet())


@pytest.fixture(scope="module")
def clip() -> explainer.Explainer:
    return explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer())


def test_directions_over_logits(imagenet: explainer.Explainer) -> None:
    one_hot = torch.zeros(1000)
    one_hot[281] = 1
    e = imagenet(IMAGES, one_hot)
    assert e.names == ("direction 0",)
    assert torch.equal(e.maps, imagenet(IMAGES, 281).maps)
    both = imagenet(IMAGES, torch.stack([one_hot, 2 * one_hot]), method="cam")
    assert both.names == ("direction 0", "direction 1")
    assert torch.allclose(both.maps[:, 1], 2 * both.maps[:, 0])


def test_a_contrast_of_two_classes(imagenet: explainer.Explainer) -> None:
    """CAM is linear in the direction."""
    contrast = torch.zeros(1000)
    contrast[281], contrast[3] = 1, -1
    e = imagenet(IMAGES, [contrast, 281, 3], method="cam")
    assert torch.allclose(e.maps[:, 0], e.maps[:, 1] - e.maps[:, 2], atol=1e-5)
    assert torch.allclose(e.scores[:, 0], e.scores[:, 1] - e.scores[:, 2], atol=1e-5)


def test_directions_and_other_targets_together_keep_their_order(clip: explainer.Explainer) -> None:
    rows, images = random_directions(2, 48), random_images(2, 32)
    e = clip(images, ["a bus", rows, "a cat", rows[0]], method="similarity")
    assert e.names == ("a bus", "direction 0", "direction 1", "a cat", "direction 0 (2)")
    assert torch.allclose(e.maps[:, 1:3], clip(images, rows, method="similarity").maps, atol=1e-6)
    assert torch.allclose(e.maps[:, 4], e.maps[:, 1], atol=1e-6)
    assert torch.allclose(e.maps[:, [0, 3]], clip(images, ["a bus", "a cat"], method="similarity").maps, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_directions_of_any_floating_type(clip: explainer.Explainer, dtype: torch.dtype) -> None:
    rows, images = random_directions(2, 48).to(dtype).requires_grad_(), random_images(2, 32)
    expected = clip(images, rows.detach().float(), method="similarity").maps
    assert torch.equal(clip(images, rows, method="similarity").maps, expected)


@pytest.mark.parametrize("shape", [(999,), (2, 999), (1, 2, 1000), (0, 1000), ()])
def test_directions_of_another_width(imagenet: explainer.Explainer, shape: tuple[int, ...]) -> None:
    text = f"a direction of timm:resnet18 over its logits is [1000], or [T, 1000] for several; got shape {list(shape)}"
    assert message(lambda: imagenet(IMAGES, torch.zeros(shape))) == text
    assert message(lambda: imagenet(IMAGES, [torch.zeros(shape)])) == text


def test_directions_of_another_width_in_an_embedding(clip: explainer.Explainer) -> None:
    assert message(lambda: clip(random_images(1, 32), torch.zeros(47))) == (
        "a direction of open_clip:CLIP in its embedding is [48], or [T, 48] for several; got shape [47]"
    )


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.int64, "int64"), (torch.bool, "bool"), (torch.complex64, "complex64")]
)
def test_a_tensor_of_class_indices_is_no_direction(
    imagenet: explainer.Explainer, dtype: torch.dtype, name: str
) -> None:
    """Of 1000 indices it could be either, so it is neither."""
    for given in (torch.ones(1000, dtype=dtype), torch.ones(2, dtype=dtype)):
        assert message(lambda given=given: imagenet(IMAGES, given)) == (
            f"a direction of timm:resnet18 over its logits is a floating-point tensor; got {name}; give class indices "
            "as a list of ints (tensor.tolist()), and a direction as tensor.float()"
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_directions_that_are_not_finite(clip: explainer.Explainer, value: float) -> None:
    direction = torch.ones(48)
    direction[3] = value
    assert message(lambda: clip(random_images(1, 32), direction)) == (
        "a direction of open_clip:CLIP in its embedding holds NaN or infinity"
    )


# Several of each


@pytest.mark.parametrize(("pictures", "targets"), [(1, 3), (3, 1), (2, 5), (3, 3)])
def test_every_target_is_asked_of_every_picture(imagenet: explainer.Explainer, pictures: int, targets: int) -> None:
    images = random_images(pictures, 64)
    e = imagenet(images, list(range(targets)))
    assert e.maps.shape[:2] == e.scores.shape == (pictures, targets)
    assert e.labels == (e.names,) * pictures
    with torch.no_grad():
        expected = imagenet.encoder.model(images)[:, :targets]
    assert torch.allclose(e.scores, expected, atol=1e-4)


def test_the_same_target_twice_is_numbered(imagenet: explainer.Explainer) -> None:
    e = imagenet(IMAGES, [281, "tabby", 281, 3])
    assert e.names == ("tabby", "tabby (2)", "tabby (3)", "tiger shark")
    assert torch.equal(e.maps[:, 0], e.maps[:, 2])
    assert torch.equal(e["tabby (3)"].maps, e.maps[:, 2:3])


def test_numbers_keep_away_from_names_that_are_there() -> None:
    encoder = explainer.wrap(timm.create_model("resnet18", num_classes=3)).encoder
    asked = [Target(name, torch.eye(3)[0]) for name in ("a", "a (2)", "a", "a")]
    targets = Targets(encoder, asked, 1, lambda answer: answer.logits, "logit")
    assert targets.names == ("a", "a (2)", "a (3)", "a (4)")


def test_splitting_names_every_part(imagenet: explainer.Explainer) -> None:
    asked = [Target(name, torch.eye(1000)[0]) for name in ("a", "b")]
    targets = Targets(imagenet.encoder, asked, 2, lambda answer: answer.logits, "logit")
    targets.scores(torch.arange(2000.0).reshape(2, 1000))
    targets.split(["head 0", "head 1"])
    assert targets.names == ("a, head 0", "a, head 1", "b, head 0", "b, head 1")
    assert targets.labels == (targets.names, targets.names)
    assert torch.equal(targets.values, torch.tensor([[0.0] * 4, [1000.0] * 4]))
