"""Models without classes: what their embedding is asked."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import timm
import torch
from core.nets import snapshot
from oracles import gradcam_clone
from oracles.helpers import assert_same_maps, random_directions, random_images
from oracles.similarity import cosine_map, dot_map
from torch import Tensor, nn
from torch.nn import functional as F

import explainer

from .common import TINY, dinov2, message, resnet, settled, small


def averaged() -> nn.Module:
    """A residual network that gives the average of its last map."""
    return settled(model := resnet(num_classes=0), model, random_images(4, 64, seed=9))


def grey(ex: explainer.Explainer) -> Tensor:
    """An evenly grey picture as the model takes it: [1, 3, H, W]."""
    look = ex.encoder.preprocess
    mean, std = (torch.tensor(each)[:, None, None] for each in (look.mean, look.std))
    return ((torch.full((1, 3, *look.size), 0.5) - mean) / std).float()


@torch.no_grad()
def apart(ex: explainer.Explainer, images: Tensor) -> Tensor:
    """Unit directions [B, D] from the embedding of a grey picture to those of the pictures."""
    model = copy.deepcopy(ex.encoder.model).eval()
    return F.normalize(model(images) - model(grey(ex)), dim=1)


def by_hand(ex: explainer.Explainer, images: Tensor, directions: Tensor, layer: str, **layout: Any) -> Tensor:
    """Signed Grad-CAM [B, 1, h, w] of the dot product of each embedding with its own row of `directions`."""
    rows = zip(images, directions, strict=True)
    maps = [
        gradcam_clone(
            ex.encoder.model, layer, image[None], lambda out, row=row: (out @ row).reshape(1), relu=False, **layout
        )
        for image, row in rows
    ]
    return torch.cat(maps)


# The embedding itself


def test_what_sets_a_picture_apart_by_gradcam() -> None:
    ex, images = explainer.wrap(dinov2()), random_images(3, 32)
    e = ex(images, relu=False)
    assert (e.method, e.names, e.labels) == ("gradcam", ("own embedding",), (("own embedding",),) * 3)
    directions = apart(ex, images)
    assert_same_maps(e.maps, by_hand(ex, images, directions, "blocks.1.norm1", layout="NLC", prefix=5))
    with torch.no_grad():
        assert torch.allclose(e.scores[:, 0], (ex.encoder.model(images) * directions).sum(dim=1), atol=1e-5)


def test_what_sets_a_picture_apart_in_a_convolutional_network() -> None:
    ex, images = explainer.wrap(averaged(), size=64), random_images(2, 64)
    assert_same_maps(ex(images, relu=False).maps, by_hand(ex, images, apart(ex, images), "layer4"))


def test_every_picture_is_asked_about_its_own() -> None:
    ex, images = explainer.wrap(dinov2()), random_images(3, 32)
    together = ex(images, relu=False)
    for index in range(3):
        alone = ex(images[index], relu=False)
        assert torch.allclose(alone.maps[0], together.maps[index], atol=1e-5 * float(together.maps.abs().max()))
        assert torch.isclose(alone.scores[0], together.scores[index], atol=1e-5)


def test_grey_has_the_size_of_the_model_whatever_the_pictures_have() -> None:
    ex, images = explainer.wrap(averaged(), size=64), random_images(2, 96)
    e = ex(images, relu=False)
    assert e.maps.shape == (2, 1, 3, 3)
    assert_same_maps(e.maps, by_hand(ex, images, apart(ex, images), "layer4"))


def test_a_norm_at_the_end_leaves_no_gradient_along_the_embedding_itself() -> None:
    """Why the question is not the embedding's own direction: as built, the norm gives all the same length."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        ex = explainer.wrap(timm.create_model("vit_small_patch14_dinov2", **TINY).eval())
    images = random_images(1, 32)
    with torch.no_grad():
        embedding = ex.encoder.model(images)
    along, asked = ex(images, embedding, relu=False), ex(images, relu=False)
    assert float(along.maps.abs().max()) < 1e-2 * float(asked.maps.abs().max())


