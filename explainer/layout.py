"""How the output of a layer lies on the picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

    def same_cells(self, other: Grid) -> bool:
        """Whether another grid has as many rows and columns."""
        return (self.height, self.width) == (other.height, other.width)

    def on_cells(self, shape: tuple[int, ...]) -> Grid | None:
        """Lay another shape out on the same cells.

        Args:
            shape: [B, h, w, C], [B, C, h, w] or [B, prefix + h*w, C].

        Returns:
            The grid of that shape; None where it has other cells.
        """
        cells = (self.height, self.width)
        if len(shape) == 4:
            layouts: dict[tuple[int, ...], Layout] = {shape[1:3]: "NHWC", shape[2:4]: "NCHW"}
            return Grid(*cells, layouts[cells]) if cells in layouts else None
        prefix = shape[1] - self.height * self.width if len(shape) == 3 else -1
        return Grid(*cells, "NLC", prefix) if 0 <= prefix <= max(MOST_PREFIX_TOKENS, self.prefix) else None

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
            found.update(pair for pair, lies in _map_readings(shape, size) if lies)
    return sorted(found, reverse=True)


def sure_layout(shape: tuple[int, ...], size: tuple[int, int]) -> Layout | None:
    """Tell in which layout a map of four dimensions is, where its shape leaves no choice; None elsewhere.

    Args:
        shape: Shape of an output.
        size: Height and width of the model's input.
    """
    if len(shape) != 4:
        return None
    (_, last), (_, first) = _map_readings(shape, size)
    return None if first == last else "NCHW" if last else "NHWC"


def is_open(shapes: Iterable[tuple[int, ...]], size: tuple[int, int]) -> bool:
    """Whether some map can be read in two layouts, and the others do not tell in which.

    Args:
        shapes: Shapes of outputs.
        size: Height and width of the model's input.
    """
    maps = [shape for shape in shapes if len(shape) == 4]
    both = any(all(lies for _, lies in _map_readings(shape, size)) for shape in maps)
    return both and len({sure_layout(shape, size) for shape in maps} - {None}) != 1


def map_layouts(
    shapes: Sequence[tuple[int, ...]], size: tuple[int, int], grown: Sequence[tuple[int, ...]]
) -> Iterator[Layout]:
    """Tell in which layout each output is, where it is a map.

    Args:
        shapes: Shapes of outputs, in the order in which they ran.
        size: Height and width of the model's input.
        grown: Their shapes for an input twice as high and wide, where channels stay and cells double; empty where
            they are not known.

    Yields:
        One layout for each shape: that of the last one that left no choice, where nothing else tells.
    """
    found: Layout = "NCHW"
    for shape in reversed(shapes):
        found = sure_layout(shape, size) or found
    for place, shape in enumerate(shapes):
        found = sure_layout(shape, size) or found
        after = grown[place] if grown else shape
        kept = [index for index in (1, 3) if len(shape) == len(after) == 4 and shape[index] == after[index]]
        if len(kept) == 1:
            yield "NCHW" if kept == [1] else "NHWC"
        else:
            yield found


def fit(
    shape: tuple[int, ...],
    size: tuple[int, int],
    grids: Iterable[tuple[int, int]] = (),
    prefix: int | None = None,
    layout: Layout | None = None,
    maps: Layout = "NCHW",
) -> Grid | None:
    """Find how an output of this shape lies on the picture.

    Args:
        shape: Shape of the output, batch first.
        size: Height and width of the model's input.
        grids: Grids that the model is known to have, for sequences.
        prefix: Number of prefix tokens where the model states it.
        layout: The layout, where the user states it.
        maps: The layout of a map whose shape can be read in two.

    Returns:
        The grid, or None where the shape holds no map of at least two rows and two columns.
    """
    readings = _readings(shape, size, list(grids), prefix, layout)
    if maps == "NHWC":
        readings = reversed(list(readings)) if len(shape) == 4 else readings
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
        layouts: tuple[Layout, Layout] = ("NCHW", "NHWC")
        for kept, (pair, lies) in zip(layouts, _map_readings(shape, size), strict=True):
            if lies:
                yield Grid(*pair, kept)
    elif len(shape) == 3:
        yield _sequence(shape[1], "NLC", grids, prefix)
        yield _sequence(shape[2], "NCL", grids, 0)
        if len(grids) == 1:
            # The one grid that was seen is likelier, behind many prompts or registers, than one that was not.
            yield _sequence(shape[1], "NLC", grids, prefix, most=grids[0][0] * grids[0][1])
        yield _halved(shape[1], grids, prefix)
        yield _guessed(shape[1], "NLC", size, prefix)
        if layout == "NCL":
            yield _guessed(shape[2], "NCL", size, 0)


def _sequence(
    length: int,
    layout: Layout,
    grids: Iterable[tuple[int, int]],
    prefix: int | None,
    most: int = MOST_PREFIX_TOKENS,
) -> Grid | None:
    spare = {(h, w): length - h * w for h, w in grids if 0 <= length - h * w <= most}
    if layout == "NCL":
        spare = {grid: rest for grid, rest in spare.items() if not rest}
    elif prefix is not None and prefix in spare.values():
        spare = {grid: rest for grid, rest in spare.items() if rest == prefix}
    if not spare:
        return None
    (height, width), rest = min(spare.items(), key=lambda item: item[1])
    return Grid(height, width, layout, rest)


def _halved(length: int, grids: list[tuple[int, int]], prefix: int | None) -> Grid | None:
    """Find a grid that was seen, halved until it has as many cells as there are tokens; halves round either way."""
    for height, width in grids:
        for up in (1, 0):
            rows, columns = height, width
            while min(rows, columns) > 2 - up:
                rows, columns = (rows + up) // 2, (columns + up) // 2
                rest = length - rows * columns
                if min(rows, columns) > 1 and rest in (0, prefix):
                    return Grid(rows, columns, "NLC", rest)
    return None


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


def _map_readings(shape: tuple[int, ...], size: tuple[int, int]) -> tuple[tuple[tuple[int, int], bool], ...]:
    """The rows and columns of a shape of four dimensions, channels first and channels last, and whether they fit."""
    first, last = (shape[2], shape[3]), (shape[1], shape[2])
    # Convolutions without padding take the same off the longer and the shorter edge.
    slack = 1 if size[0] == size[1] else 2
    return (first, _proportional(first, size, slack)), (last, _proportional(last, size))


def _proportional(grid: tuple[int, int], size: tuple[int, int], slack: int = 1) -> bool:
    """Whether cells of this grid are square on the picture, up to some cells of rounding."""
    (rows, columns), (height, width) = grid, size
    if not (1 < rows <= height and 1 < columns <= width):
        return False
    return abs(rows - columns * height / width) <= slack or abs(columns - rows * width / height) <= slack
