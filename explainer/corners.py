"""Where a map changes when a corner of the picture does.

Corners are numbered row by row: top left, top right, bottom left, bottom right. How far a cell moves depends on the
cell and on the picture, too: a border of zeros, a token that stands out, noise that happens to be loud. So changes
are levelled (:func:`level`): what is left says how much more than usual a cell moves for one corner than for others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

CORNERS = ("top left", "top right", "bottom left", "bottom right")
EDGES = ("top", "bottom", "left", "right")

Verdict = Literal["holds", "fails", "cannot tell"]

SURE = 3.0
"""Standard errors that each piece of evidence has to be above zero for a layout to hold."""
WRONG = 8.0
"""Standard errors that one piece of evidence has to be below zero for it to fail: no accident reaches that."""
CLEAR = 5.0
"""Standard errors between a single cell's first and second corner for it to count."""
MUCH = 0.25
"""Part of the clearest mark that a wrong one has to reach: cells need not lie quite where their grid says."""
STRAYS = 0.25
"""Part of the cells that may follow another corner: windows reach across the middle, but not over the map."""


@dataclass(frozen=True)
class Marks:
    """What the corners of the picture did to a map.

    Attributes:
        verdict: Whether each corner changed the map most where the corner lies.
        contrast: [4, 4], by the corner that was changed and the quadrant of the map: its change in units of the usual
            one. 1 where the corner makes no difference, 4 where it reaches no other quadrant.
        reason: What is wrong, or why nothing can be told; empty where the layout holds.
    """

    verdict: Verdict
    contrast: tuple[tuple[float, ...], ...] = ()
    reason: str = ""


def pictures(size: tuple[int, int], seed: int) -> Tensor:
    """Make noise, and the same noise with one corner after the other made anew.

    Args:
        size: Height and width.
        seed: Which noise.

    Returns:
        [5, 3, H, W], standard normal.
    """
    generator = torch.Generator().manual_seed(seed)
    before, after = (torch.randn(3, *size, generator=generator, device="cpu") for _ in range(2))
    made = before.repeat(5, 1, 1, 1)
    for index, (top, left) in enumerate(_quadrants(_sides(size[0]) >= 0, _sides(size[1]) >= 0), start=1):
        corner = top[:, None] & left
        made[index] = torch.where(corner, after, before)
    return made


def changes(maps: Tensor) -> Tensor:
    """Measure how far each cell moved with each corner.

    Args:
        maps: [5, C, h, w], of :func:`pictures`.

    Returns:
        [4, h, w], float64 on the CPU.
    """
    maps = maps.detach().cpu().double()
    return (maps[1:] - maps[:1]).square().sum(dim=1).sqrt()


def judge(rounds: Tensor) -> Marks:
    """Tell from several rounds of noise whether a map lies as it should.

    Three things have to be so: each corner changes its own quadrant of the map most; the outermost rows and columns
    follow their own side of the picture, which they do not where the tokens are shifted; and few single cells
    follow another corner than their own, which many do where they are in another order.

    Args:
        rounds: [n, 4, h, w], the changes of each round; n at least 2.
    """
    height, width = rounds.shape[2:]
    if height < 2 or width < 2:
        return Marks("cannot tell", reason=f"a grid of {height} x {width} cells has no four corners")
    if not rounds.isfinite().all():
        return Marks("cannot tell", reason="it holds numbers that are not finite")
    if not rounds.any():
        return Marks("cannot tell", reason="it is the same whatever the picture shows")
    levelled = level(rounds)
    contrast, corners = _corners(levelled)
    edges, strays = _edges(levelled), _strays(levelled)
    means = tuple(tuple(map(float, row)) for row in contrast)
    sure = torch.cat([corners, edges], dim=1)[0].min() > SURE
    for corner in (corners[1] < -WRONG).nonzero():
        return Marks("fails", means, _misplaced(contrast, int(corner)))
    for edge in (edges[1] < -WRONG).nonzero():
        return Marks("fails", means, f"the cells at its {EDGES[int(edge)]} edge follow the other side of the picture")
    if strays[1] > STRAYS:
        return Marks("fails", means, f"{strays[1]:.0%} of its cells follow another corner than the one they lie in")
    if sure and strays[0] <= STRAYS:
        return Marks("holds", means)
    return Marks("cannot tell", means, "no corner of the picture leaves a clear mark of its own on it")


