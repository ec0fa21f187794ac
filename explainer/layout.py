"""How the output of a layer lies on the picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from explainer.hooks import LayerError

Layout = Literal["NCHW", "NHWC", "NLC", "NCL"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
MOST_PREFIX_TOKENS = 16


@dataclass(frozen=True)
class Grid:
    """A layer's output as cells on the picture, row by row.

    Attributes:
        height: Rows of cells.
        width: Cells in a row.
        layout: Order of the dimensions: channels first or last for maps, tokens first or last for sequences.
        prefix: Tokens before the patch tokens (class token, registers); 0 for maps.
    """

    height: int
    width: int
    layout: Layout
    prefix: int = 0

    def to_map(self, output: Tensor) -> Tensor:
        """Lay an output of the layer out as [B, C, height, width], without its prefix tokens.

        Args:
            output: [B, C, h, w], [B, h, w, C], [B, prefix + h*w, C] or [B, C, h*w], as `layout` says.

        Raises:
            LayerError: The output does not have this grid.
        """
        if output.dim() != len(self.layout):
            raise LayerError(self._misfit(output))
        if self.layout == "NCHW":
            laid = output
        elif self.layout == "NHWC":
            laid = output.permute(0, 3, 1, 2)
        else:
            tokens = output.transpose(1, 2) if self.layout == "NCL" else output
            if tokens.shape[1] != self.prefix + self.height * self.width:
                raise LayerError(self._misfit(output))
            patches = tokens[:, self.prefix :].transpose(1, 2)
            laid = patches.reshape(*patches.shape[:2], self.height, self.width)
        if tuple(laid.shape[2:]) != (self.height, self.width):
            raise LayerError(self._misfit(output))
        return laid

    def to_columns(self, output: Tensor) -> Tensor:
        """Lay an output of the layer out as one row per cell, [B, height*width, C]."""
        return self.to_map(output).flatten(2).transpose(1, 2)

    def cell_at(self, x: float, y: float) -> int:
        """Index of the cell that holds the point (x, y), both in [0, 1] from the top left corner."""
        column = min(int(x * self.width), self.width - 1)
        row = min(int(y * self.height), self.height - 1)
        return row * self.width + column

    def _misfit(self, output: Tensor) -> str:
        return (
            f"an output of shape {list(output.shape)} does not lie on a {self.height} x {self.width} grid "
            f"in layout {self.layout} with {self.prefix} prefix tokens"
        )


def seen_grids(shapes: Iterable[tuple[int, ...]], size: tuple[int, int]) -> list[tuple[int, int]]:
    """Collect the (rows, columns) that four-dimensional outputs show, finest first.

    Args:
        shapes: Shapes of outputs.
        size: Height and width of the model's input.
    """
    found: set[tuple[int, int]] = set()
    for shape in shapes:
        if len(shape) == 4:
            found.update(pair for pair in ((shape[2], shape[3]), (shape[1], shape[2])) if _proportional(pair, size))
    return sorted(found, reverse=True)


def fit(
    shape: tuple[int, ...],
    size: tuple[int, int],
    grids: Iterable[tuple[int, int]] = (),
    prefix: int | None = None,
    layout: Layout | None = None,
) -> Grid | None:
    """Find how an output of this shape lies on the picture.

    Args:
        shape: Shape of the output, batch first.
        size: Height and width of the model's input.
        grids: Grids that the model is known to have, for sequences.
        prefix: Number of prefix tokens where the model states it.
        layout: The layout, where the user states it.

    Returns:
        The grid, or None where the shape holds no map of at least two rows and two columns.
    """
    readings = _readings(shape, size, list(grids), prefix, layout)
    return next((grid for grid in readings if grid is not None and layout in (None, grid.layout)), None)


def _readings(
    shape: tuple[int, ...],
    size: tuple[int, int],
    grids: list[tuple[int, int]],
    prefix: int | None,
    layout: Layout | None,
) -> Iterator[Grid | None]:
    """Everything that a shape can be, the likeliest first."""
    if len(shape) == 4:
        if _proportional((shape[2], shape[3]), size):
            yield Grid(shape[2], shape[3], "NCHW")
        if _proportional((shape[1], shape[2]), size):
            yield Grid(shape[1], shape[2], "NHWC")
    elif len(shape) == 3:
        yield _sequence(shape[1], "NLC", grids, prefix)
        yield _sequence(shape[2], "NCL", grids, 0)
        yield _guessed(shape[1], "NLC", size, prefix)
        if layout == "NCL":
            yield _guessed(shape[2], "NCL", size, 0)


def _sequence(length: int, layout: Layout, grids: Iterable[tuple[int, int]], prefix: int | None) -> Grid | None:
    spare = {(h, w): length - h * w for h, w in grids if 0 <= length - h * w <= MOST_PREFIX_TOKENS}
    if prefix is not None and prefix in spare.values():
        spare = {grid: rest for grid, rest in spare.items() if rest == prefix}
    if not spare:
        return None
    (height, width), rest = min(spare.items(), key=lambda item: item[1])
    return Grid(height, width, layout, rest)


def _guessed(length: int, layout: Layout, size: tuple[int, int], prefix: int | None) -> Grid | None:
    """Take the grid whose cells are exactly square where there is one, else one that is nearly so."""
    pairs = _factors(length, size)
    square = [(rows, columns) for rows, columns in pairs if rows * size[1] == columns * size[0]]
    return _sequence(length, layout, square, prefix) or _sequence(length, layout, pairs, prefix)


def _factors(length: int, size: tuple[int, int]) -> list[tuple[int, int]]:
    """Every proportional grid that leaves a plausible number of prefix tokens."""
    pairs = [
        (cells // width, width)
        for cells in range(max(length - MOST_PREFIX_TOKENS, 4), length + 1)
        for width in range(2, cells // 2 + 1)
        if cells % width == 0
    ]
    return [pair for pair in pairs if _proportional(pair, size)]


def _proportional(grid: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether cells of this grid are square on the picture, up to one cell of rounding."""
    (rows, columns), (height, width) = grid, size
    if not (1 < rows <= height and 1 < columns <= width):
        return False
    return abs(rows - columns * height / width) <= 1 or abs(columns - rows * width / height) <= 1
