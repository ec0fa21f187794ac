"""Models whose geometry is looked at without weights."""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch import nn

from explainer.geometry import Geometry
from explainer.probe import probe
from explainer_plugins.timm.encoder import features_of, pools_class_token, preprocess_of


def weightless(name: str, **options: Any) -> nn.Module:
    """A timm model whose weights have shapes but no memory: the geometry needs no more."""
    with torch.device("meta"):
        return timm.create_model(name, num_classes=5, **options).eval()


def geometry_of(model: nn.Module, size: tuple[int, int] | None = None) -> Geometry:
    size = size or preprocess_of(model, None).size
    found = probe(model, lambda running, images, hooks: features_of(running, images, hooks, "model"), size)
    return Geometry(found, class_token_pooled=pools_class_token(model))
