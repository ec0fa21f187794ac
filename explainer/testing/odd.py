"""Pictures that methods stumble over, and maps that are not raw."""

from __future__ import annotations

import torch
from PIL import Image
from torch import Tensor

from explainer.heat import flat
from explainer.testing.models import SIDE, noise

_FEWEST = 4  # maps below which one scale may be an accident
_ALIKE = 1e-4


def ordinary_picture() -> Image.Image:
    """Make a picture of noise, 56 pixels wide and 40 high."""
    pixels = (noise(1, 40, 56)[0].permute(1, 2, 0) * 40 + 128).clamp(0, 255).byte()
    return Image.fromarray(pixels.numpy())


def odd_pictures() -> list[tuple[str, Image.Image | Tensor]]:
    """Give pictures that are constant, tiny or long, each with what it is."""
    return [
        ("a grey picture", Image.new("RGB", (SIDE, SIDE), (128, 128, 128))),
        ("a white picture", Image.new("RGB", (50, 40), (255, 255, 255))),
        ("a tensor of zeros", torch.zeros(1, 3, SIDE, SIDE)),
        ("a picture of 1 x 1 pixels", Image.new("RGB", (1, 1), (200, 30, 60))),
        ("a picture of 3 x 90 pixels", ordinary_picture().resize((90, 3))),
        ("a picture of 90 x 3 pixels", ordinary_picture().resize((3, 90))),
        ("a tensor of 4 x 4 pixels", noise(1, 4)),
        ("a tensor of 8 x 8 pixels", noise(1, 8)),
        ("a tensor of 32 x 48 pixels", noise(1, 32, 48)),
    ]


def normalisation(maps: Tensor) -> str:
    """Say what is the same of all maps, where nothing should be.

    A map that was divided by its range, its largest value, its standard deviation or its norm has these in common
    with every other. Sums do not count: a row of attention has the sum 1 by its nature.

    Args:
        maps: [n, T, h, w]; those that are constant tell nothing.

    Returns:
        Half a sentence; empty where they look raw.
    """
    maps = maps[~flat(maps.float())].double().flatten(1)
    if len(maps) < _FEWEST or maps.shape[1] < 2:
        return ""
    measures = {
        "the range (largest less smallest value)": maps.amax(1) - maps.amin(1),
        "the largest absolute value": maps.abs().amax(1),
        "the standard deviation": maps.std(1),
        "the norm": maps.square().sum(1).sqrt(),
    }
    for what, values in measures.items():
        if float(values.max() - values.min()) <= _ALIKE * float(values.max()):
            return f"{what} of all {len(maps)} maps is {float(values[0]):.4g}"
    return ""
