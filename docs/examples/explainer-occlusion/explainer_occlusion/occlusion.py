"""Occlusion (Zeiler & Fergus 2014, arXiv:1311.2901)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from explainer.encoder import Encoder, image_size
from explainer.target import Targets

if TYPE_CHECKING:
    from explainer_occlusion import Occlusion


def run(config: Occlusion, encoder: Encoder, images: Tensor, targets: Targets) -> Tensor:
    """Map score(picture) - score(picture with a square over cell i), for every cell i: figure 7 of the paper.

    The cells tile the input: there are as many as strides fit, and each square has its cell's centre in its middle.

    Args:
        config: Size, step and colour of the square.
        encoder: Needs nothing but an output.
        images: [B, 3, H, W].
        targets: T targets.

    Returns:
        [B, T, h, w], signed: positive where covering lowers the score.
    """
    rows, columns = (max(1, round(side / config.stride)) for side in image_size(images))
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    at_once = max(1, config.batch // len(images))
    falls: list[Tensor] = []
    with encoder.session() as hooks:
        outputs = encoder.forward(images, hooks)
        whole = targets.scores(outputs)
        for first in range(0, len(cells), at_once):
            some = cells[first : first + at_once]
            covered = torch.cat([_covered(images, cell, (rows, columns), config) for cell in some])
            falls += [whole - targets.scores(rest) for rest in encoder.forward(covered, hooks).split(len(images))]
        targets.scores(outputs)  # the last scores are those that the result tells
    return torch.stack(falls, dim=-1).unflatten(-1, (rows, columns))


def _covered(images: Tensor, cell: tuple[int, int], grid: tuple[int, int], config: Occlusion) -> Tensor:
    """Cover the square around the centre of a cell."""
    middles = [(place + 0.5) * side / count for place, side, count in zip(cell, image_size(images), grid, strict=True)]
    rows, columns = (slice(max(0, round(m - config.patch / 2)), round(m + config.patch / 2)) for m in middles)
    result = images.clone()
    result[:, :, rows, columns] = config.value
    return result
