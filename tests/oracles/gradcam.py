"""Grad-CAM (Selvaraju 2017) by a clone, a forward hook and a whole backward pass per picture and target."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn


def gradcam_clone(
    model: nn.Module,
    layer: str,
    images: Tensor,
    scalar_fn: Callable[[Tensor], Tensor],
    layout: str = "NCHW",
    prefix: int = 0,
    grid: tuple[int, int] | None = None,
    relu: bool = True,
) -> Tensor:
    """Maps [B, T, h, w] of the output of `layer`.

    Eq. 1: alpha_k = mean over positions of dy/dA_k. Eq. 2: map = ReLU(sum_k alpha_k A_k). Positions are
    the patches; prefix tokens count neither in the mean nor in the map.

    Args:
        model: Deep-copied; the copy is differentiated with all its parameters.
        layer: Name of the module whose output is A.
        images: [B, 3, H, W].
        scalar_fn: The model's output for one picture -> [T], the scalars y to differentiate.
        layout: "NCHW", "NHWC" or "NLC" (tokens) of that output.
        prefix: Number of prefix tokens, for "NLC".
        grid: (h, w), for "NLC"; a square by default.
        relu: Apply eq. 2's ReLU.
    """
    with torch.inference_mode(mode=False), torch.enable_grad():
        clone = copy.deepcopy(model).eval().requires_grad_(requires_grad=True)
        maps = []
        for image in images:
            single = image.detach().clone()[None]
            count = len(scalar_fn(clone(single)))
            maps.append(
                torch.stack(
                    [_one(clone, layer, single, scalar_fn, t, layout, prefix, grid, relu) for t in range(count)]
                )
            )
        return torch.stack(maps).detach()


def _one(
    clone: nn.Module,
    layer: str,
    image: Tensor,
    scalar_fn: Callable[[Tensor], Tensor],
    target: int,
    layout: str,
    prefix: int,
    grid: tuple[int, int] | None,
    relu: bool,
) -> Tensor:
    kept: list[Tensor] = []

    def keep(_module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        output.retain_grad()
        kept.append(output)
        return output.clone()  # what follows may write in place; A must stay as the layer gave it

    handle = clone.get_submodule(layer).register_forward_hook(keep)
    clone.zero_grad()
    scalar_fn(clone(image))[target].backward()
    handle.remove()
    (activation,) = kept
    a = _channels_first(activation.detach(), layout, prefix, grid)
    g = _channels_first(activation.grad, layout, prefix, grid)
    cam = torch.zeros_like(a[0])
    for k in range(len(a)):
        cam = cam + g[k].mean() * a[k]
    return cam.clamp_min(0) if relu else cam


def _channels_first(x: Tensor, layout: str, prefix: int, grid: tuple[int, int] | None) -> Tensor:
    """One picture's layer output as [C, h, w]."""
    if layout == "NCHW":
        return x[0]
    if layout == "NHWC":
        return x[0].permute(2, 0, 1)
    patches = x[0, prefix:]
    side = round(len(patches) ** 0.5)
    return patches.T.reshape(-1, *(grid or (side, side)))
