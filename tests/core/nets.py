"""Networks of a handful of numbers, and what can be seen of a model from outside."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from explainer.session import session
from explainer.testing.clean import snapshot as snapshot

X = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.2, -1.0]])
"""Two inputs of `line`."""


def line() -> nn.Sequential:
    """Three numbers to two."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


class Shared(nn.Module):
    """Calls a module by position or by keyword."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Identity()

    def forward(self, x: Tensor, keyword: bool = False) -> Tensor:
        return self.inner(input=x) if keyword else self.inner(x)


class Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class Twice(nn.Module):
    """Runs one module twice."""

    def __init__(self) -> None:
        super().__init__()
        self.step = Double()

    def forward(self, x: Tensor) -> Tensor:
        return 3 * self.step(self.step(x) + 1)


class InPlace(nn.Module):
    """Batch norm, shortcut, ReLU and a sum; as in residual networks the norm's output may be written over."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.act = nn.ReLU(inplace)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        if self.act.inplace:
            y += x / 9
        else:
            y = y + x / 9
        return (self.act(y) * torch.arange(1.0, 5.0).reshape(2, 2)).flatten(2).sum(dim=2)


def layers(model: nn.Module) -> list[list[str]]:
    """The names of everything a model holds, in order."""
    return [
        [name for name, _ in model.named_modules()],
        [name for name, _ in model.named_parameters()],
        [name for name, _ in model.named_buffers()],
    ]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 5),
    )


def pictures() -> Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def gradients(model: nn.Module, images: Tensor, layer: str = "1") -> Tensor:
    with session(model) as hooks:
        tap = hooks.tap(layer, differentiable=True)
        return tap.gradients(model(images))


def expected_gradients(model: nn.Module, images: Tensor) -> Tensor:
    """Gradients behind the norm of `network`, by hand on a copy in evaluation mode."""
    copied = copy.deepcopy(model).eval()
    with torch.inference_mode(False), torch.enable_grad():
        value = copied[:2](images.clone()).detach().requires_grad_()
        output = copied[6](value.relu().mean(dim=(2, 3)))
        return torch.stack([torch.autograd.grad(output[:, t].sum(), value, retain_graph=True)[0] for t in range(5)])


class Outer(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)
