"""How an output lies on the picture: every layout there and back, and shapes that could be several things."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from explainer.hooks import LayerError
from explainer.layout import LAYOUTS, MOST_PREFIX_TOKENS, Grid, Layout, fit, is_open, map_layouts, seen_grids

SIDES = st.integers(2, 12)
PATCHES = st.integers(4, 32)


def laid_out(maps: Tensor, layout: Layout, prefix: int = 0) -> Tensor:
    """Write maps [B, C, h, w] in a layout, the slow way."""
    batch, channels, height, width = maps.shape
    if layout == "NCHW":
        return maps
    if layout == "NHWC":
        return torch.stack([maps[:, c] for c in range(channels)], dim=-1)
    rows = [maps[:, :, y, x] for y in range(height) for x in range(width)]
    tokens = torch.stack([torch.full((batch, channels), -1.0 - i) for i in range(prefix)] + rows, dim=1)
    return torch.stack([tokens[:, i] for i in range(tokens.shape[1])], dim=2) if layout == "NCL" else tokens


def numbered(channels: int, height: int, width: int) -> Tensor:
    return torch.arange(2.0 * channels * height * width).reshape(2, channels, height, width)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(height=SIDES, width=SIDES, patch=PATCHES, channels=st.integers(1, 40), layout=st.sampled_from(LAYOUTS))
def test_there_and_back(height: int, width: int, patch: int, channels: int, layout: Layout) -> None:
    size, maps = (height * patch, width * patch), numbered(channels, height, width)
    output = laid_out(maps, layout)
    assume(layout != "NHWC" or abs(width - channels) > 1 + max(height, width))
    assume(layout != "NCL" or not 0 <= channels - height * width <= MOST_PREFIX_TOKENS)
    grid = fit(tuple(output.shape), size, [(height, width)])
    assert grid == Grid(height, width, layout)
    assert torch.equal(grid.to_map(output), maps)
    assert torch.equal(grid.to_columns(output), maps.flatten(2).transpose(1, 2))


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    height=SIDES,
    width=SIDES,
    patch=PATCHES,
    prefix=st.integers(0, 10),
    stated=st.booleans(),
    finer=st.booleans(),
)
def test_prefix_tokens(height: int, width: int, patch: int, prefix: int, stated: bool, finer: bool) -> None:
    maps = numbered(3, height, width)
    output = laid_out(maps, "NLC", prefix)
    grids = [(2 * height, 2 * width), (height, width)] if finer else [(height, width)]
    assume(prefix + height * width < 4 * height * width)
    size = (height * patch, width * patch)
    grid = fit(tuple(output.shape), size, grids, prefix if stated else None)
    assert grid == Grid(height, width, "NLC", prefix)
    assert torch.equal(grid.to_map(output), maps)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(side=st.integers(11, 24), ratio=st.sampled_from([(1, 1), (2, 3), (3, 2), (3, 4)]), prefix=st.integers(0, 10))
def test_tokens_without_a_known_grid(side: int, ratio: tuple[int, int], prefix: int) -> None:
    height, width = side * ratio[0], side * ratio[1]
    size = (height * 8, width * 8)
    assert fit((2, height * width + prefix, 5), size) == Grid(height, width, "NLC", prefix)


PICTURE = (224, 224)


@pytest.mark.parametrize(
    ("shape", "size", "grids", "prefix", "expected"),
    [
        # Maps: channels first where both readings are possible.
        ((2, 512, 7, 7), PICTURE, [], None, Grid(7, 7, "NCHW")),
        ((2, 7, 7, 768), PICTURE, [], None, Grid(7, 7, "NHWC")),
        ((2, 7, 7, 7), PICTURE, [], None, Grid(7, 7, "NCHW")),
        ((2, 14, 14, 15), PICTURE, [], None, Grid(14, 15, "NCHW")),
        ((2, 3, 224, 224), PICTURE, [], None, Grid(224, 224, "NCHW")),
        # Rounding up at every stride makes maps of tall and wide pictures a cell too long on one side.
        ((2, 512, 10, 7), (320, 200), [], None, Grid(10, 7, "NCHW")),
        ((2, 512, 7, 10), (200, 320), [], None, Grid(7, 10, "NCHW")),
        ((2, 512, 16, 3), (500, 70), [], None, Grid(16, 3, "NCHW")),
        ((2, 3, 16, 512), (70, 500), [], None, Grid(3, 16, "NHWC")),
        # No map: pooled, a single row, windows, other ranks.
        ((2, 512, 1, 1), PICTURE, [], None, None),
        ((2, 512, 1, 2), (32, 64), [], None, None),
        ((2, 512, 7, 14), PICTURE, [], None, None),
        ((2, 512), PICTURE, [], None, None),
        ((2, 4, 49, 49, 8), PICTURE, [], None, None),
        # Tokens: a grid that the model shows is taken before one that only divides well.
        ((2, 197, 192), PICTURE, [(14, 14)], 1, Grid(14, 14, "NLC", 1)),
        ((2, 198, 192), PICTURE, [(14, 14)], None, Grid(14, 14, "NLC", 2)),
        ((2, 196, 192), PICTURE, [(14, 14)], 1, Grid(14, 14, "NLC")),
        ((2, 261, 384), PICTURE, [(16, 16)], 5, Grid(16, 16, "NLC", 5)),
        ((2, 768, 49), PICTURE, [(7, 7)], None, Grid(7, 7, "NCL")),
        ((2, 64, 49), PICTURE, [(7, 7)], None, Grid(7, 7, "NLC", 15)),
        ((2, 21, 64), (64, 64), [(5, 4), (4, 4)], 5, Grid(4, 4, "NLC", 5)),
        ((2, 50, 64), PICTURE, [(14, 14), (7, 7)], 1, Grid(7, 7, "NLC", 1)),
        # Behind many prompts or registers it is the one grid that the model shows, if there is only one.
        ((2, 247, 768), PICTURE, [(14, 14)], None, Grid(14, 14, "NLC", 51)),
        ((2, 84, 32), (32, 32), [(8, 8)], None, Grid(8, 8, "NLC", 20)),
        ((2, 257, 32), PICTURE, [(7, 7)], None, Grid(16, 16, "NLC", 1)),
        ((2, 247, 32), PICTURE, [(14, 14), (7, 7)], None, Grid(16, 15, "NLC", 7)),
        # Tokens without a grid: cells that are exactly square, then nearly so.
        ((2, 197, 192), PICTURE, [], None, Grid(14, 14, "NLC", 1)),
        ((2, 21, 64), (64, 64), [], None, Grid(4, 4, "NLC", 5)),
        ((2, 281, 64), (224, 320), [], None, Grid(14, 20, "NLC", 1)),
        ((2, 267, 64), (224, 300), [], None, Grid(14, 19, "NLC", 1)),
        ((2, 2, 64), PICTURE, [], None, None),
        ((2, 1, 64), PICTURE, [(14, 14)], 1, None),
    ],
)
def test_fit(
    shape: tuple[int, ...],
    size: tuple[int, int],
    grids: list[tuple[int, int]],
    prefix: int | None,
    expected: Grid | None,
) -> None:
    assert fit(shape, size, grids, prefix) == expected


@pytest.mark.parametrize(
    ("shape", "layout", "grids", "expected"),
    [
        ((2, 8, 8, 8), "NHWC", [], Grid(8, 8, "NHWC")),
        ((2, 8, 8, 8), "NCHW", [], Grid(8, 8, "NCHW")),
        ((2, 49, 49), "NCL", [(7, 7)], Grid(7, 7, "NCL")),
        ((2, 6, 49), "NCL", [], Grid(7, 7, "NCL")),
        ((2, 49, 6), "NLC", [(7, 7)], Grid(7, 7, "NLC")),
        ((2, 6, 49), "NCHW", [(7, 7)], None),
        ((2, 8, 8, 8), "NLC", [], None),
    ],
)
def test_fit_to_a_layout_that_is_stated(
    shape: tuple[int, ...], layout: Layout, grids: list[tuple[int, int]], expected: Grid | None
) -> None:
    assert fit(shape, PICTURE, grids, layout=layout) == expected


def test_seen_grids() -> None:
    shapes = [(2, 64, 56, 56), (2, 28, 28, 128), (2, 512, 1, 1), (2, 197, 192), (2, 14, 14, 15), (2, 64, 56, 56)]
    assert seen_grids(shapes, PICTURE) == [(56, 56), (28, 28), (14, 15), (14, 14)]


@pytest.mark.parametrize(
    ("x", "y", "cell"),
    [(0, 0, 0), (0.99, 0, 3), (1, 0, 3), (0, 1, 8), (1, 1, 11), (0.5, 0.5, 6), (0.249, 0.34, 4)],
)
def test_cell_at(x: float, y: float, cell: int) -> None:
    assert Grid(3, 4, "NLC", prefix=2).cell_at(x, y) == cell


@pytest.mark.parametrize(
    ("grid", "shape", "message"),
    [
        (
            Grid(14, 14, "NLC", 1),
            (2, 196, 8),
            "an output of shape [2, 196, 8] does not lie on a 14 x 14 grid in layout NLC with 1 prefix tokens",
        ),
        (
            Grid(7, 7, "NCHW"),
            (2, 8, 7, 8),
            "an output of shape [2, 8, 7, 8] does not lie on a 7 x 7 grid in layout NCHW with 0 prefix tokens",
        ),
        (
            Grid(7, 7, "NCHW"),
            (2, 49, 8),
            "an output of shape [2, 49, 8] does not lie on a 7 x 7 grid in layout NCHW with 0 prefix tokens",
        ),
        (
            Grid(7, 7, "NHWC"),
            (2, 8, 7, 7),
            "an output of shape [2, 8, 7, 7] does not lie on a 7 x 7 grid in layout NHWC with 0 prefix tokens",
        ),
        (
            Grid(7, 7, "NHWC"),
            (2, 49, 7),
            "an output of shape [2, 49, 7] does not lie on a 7 x 7 grid in layout NHWC with 0 prefix tokens",
        ),
        (
            Grid(7, 7, "NCL"),
            (2, 49, 8),
            "an output of shape [2, 49, 8] does not lie on a 7 x 7 grid in layout NCL with 0 prefix tokens",
        ),
        (
            Grid(2, 2, "NLC"),
            (2, 2),
            "an output of shape [2, 2] does not lie on a 2 x 2 grid in layout NLC with 0 prefix tokens",
        ),
        (
            Grid(2, 2, "NCL"),
            (4,),
            "an output of shape [4] does not lie on a 2 x 2 grid in layout NCL with 0 prefix tokens",
        ),
    ],
)
def test_outputs_of_another_grid(grid: Grid, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(LayerError) as raised:
        grid.to_map(torch.zeros(shape))
    assert str(raised.value) == message


def test_a_map_that_can_be_read_in_two_layouts_is_read_as_the_one_before_it():
    size = (64, 128)
    shapes = [(2, 8, 16, 32), (2, 16, 32, 24), (2, 8, 16, 32), (2, 50, 24), (2, 24, 16, 32), (2, 8, 16, 32)]
    assert list(map_layouts(shapes, size, ())) == ["NHWC", "NHWC", "NHWC", "NHWC", "NCHW", "NCHW"]
    assert is_open(shapes, size)
    assert not is_open(shapes[:4], size)
    assert not is_open(shapes[1:2], size)
    assert fit(shapes[0], size) == Grid(16, 32, "NCHW")
    assert fit(shapes[0], size, maps="NHWC") == Grid(8, 16, "NHWC")
    assert fit((2, 24, 16, 32), size, maps="NHWC") == Grid(16, 32, "NCHW")


def test_where_channels_are_shows_when_the_picture_grows():
    shapes = [(2, 16, 16, 16), (2, 16, 16, 16), (2, 16, 16, 16), (2, 9)]
    grown = [(2, 16, 32, 32), (2, 32, 32, 16), (2, 16, 16, 16), (2, 9)]
    assert list(map_layouts(shapes, (64, 64), grown)) == ["NCHW", "NHWC", "NCHW", "NCHW"]


def test_tokens_in_the_last_dimension_have_no_prefix():
    assert fit((2, 3, 50), PICTURE, [(7, 7)]) is None
    assert fit((2, 3, 49), PICTURE, [(7, 7)]) == Grid(7, 7, "NCL")


def test_tokens_of_a_grid_that_was_halved():
    size = (288, 192)
    assert fit((2, 15, 384), size, [(18, 12)]) == Grid(5, 3, "NLC")
    assert fit((2, 55, 384), size, [(18, 12)], prefix=1) == Grid(9, 6, "NLC", 1)
    assert fit((2, 10, 384), (160, 96), [(10, 5)]) == Grid(5, 2, "NLC")


def test_a_map_that_lost_its_border():
    """Convolutions without padding: Inception at 200 x 300."""
    assert fit((2, 2048, 4, 8), (200, 300)) == Grid(4, 8, "NCHW")