def level(rounds: Tensor) -> Tensor:
    """Divide out how far a cell moves whatever the corner, and how far a corner moves the map as a whole.

    Args:
        rounds: [n, 4, h, w], not negative.

    Returns:
        The same shape; 1 on average over the cells, and over the corners.
    """
    for _ in range(8):  # the two averages do not commute; this settles them to well below a percent
        for dims in ((-1, -2), (-3,)):
            rounds = torch.nan_to_num(rounds / rounds.mean(dim=dims, keepdim=True), nan=1.0)
    return rounds


def _sides(count: int) -> Tensor:
    """1 for the cells before the middle, -1 for those behind it, 0 for one that lies across."""
    return torch.sign(count - 1 - 2 * torch.arange(count))


def _quadrants(first: Tensor, left: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    return ((row, column) for row in (first, ~first) for column in (left, ~left))


def _own(height: int, width: int) -> Tensor:
    """[4, h, w]: which cells lie in each corner's quadrant; those across the middle lie in none."""
    down, across = _sides(height), _sides(width)
    return torch.stack([(down == row)[:, None] & (across == column) for row in (1, -1) for column in (1, -1)])


def _corners(levelled: Tensor) -> tuple[Tensor, Tensor]:
    """Contrasts [4, 4], and evidence [2, 4] that each corner's own quadrant is above the others."""
    own = _own(*levelled.shape[2:])
    rounds = torch.stack([levelled[:, :, quadrant].mean(dim=-1) for quadrant in own], dim=-1)
    contrast = rounds.mean(dim=0)
    lead = contrast.diagonal() - (contrast - 100 * torch.eye(4)).amax(dim=1)
    return contrast, _evidence(lead, contrast.max() - 1, 2**0.5 * _error(rounds))


def _edges(levelled: Tensor) -> Tensor:
    """Evidence [2, 4] that each edge of `EDGES` follows its own side of the picture."""
    height, width = levelled.shape[2:]
    top_left, top_right, bottom_left, bottom_right = levelled.unbind(dim=1)
    rows = (top_left + top_right - bottom_left - bottom_right).mean(dim=2) * _sides(height)
    columns = (top_left + bottom_left - top_right - bottom_right).mean(dim=1) * _sides(width)
    found: list[Tensor] = []
    for lines, cells in ((rows, width), (columns, height)):
        # The few lines of a small grid tell little of their error; so much it is at least if cells are independent.
        error = torch.maximum(_error(lines), (4 / cells) ** 0.5 * _error(levelled))
        mean = lines.mean(dim=0)
        found.append(_evidence(mean[[0, -1]], mean.max(), error))
    return torch.cat(found, dim=1)


def _evidence(found: Tensor, clearest: Tensor, error: Tensor) -> Tensor:
    """[2, n]: how many standard errors each is above zero, and above a wrong mark that would not be chance."""
    return torch.stack([found, found + MUCH * clearest]) / error


def _strays(levelled: Tensor) -> tuple[float, float]:
    """Parts of the cells that follow another corner than their own: of all, and of those that clearly follow one."""
    own = _own(*levelled.shape[2:])
    inside = own.any(dim=0)
    cells = levelled.mean(dim=0)[:, inside]
    most, second = cells.topk(2, dim=0).values
    clear = most - second > CLEAR * 2**0.5 * _error(levelled[:, :, inside])
    astray = cells.argmax(dim=0) != own[:, inside].int().argmax(dim=0)
    # Two or three cells make no order; where few are clear, the others may be as they should.
    count = max(int(clear.sum()), len(clear) // 2, 8)
    return float(astray.double().mean()), int((astray & clear).sum()) / count


def _error(rounds: Tensor) -> Tensor:
    """Standard error of a mean over rounds, from all entries together: the rounds are few."""
    return (rounds.var(dim=0).mean() / len(rounds)).sqrt().clamp(min=1e-9)


def _misplaced(contrast: Tensor, corner: int) -> str:
    most = int(contrast[corner].argmax())
    return (
        f"changing the {CORNERS[corner]} corner of the picture changes it most at its {CORNERS[most]} "
        f"({contrast[corner, most]:.2f} times the usual, against {contrast[corner, corner]:.2f} at its "
        f"{CORNERS[corner]})"
    )