def test_a_picture_that_is_grey_itself() -> None:
    ex = explainer.wrap(dinov2())
    assert message(lambda: ex(torch.cat([random_images(1, 32), grey(ex)]))) == (
        "timm:vit_small_patch14_reg4_dinov2 gives the same embedding for a picture as for an evenly grey one, so "
        "nothing sets it apart; ask for a channel or a direction"
    )


# Channels and directions


@pytest.mark.parametrize("given", [[7, 40], np.array([7, 40]), (index for index in (7, 40))])
def test_channels(given: Any) -> None:
    ex, images = explainer.wrap(dinov2()), random_images(2, 32)
    e = ex(images, given, relu=False)
    assert e.names == ("channel 7", "channel 40")
    expected = gradcam_clone(
        ex.encoder.model,
        "blocks.1.norm1",
        images,
        lambda out: out[0, [7, 40]],
        layout="NLC",
        prefix=5,
        relu=False,
    )
    assert_same_maps(e.maps, expected)
    with torch.no_grad():
        assert torch.allclose(e.scores, ex.encoder.model(images)[:, [7, 40]], atol=1e-5)


def test_directions_count_with_unit_length() -> None:
    ex, images, rows = explainer.wrap(dinov2()), random_images(2, 32), random_directions(2, 48)
    e = ex(images, rows * 30, relu=False)
    assert e.names == ("direction 0", "direction 1")
    with torch.no_grad():
        assert torch.allclose(e.scores, ex.encoder.model(images) @ rows.T, atol=1e-5)
    expected = [by_hand(ex, images, row.expand(2, -1), "blocks.1.norm1", layout="NLC", prefix=5) for row in rows]
    assert_same_maps(e.maps, torch.cat(expected, dim=1))


def test_a_score_of_ones_own() -> None:
    ex, images = explainer.wrap(dinov2()), random_images(2, 32)
    e = ex(images, 3, score=lambda answer: -2 * answer.logits, relu=False)
    assert torch.allclose(e.maps, -2 * ex(images, 3, relu=False).maps, atol=1e-5)


# Cells in the embedding


def test_cosines_of_patches_with_what_sets_the_picture_apart() -> None:
    ex, images = explainer.wrap(dinov2()), random_images(2, 32)
    with torch.no_grad():
        tokens = ex.encoder.model.forward_features(images)[:, 5:].transpose(1, 2).reshape(2, 48, 4, 4)
    expected = [cosine_map(each[None], row[None]) for each, row in zip(tokens, apart(ex, images), strict=True)]
    assert_same_maps(ex(images, method="similarity").maps, torch.cat(expected))
    rows = random_directions(2, 48)
    assert_same_maps(ex(images, rows, method="similarity").maps, cosine_map(tokens, rows))


def test_contributions_of_cells_add_up_to_the_score() -> None:
    ex, images, rows = explainer.wrap(averaged(), size=64), random_images(2, 64), random_directions(2, 512)
    assert ex.encoder.needed_readout.exact
    e = ex(images, rows, method="cam")
    with torch.no_grad():
        assert_same_maps(e.maps, dot_map(ex.encoder.model.forward_features(images), rows))
    assert torch.allclose(e.maps.mean(dim=(2, 3)), e.scores, atol=1e-4)


def test_what_follows_the_average_applies_to_every_cell() -> None:
    model = small("eva02_tiny_patch14_224", img_size=56, depth=2)
    ex, images, rows = explainer.wrap(model), random_images(2, 56), random_directions(1, 192)
    with torch.no_grad():
        tokens = model.fc_norm(model.forward_features(images)[:, 1:]).transpose(1, 2).reshape(2, 192, 4, 4)
    assert_same_maps(ex(images, rows, method="similarity").maps, cosine_map(tokens, rows))
    assert not ex.encoder.needed_readout.exact


