"""A network whose cells lie where a test puts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import explainer


class Cells(nn.Module):
    """Patches of 8 x 8 pixels, mixed a little with all others, and laid out by `arrange`."""

    def __init__(self, arrange: Callable[[Tensor], Tensor], channels: int = 40, mixed: float = 0.5) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.stem, self.head = nn.Conv2d(3, channels, 8, 8), nn.Linear(channels, 3)
        self.cells, self.arrange, self.mixed = nn.Identity(), arrange, mixed

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).relu()
        x = x + self.mixed * x.mean(dim=(2, 3), keepdim=True)
        return self.head(self.cells(self.arrange(x)).flatten(1)[:, : self.head.in_features])


def tokens(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2)


def wrap(arrange: Callable[[Tensor], Tensor], size: tuple[int, int] = (64, 64), **options: Any) -> explainer.Explainer:
    keep = {key: options.pop(key) for key in ("channels", "mixed") if key in options}
    return explainer.wrap(Cells(arrange, **keep), size=size, layer="cells", **options)
