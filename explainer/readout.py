"""From a cell of a feature map into the space in which targets are directions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Readout:
    """What the model would make of one cell, if the whole picture looked like it.

    E is the width of the space in which a target is a single row: what enters a classifier's last linear
    layer, or the embedding of a model without classes.

    Attributes:
        embed: Takes columns [B, N, C] to [B, N, E].
        rows: Takes directions [B, T, D] of the output space to rows [B, T, E].
        exact: Whether the model's own score is, up to a bias, the average of its cells' contributions, or
            that of its class token. False where it pools in another way, or does something that is not
            linear between pooling and output.
    """

    embed: Callable[[Tensor], Tensor]
    rows: Callable[[Tensor], Tensor]
    exact: bool = True

    def contributions(self, columns: Tensor, directions: Tensor) -> Tensor:
        """Dot product of each cell with each target's row, without bias (Zhou et al. 2016, eq. 2).

        Args:
            columns: [B, N, C].
            directions: [B, T, D].

        Returns:
            [B, T, N], float32.
        """
        embedded, rows = self.embed(columns).float(), self.rows(directions.float()).float()
        return torch.einsum("bne,bte->btn", embedded, rows)

    def similarities(self, columns: Tensor, directions: Tensor) -> Tensor:
        """Cosine similarity of each cell with each target's row.

        Args:
            columns: [B, N, C].
            directions: [B, T, D].

        Returns:
            [B, T, N], float32 in [-1, 1].
        """
        embedded, rows = self.embed(columns).float(), self.rows(directions.float()).float()
        return torch.einsum("bne,bte->btn", F.normalize(embedded, dim=-1), F.normalize(rows, dim=-1))


def agree(one: Tensor, other: Tensor) -> bool:
    """Tell whether two results are the same up to the rounding of their type.

    Args:
        one: Of any shape.
        other: Of the same shape and type.

    Returns:
        False also where the results hold no data (on the meta device), so that nothing can be told.
    """
    if one.is_meta:
        return False
    tolerance = 1e-3 if one.dtype in (torch.float32, torch.float64) else 3e-2
    return bool((one - other).abs().max() <= tolerance * other.abs().max())