def test_evidence_is_a_cosine() -> None:
    columns, rows = random_directions(12, 48, seed=1).reshape(2, 6, 48) * 4, random_directions(6, 48).reshape(2, 3, 48)
    expected = F.cosine_similarity(columns[:, None], rows[:, :, None], dim=-1)
    assert torch.allclose(explainer.wrap(dinov2()).encoder.evidence(columns, 3 * rows), expected, atol=1e-5)


@pytest.mark.parametrize("method", ["gem", "self_self", "query_key", "value_value"])
def test_methods_that_read_attention(method: str) -> None:
    ex, images = explainer.wrap(dinov2()), random_images(2, 32)
    e = ex(images, method=method)
    assert e.maps.shape == (2, 1, 4, 4)
    assert bool(e.maps.isfinite().all())
    assert bool((e.maps.std(dim=(2, 3)) > 0).all())


# What cannot be asked


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("a bus", "'a bus'"),
        ([["a bus", "a tram"]], "['a bus', 'a tram']"),
        (True, "True"),
        (2.5, "2.5"),
        ([None], "None"),
    ],
)
def test_what_is_no_target(given: Any, shown: str) -> None:
    assert message(lambda: explainer.wrap(dinov2())(random_images(1, 32), given)) == (
        f"timm:vit_small_patch14_reg4_dinov2 has neither classes nor a text tower, so {shown} means nothing to it; ask "
        "for nothing to explain the embedding itself, for a channel (0 to 47), or for a direction tensor [48], such as "
        "the embedding of another picture"
    )


@pytest.mark.parametrize("index", [-1, 48])
def test_a_channel_that_is_not_there(index: int) -> None:
    assert message(lambda: explainer.wrap(dinov2())(random_images(1, 32), [3, index])) == (
        f"channel {index} is out of range: the embedding of timm:vit_small_patch14_reg4_dinov2 has 48 channels, 0 to 47"
    )


def test_a_direction_of_another_width() -> None:
    assert message(lambda: explainer.wrap(dinov2())(random_images(1, 32), torch.ones(47))) == (
        "a direction of timm:vit_small_patch14_reg4_dinov2 in its embedding is [48], or [T, 48] for several; got shape "
        "[47]"
    )


@pytest.mark.parametrize("target", [None, 3])
def test_templates(target: Any) -> None:
    assert message(lambda: explainer.wrap(dinov2())(random_images(1, 32), target, templates="photo")) == (
        "timm:vit_small_patch14_reg4_dinov2 reads no text, so it takes no templates"
    )


@pytest.mark.parametrize("score", ["prob", "log_prob"])
def test_probabilities(score: str) -> None:
    assert message(lambda: explainer.wrap(dinov2())(random_images(1, 32), score=score)) == (
        "timm:vit_small_patch14_reg4_dinov2 has neither classes nor prompts, so nothing has a probability; explain how "
        "far its embedding reaches along a direction with score='logit'"
    )


# No trace


def test_the_model_is_left_as_it_was() -> None:
    model = dinov2()
    model.train()
    model.blocks[0].eval()
    before = snapshot(model)
    ex = explainer.wrap(model)
    assert snapshot(model) == before
    ex(random_images(2, 32))
    ex(random_images(2, 32), [3, torch.ones(48)], method="similarity")
    for wrong in ("a bus", 99):
        message(lambda wrong=wrong: ex(random_images(1, 32), wrong))
    message(lambda: ex(random_images(1, 32), score="prob"))
    assert snapshot(model) == before


def test_other_defaults_of_torch_do_not_matter() -> None:
    model, images = dinov2(), random_images(2, 32)
    expected = explainer.wrap(model)(images, relu=False).maps
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        found = explainer.wrap(model)(images, relu=False).maps
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert torch.allclose(found, expected, atol=1e-5)
