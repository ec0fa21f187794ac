"""Position embeddings on another grid, against the calls that the published codes make."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from timm.layers import resample_abs_pos_embed
from torch import Tensor

from explainer.positions import Interpolation, interpolate

VARIANTS: tuple[Interpolation, ...] = get_args(Interpolation)
GRIDS = [((4, 4), (8, 8)), ((4, 4), (6, 9)), ((7, 7), (3, 5)), ((5, 3), (10, 4)), ((14, 14), (28, 28))]


def table(prefix: int, grid: tuple[int, int], width: int = 3) -> Tensor:
    return torch.randn(prefix + grid[0] * grid[1], width, generator=torch.Generator().manual_seed(0))


def literal(given: Tensor, old: tuple[int, int], new: tuple[int, int], how: str) -> Tensor:
    """One class token in front, as the codes have it."""
    image = given[1:].reshape(1, *old, -1).permute(0, 3, 1, 2)
    if how == "bicubic_antialias":  # GEM, LeGrad
        image = F.interpolate(image, size=new, mode="bicubic", antialias=True, align_corners=False)
    elif how == "bilinear":  # CLIP Surgery
        image = F.interpolate(image, size=new, mode="bilinear")
    elif how == "dino":  # SCLIP, NACLIP, ClearCLIP, ProxyCLIP
        factor = ((new[0] + 0.1) / old[0], (new[1] + 0.1) / old[1])
        image = F.interpolate(image, scale_factor=factor, mode="bicubic", recompute_scale_factor=False)
    else:  # Grad-ECLIP, MaskCLIP
        image = F.interpolate(image, size=new, mode="bicubic", align_corners=False)
    return torch.cat([given[:1], image.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1)])


@pytest.mark.parametrize("how", VARIANTS)
@pytest.mark.parametrize(("old", "new"), GRIDS)
def test_each_variant(how: Interpolation, old: tuple[int, int], new: tuple[int, int]) -> None:
    given = table(1, old)
    assert torch.allclose(interpolate(given, 1, old, new, how), literal(given, old, new, how), atol=1e-6)


@pytest.mark.parametrize(("old", "new"), GRIDS)
@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_the_default_is_that_of_timm(old: tuple[int, int], new: tuple[int, int], prefix: int) -> None:
    given = table(prefix, old)
    expected = resample_abs_pos_embed(given[None], list(new), list(old), num_prefix_tokens=prefix)[0]
    assert torch.allclose(interpolate(given, prefix, old, new, "bicubic_antialias"), expected, atol=1e-6)


def test_the_variants_differ() -> None:
    """By several percent of the norm: whoever compares results must know which one was used."""
    given = table(1, (7, 7))
    found = [interpolate(given, 1, (7, 7), (14, 14), how) for how in VARIANTS]
    for one, other in combinations(found, 2):
        assert float((one - other).norm() / one.norm()) > 0.02


@pytest.mark.parametrize("how", VARIANTS)
def test_the_same_grid_is_the_same_table(how: Interpolation) -> None:
    given = table(1, (4, 6))
    assert interpolate(given, 1, (4, 6), (4, 6), how) is given


@pytest.mark.parametrize("how", VARIANTS)
def test_rows_and_columns_are_not_exchanged(how: Interpolation) -> None:
    """A table that only changes from row to row still only changes from row to row."""
    given = torch.arange(4.0)[:, None].expand(4, 6).reshape(24, 1)
    moved = interpolate(given, 0, (4, 6), (8, 3), how).reshape(8, 3)
    assert torch.allclose(moved, moved[:, :1].expand(8, 3), atol=1e-5)
    assert (moved[1:-1, 0].diff() > 0).all()


@pytest.mark.parametrize("how", VARIANTS)
def test_every_size_is_hit_exactly(how: Interpolation) -> None:
    """Scale factors are rounded by the library; a grid one short would shift every token behind it."""
    for old in (2, 7, 14, 16, 24, 37):
        given = table(0, (old, old), width=1)
        for new in range(1, 50):
            assert len(interpolate(given, 0, (old, old), (new, 50 - new), how)) == new * (50 - new)


@pytest.mark.parametrize("lead", [(1,), (2, 1)])
def test_leading_dimensions_stay(lead: tuple[int, ...]) -> None:
    given = table(1, (4, 4)).expand(*lead, -1, -1)
    moved = interpolate(given, 1, (4, 4), (6, 5), "bicubic")
    assert moved.shape == (*lead, 31, 3)
    assert torch.allclose(moved.reshape(-1, 31, 3)[0], literal(table(1, (4, 4)), (4, 4), (6, 5), "bicubic"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_types_stay(dtype: torch.dtype) -> None:
    given = table(1, (4, 4)).to(dtype)
    moved = interpolate(given, 1, (4, 4), (6, 5), "bicubic")
    assert moved.dtype == dtype
    assert torch.equal(moved[0], given[0])
    expected = literal(given.float(), (4, 4), (6, 5), "bicubic").to(dtype)
    assert torch.equal(moved, expected)


def test_the_table_is_left_alone_and_records_no_graph() -> None:
    given = table(1, (4, 4)).requires_grad_()
    before = given.detach().clone()
    moved = interpolate(given, 1, (4, 4), (6, 5), "bicubic")
    assert not moved.requires_grad
    assert torch.equal(given, before)
