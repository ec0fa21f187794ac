"""One small model of each kind, and its maps as they come out in the ordinary way."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import timm
import torch
from oracles.helpers import CLIPS, SMALL, FakeTokenizer, built, clip, difference, random_images
from torch import Tensor, nn

import explainer


class Kind(NamedTuple):
    """How a model is made, the side of its pictures, and the methods that are tried on it."""

    make: Callable[[], nn.Module]
    side: int
    methods: tuple[str, ...] = ("gradcam", "cam", "similarity")


ATTENTION = ("gradcam", "cam", "similarity", "query_key", "gem")
KINDS = {
    "cnn": Kind(lambda: timm.create_model("test_resnet", num_classes=7), 64),
    "vit": Kind(lambda: timm.create_model("test_vit", num_classes=7, img_size=64), 64, ATTENTION),
    "clip": Kind(lambda: clip({**SMALL, "layers": 3}), 32, ATTENTION),
}
MORE = {
    "swin": Kind(
        lambda: timm.create_model(
            "swin_tiny_patch4_window7_224", img_size=56, embed_dim=16, depths=(1, 1), num_heads=(1, 2)
        ),
        56,
    ),
    "dinov3": Kind(
        lambda: timm.create_model(
            "vit_small_patch16_dinov3", num_classes=7, img_size=64, embed_dim=32, depth=2, num_heads=2
        ),
        64,
        ATTENTION,
    ),
    "clip resnet": Kind(CLIPS["small_resnet"], 96),
}
ALL = {**KINDS, **MORE}


def model(kind: str) -> nn.Module:
    """A model of one's own, with weights that hide nothing."""
    return copy.deepcopy(_made(kind))


@lru_cache(maxsize=16)
def _made(kind: str) -> nn.Module:
    return built(ALL[kind].make)


def images(kind: str) -> Tensor:
    return random_images(2, ALL[kind].side)


def targets(kind: str) -> list[Any]:
    return ["a bus", "a cat"] if "clip" in kind else [1, 3]


def wrap(kind: str, module: nn.Module) -> explainer.Explainer:
    return explainer.wrap(module, **({"tokenizer": FakeTokenizer()} if "clip" in kind else {}))


@lru_cache
def shared(kind: str) -> explainer.Explainer:
    """The plain model wrapped once, for tests that change nothing."""
    return wrap(kind, model(kind))


def maps(kind: str, ex: explainer.Explainer, method: str, pictures: Tensor | None = None) -> Tensor:
    """The maps of a method, with their sign."""
    signed = {"relu": False} if method == "gradcam" else {}
    return ex(images(kind) if pictures is None else pictures, targets(kind), method=method, **signed).maps


@lru_cache(maxsize=64)
def expected(kind: str, method: str) -> Tensor:
    """The maps of the plain model in float32, which are not flat."""
    found = maps(kind, shared(kind), method)
    assert (found.flatten(2).std(dim=2) > 1e-3 * found.abs().max()).all(), "flat maps show nothing"
    return found


def assert_expected(found: Tensor, kind: str, method: str, tolerance: float = 1e-5) -> None:
    """The maps are float32, finite, and the expected ones within a share of their largest value."""
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert found.shape == expected(kind, method).shape
    assert difference(found, expected(kind, method)) <= tolerance


def assert_all_expected(kind: str, module: nn.Module, tolerance: float = 1e-5) -> None:
    """Every method gives the expected maps of another model of the same weights."""
    ex = wrap(kind, module)
    for method in ALL[kind].methods:
        assert_expected(maps(kind, ex, method), kind, method, tolerance)
