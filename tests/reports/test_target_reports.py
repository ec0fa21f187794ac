"""Public reports about what is asked, what goes in and what comes out: pytorch-grad-cam (pgc), captum, TorchCAM,
keras-vis, DAN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from encoders.common import Plain, fresh, message, small
from encoders.kinds import KINDS, images, maps, shared, targets
from oracles.helpers import random_images
from PIL import Image
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

import explainer

every = pytest.mark.parametrize("kind", KINDS)


# A batch and one target: pgc 322


@every
def test_one_target_is_asked_of_every_picture(kind: str) -> None:
    """No row is left blank, and each is what the picture gives alone."""
    ex, one = shared(kind), targets(kind)[0]
    for method in KINDS[kind].methods:
        batch = ex(images(kind).repeat(2, 1, 1, 1)[:3], one, method=method)
        assert len(batch) == 3
        for row, picture in zip(batch, images(kind).repeat(2, 1, 1, 1)[:3], strict=True):
            alone = ex(picture, one, method=method)
            torch.testing.assert_close(row.maps, alone.maps, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(row.scores, alone.scores, rtol=1e-4, atol=1e-6)
        assert (batch.maps.flatten(2).std(dim=2) > 0).all() or method == "gradcam"


# What a model returns: pgc 386 216 155 156 121 574 481, DAN 27


class Named(NamedTuple):
    logits: Tensor
    tokens: Tensor


class Features(NamedTuple):
    """The logits come first, but under a name of their own."""

    prediction: Tensor
    tokens: Tensor


class Mapped(dict[str, Tensor]):
    """As the outputs of transformers: a mapping whose entries are attributes too."""

    @property
    def logits(self) -> Tensor:
        return self["logits"]


RETURNED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "tuple": lambda logits, rest: (logits, rest),
    "list": lambda logits, rest: [logits, rest],
    "named tuple": Named,
    "other named tuple": Features,
    "dict": lambda logits, rest: {"tokens": rest, "logits": logits},
    "model output": lambda logits, rest: Mapped(tokens=rest, logits=logits),
    "nested": lambda logits, rest: (logits, (rest, [rest])),
}


class ReturningPlain(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.body, self.how = Plain(), how

    def forward(self, x: Tensor) -> Any:
        return RETURNED[self.how](self.body(x), x)


class ReturningViT(VisionTransformer):
    """A model of timm whose user returns more than its logits."""

    def __init__(self, how: str | None) -> None:
        super().__init__(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=7)
        self.how = how

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        return logits if self.how is None else RETURNED[self.how](logits, x)


@pytest.mark.parametrize("how", RETURNED)
def test_logits_are_found_wherever_they_are(how: str) -> None:
    pictures = random_images(2, 32)
    pairs = [
        (fresh(lambda: ReturningPlain(how)), fresh(lambda: ReturningPlain(how)).body),
        (small(ReturningViT, how=how), small(ReturningViT, how=None)),
    ]
    for returning, plain in pairs:
        ex, expected = (explainer.wrap(each, size=(32, 32)) for each in (returning, plain))
        for method in ("gradcam", "cam"):
            found, other = (each(pictures, 1, method=method) for each in (ex, expected))
            assert torch.equal(found.maps, other.maps)
            assert torch.equal(found.scores, other.scores)
        assert ex(pictures).labels == expected(pictures).labels  # the top class


def test_a_timm_model_without_logits() -> None:
    class Nothing(VisionTransformer):
        def forward(self, x: Tensor) -> Any:
            return {"tokens": super().forward_features(x)}

    ex = explainer.wrap(Nothing(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=7))
    assert message(lambda: ex(random_images(2, 32), 1)) == (
        "the model returns a dict in which no logits were found; wrap a module whose forward returns class logits "
        "[B, K]"
    )


# Inputs that are no pictures: pgc 351 506 510 102, TorchCAM 44 207 17 210


@pytest.mark.parametrize("shape", [(2, 3, 8, 32, 32), (3, 8, 32, 32, 1, 1), (2, 1, 32, 32), (2, 8, 3, 32), (32, 32)])
@every
def test_volumes_and_videos_are_refused(kind: str, shape: tuple[int, ...]) -> None:
    ex = shared(kind)
    assert message(lambda: ex(torch.zeros(shape), targets(kind))) == (
        f"a tensor of pictures is [B, 3, H, W] or [3, H, W], preprocessed; got shape {list(shape)}"
    )


# Evidence against, and values that can be compared: pgc 512 42 235 267, captum 179 740 1103, keras-vis 178


@every
def test_the_opposite_question_has_the_opposite_map(kind: str) -> None:
    """Nothing is cut off and nothing is scaled: neither by picture nor by target."""
    ex = shared(kind)
    direction = torch.randn(48 if kind == "clip" else 7, generator=torch.Generator().manual_seed(3))
    for method, options in (("gradcam", {"relu": False}), ("cam", {})):
        asked = torch.stack([direction, -direction])
        e = ex(images(kind), asked, method=method, **options)
        torch.testing.assert_close(e.maps[:, 1], -e.maps[:, 0], rtol=1e-4, atol=1e-7)
        assert e.maps.min() < 0 < e.maps.max()
        assert float(e.heat().abs().max()) <= float(e.maps.abs().max())
    positive = ex(images(kind), torch.stack([direction, -direction]), method="gradcam").maps
    signed = ex(images(kind), torch.stack([direction, -direction]), method="gradcam", relu=False).maps
    assert torch.equal(positive, signed.relu())


@pytest.mark.parametrize("kind", ["cnn", "vit"])
def test_a_class_that_is_twice_as_strong_has_a_map_twice_as_strong(kind: str) -> None:
    ex = shared(kind)
    one_hot = torch.eye(7)[1]
    found = maps(kind, ex, "gradcam")[:, :1]
    doubled = ex(images(kind), 2 * one_hot, method="gradcam", relu=False).maps
    torch.testing.assert_close(doubled, 2 * found, rtol=1e-4, atol=1e-7)


# Colours: pgc 73 114


@pytest.mark.parametrize("colour", [(250, 10, 20), (10, 20, 250), (30, 240, 10)], ids=str)
@every
def test_colours_stay_where_they_are(kind: str, colour: tuple[int, int, int]) -> None:
    """An array of uint8 is RGB, and so is what is drawn on it."""
    array = np.tile(np.array(colour, dtype=np.uint8), (48, 40, 1))
    array[10:20, 5:15] = 255 - array[10:20, 5:15]
    ex = shared(kind)
    e, other = (ex(each, targets(kind)[0], method="gradcam", relu=False) for each in (array, Image.fromarray(array)))
    assert e == other
    plain, drawn = np.asarray(e.overlay(alpha=0)), np.asarray(e.overlay())
    assert np.array_equal(plain, array)
    assert drawn.shape == array.shape
    assert drawn.dtype == np.uint8
    assert not np.array_equal(drawn, array)
    assert e.overlay().mode == "RGB"
    assert array[0, 0].tolist() == list(colour)


# Maps stay where the model is: pgc 356


@every
def test_no_map_is_fetched_from_the_models_device(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One flag for each picture and target may be; whoever draws or saves fetches more."""
    ex, pictures = shared(kind), images(kind)
    ex(pictures, targets(kind))
    fetched: list[int] = []

    def noted(way: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            fetched.append(tensor.numel())
            return way(tensor, *args, **kwargs)

        return fetch

    with monkeypatch.context() as patched:
        for way in ("cpu", "numpy", "__array__", "tolist"):
            patched.setattr(torch.Tensor, way, noted(getattr(torch.Tensor, way)))
        for method in KINDS[kind].methods:
            e = ex(pictures, targets(kind), method=method)
            assert e.heat().shape[2:] == e.mask().shape[2:] == pictures.shape[2:]
        assert max(fetched, default=0) <= e.maps.shape[0] * e.maps.shape[1]
        e.overlay()
        assert max(fetched) > e.maps.shape[0] * e.maps.shape[1]
