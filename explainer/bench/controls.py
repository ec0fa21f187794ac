"""Controls: maps that never look at the picture, and that every method has to beat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from explainer.frame import Frame
from explainer.heat import lay


@dataclass(frozen=True)
class Blind:
    """What a control knows: everything but the picture.

    Attributes:
        seed: Of the benchmark.
        number: Of the sample in its dataset.
        label: What is asked about.
        frame: What the model sees of the picture.
        cells: Height and width of the model's last map.
    """

    seed: int
    number: int
    label: str
    frame: Frame
    cells: tuple[int, int]


def random(known: Blind) -> Tensor:
    """Give every cell of the model's grid a value of its own, uniformly; lay that on the picture as maps are laid.

    The values depend on seed, sample and label alone, not on what was measured before.

    Returns:
        [H, W], of the picture's size.
    """
    words = f"{known.seed}/{known.number}/{known.label}".encode()
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(words).digest(), "big"))
    noise = torch.tensor(rng.random(known.cells, dtype=np.float32))
    return lay(noise[None, None], [known.frame], known.frame.size)[0, 0]


def centre(known: Blind) -> Tensor:
    """Give the middle of what the model sees the most heat: photographers put there what a picture is about.

    An isotropic Gaussian whose standard deviation is a quarter of the shorter side of what is seen.

    Returns:
        [H, W], of the picture's size.
    """
    (width, height), (left, top, right, bottom) = known.frame.picture, known.frame.box
    left, top, right, bottom = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
    deviation = min(right - left, bottom - top) / 4
    across = (torch.arange(width, dtype=torch.float64) + 0.5 - (left + right) / 2) / deviation
    down = (torch.arange(height, dtype=torch.float64) + 0.5 - (top + bottom) / 2) / deviation
    return torch.exp(-(across**2 + down[:, None] ** 2) / 2).float()


CONTROLS: Mapping[str, Callable[[Blind], Tensor]] = MappingProxyType({"random": random, "centre": centre})
"""By name."""
