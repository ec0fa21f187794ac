"""From the maps of a model's grid to heat on the pixels of a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from explainer.frame import Frame
from explainer_registry.errors import ExplainerError

Interpolation = Literal["bilinear", "nearest"]
Normalisation = Literal["minmax", "symmetric"]

# A map that varies by a few units in the last place of float32 holds rounding, not evidence.
# Stretching that to the full range of colours would show a pattern where there is none.
ROUNDING = 8 * torch.finfo(torch.float32).eps


def lay(
    maps: Tensor,
    frames: Sequence[Frame],
    size: tuple[int, int],
    normalize: Normalisation | None = None,
    mode: Interpolation = "bilinear",
) -> Tensor:
    """Lay maps on pictures, where the model saw them.

    A pixel's value is read from the map at the pixel's centre, as `torch.nn.functional.interpolate`
    does with `align_corners=False`; but a frame may begin or end between two pixels.

    Args:
        maps: [B, T, h, w], float32.
        frames: Where each of the B inputs lies on its picture.
        size: Height and width of the result; frames are scaled to it.
        normalize: None keeps the values. "minmax" takes each map to [0, 1], "symmetric" to [-1, 1]
            with zero kept; both look at the seen part only, after interpolation.
        mode: "bilinear" or "nearest".

    Returns:
        [B, T, H, W], float32, on the maps' device; 0 where the model never looked.

    Raises:
        ExplainerError: The size, the normalisation or the mode is not a valid one.
    """
    _check(size, normalize, mode)
    laid = maps.new_zeros((*maps.shape[:2], *size))
    for b, frame in enumerate(frames):
        (left, across), (top, down) = _visible(frame.scaled(size))
        # Down comes last, where it copies whole rows.
        values = _read(_read(maps[b], across, -1, mode), down, -2, mode)
        if normalize is not None and values.numel():
            values = _normalised(values, normalize)
        laid[b, :, top : top + len(down), left : left + len(across)] = values
    return laid


def seen(frames: Sequence[Frame], size: tuple[int, int], device: torch.device) -> Tensor:
    """Tell which pixels the model saw: those whose centre lies in the frame.

    Args:
        frames: Where each of the B inputs lies on its picture.
        size: Height and width of the result; frames are scaled to it.
        device: Where the result is wanted.

    Returns:
        [B, 1, H, W], bool.
    """
    marks = torch.zeros((len(frames), 1, *size), dtype=torch.bool, device=device)
    for mark, frame in zip(marks, frames, strict=True):
        (left, across), (top, down) = _visible(frame.scaled(size))
        mark[:, top : top + len(down), left : left + len(across)] = True
    return marks


def flat(maps: Tensor) -> Tensor:
    """Tell which maps are constant, up to the rounding of float32.

    Args:
        maps: [..., h, w].

    Returns:
        [...], bool.
    """
    low, high = maps.flatten(-2).aminmax(dim=-1)
    return high - low <= ROUNDING * torch.maximum(low.abs(), high.abs())


def _visible(frame: Frame) -> list[tuple[int, Tensor]]:
    """Find the pixels whose centres lie in the box, first across, then down.

    Returns:
        For each direction how many pixels lie before the box, and the place of each pixel in the box,
        whose edges are 0 and 1.
    """
    (width, height), (left, top, right, bottom) = frame.picture, frame.box
    directions: list[tuple[int, Tensor]] = []
    for length, start, end in ((width, left, right), (height, top, bottom)):
        # One row or column in float64, which some devices do not have.
        places = (torch.arange(length, dtype=torch.float64, device="cpu") + 0.5 - start) / (end - start)
        directions.append((int((places < 0).sum()), places[(places >= 0) & (places <= 1)]))
    return directions


def _read(values: Tensor, places: Tensor, dim: Literal[-2, -1], mode: Interpolation) -> Tensor:
    """Read values along one dimension at places from 0 to 1."""
    count = values.shape[dim]
    if mode == "nearest":
        nearest = (places * count).long().clamp(max=count - 1)
        return values.index_select(dim, nearest.to(values.device))
    middle = (places * count - 0.5).clamp(0, count - 1)
    before = middle.long()
    behind = (before + 1).clamp(max=count - 1)
    weight = (middle - before).float().to(values.device)
    weight = weight if dim == -1 else weight[:, None]
    low, high = (values.index_select(dim, index.to(values.device)) for index in (before, behind))
    # Unlike a sum of two products, this leaves a constant exactly constant.
    return torch.lerp(low, high, weight)


def _normalised(values: Tensor, how: Normalisation) -> Tensor:
    """Take each map of [T, H, W] to its own range; constant ones to zero."""
    low, high = (bound[:, None, None] for bound in values.flatten(1).aminmax(dim=1))
    peak = torch.maximum(low.abs(), high.abs())
    varies = high - low > ROUNDING * peak
    if how == "minmax":
        return (values - low) / (high - low).where(varies, torch.inf)
    return values / peak.where(varies, torch.inf)


def _check(size: tuple[int, int], normalize: str | None, mode: str) -> None:
    """Refuse what `lay` cannot do."""
    if len(size) != 2 or not all(length > 0 for length in size):
        raise ExplainerError(f"size is (height, width) in pixels, such as (480, 640); got {size!r}")
    if normalize is not None and normalize not in get_args(Normalisation):
        raise ExplainerError(f"normalize is None, 'minmax' or 'symmetric'; got {normalize!r}")
    if mode not in get_args(Interpolation):
        raise ExplainerError(f"mode is 'bilinear' or 'nearest'; got {mode!r}")
