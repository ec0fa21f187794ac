"""What the encoder tests share: small models that hide nothing, and the text of an error."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import perturb
from torch import Tensor, nn

from explainer import ExplainerError


def message(call: Callable[[], Any]) -> str:
    """The whole text of the error that a call raises."""
    with pytest.raises(ExplainerError) as caught:
        call()
    return str(caught.value)


def small(architecture: str | Callable[..., nn.Module] = "resnet18", **options: Any) -> nn.Module:
    """A timm model of one's own, by name or class, with perturbed weights."""
    return copy.deepcopy(_built(architecture, tuple(options.items())))


@lru_cache(maxsize=8)
def _built(architecture: str | Callable[..., nn.Module], options: tuple[tuple[str, Any], ...]) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if callable(architecture):
            return perturb(architecture(**dict(options)))
        return perturb(timm.create_model(architecture, pretrained=False, **dict(options)))


def resnet(**options: Any) -> nn.Module:
    """A ResNet of four blocks."""
    return small("resnet18", layers=(1, 1, 1, 1), **options)


TINY = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
"""Settings that make any vision transformer of timm small."""


def dinov2(**options: Any) -> nn.Module:
    """A vision transformer without classes that gives its class token, behind a norm; it has four registers."""
    return small("vit_small_patch14_reg4_dinov2", **TINY, **options)


def settled(model: nn.Module, run: Callable[[Tensor], Any], images: Tensor) -> nn.Module:
    """Let the batch norms take over the statistics of some pictures: deep random networks fade out otherwise."""
    for norm in model.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.train()
            norm.momentum = 1
    with torch.no_grad():
        run(images)
    return model.eval()


def fresh(make: Callable[[], nn.Module]) -> nn.Module:
    """A module of one's own making, with perturbed weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return perturb(make())


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
