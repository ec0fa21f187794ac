"""The layout proof: what it finds right, what it finds wrong, and what it cannot tell.

Networks made here whose cells lie elsewhere than their shape suggests, a Hiera, a ViT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor

import explainer
from core.cells import Cells, tokens, wrap
from explainer.corners import judge
from explainer.geometry import Choice, Geometry
from explainer.layout import Grid
from explainer.proof import MOST
from explainer.testing import perturb


def registers(x: Tensor, count: int) -> Tensor:
    return x.mean(dim=(2, 3))[:, None].expand(-1, count, -1) + 0.01 * tokens(x)[:, :count]


def units(x: Tensor) -> Tensor:
    """Tokens window by window, windows of 2 x 2."""
    count, channels, height, width = x.shape
    x = x.reshape(count, channels, height // 2, 2, width // 2, 2).permute(0, 1, 2, 4, 3, 5)
    return tokens(x.reshape(count, channels, height, width))


def reason(proof: Any) -> str:
    return next(trial.marks.reason for trial in proof.trials if trial.marks.verdict != "holds")


# What holds


@pytest.mark.parametrize(
    ("arrange", "grid"),
    [
        (lambda x: x, Grid(8, 8, "NCHW")),
        (lambda x: x.permute(0, 2, 3, 1), Grid(8, 8, "NHWC")),
        (tokens, Grid(8, 8, "NLC")),
        (lambda x: x.flatten(2), Grid(8, 8, "NCL")),
        (lambda x: torch.cat([registers(x, 3), tokens(x)], dim=1), Grid(8, 8, "NLC", 3)),
    ],
    ids=["NCHW", "NHWC", "NLC", "NCL", "prefix"],
)
def test_right_layouts_hold_on_a_square_and_on_rectangles(arrange: Callable[[Tensor], Tensor], grid: Grid) -> None:
    proof = wrap(arrange).prove()
    assert (proof.holds, proof.untried) == (True, ())
    assert [trial.size for trial in proof.trials] == [(64, 64), (64, 48), (48, 64)]
    assert proof.trials[0].grid == grid
    assert all(min(row[i] for i, row in enumerate(t.marks.contrast)) > 2 for t in proof.trials)


def test_much_mixing_leaves_a_small_contrast_that_still_holds() -> None:
    proof = wrap(tokens, mixed=40.0).prove()
    assert proof.holds
    assert max(max(row) for row in proof.trials[0].marks.contrast) < 1.2


def test_the_last_map_and_the_one_with_a_gradient_are_both_proved() -> None:
    model = timm.create_model("vit_tiny_patch16_224", num_classes=3, img_size=64, embed_dim=32, depth=2, num_heads=2)
    proof = explainer.wrap(perturb(model)).prove()
    assert proof.holds
    assert [(t.size, t.layer) for t in proof.trials[:2]] == [((64, 64), "norm"), ((64, 64), "blocks.1.norm1")]
    assert len(proof.trials) == 6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_model_runs_in_its_own_type(dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []
    ex = explainer.wrap(Cells(tokens).to(dtype), size=(64, 64), layer="cells")
    ex.encoder.model.cells.register_forward_hook(lambda _m, _args, output: seen.append(output.dtype))
    assert ex.prove((64, 64)).holds
    assert set(seen) == {dtype}


# What fails


WRONG: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "columns first": (
        lambda x: tokens(x.transpose(2, 3)),
        "changing the top right corner of the picture changes it most at its bottom left",
    ),
    "left and right": (
        lambda x: x.flip(3),
        "changing the top left corner of the picture changes it most at its top right",
    ),
    "upside down": (
        lambda x: x.flip(2),
        "changing the top left corner of the picture changes it most at its bottom left",
    ),
    "registers behind": (
        lambda x: torch.cat([tokens(x), registers(x, 4)], dim=1),
        "changing the top left corner of the picture changes it most at its top right",
    ),
    "one token behind": (
        lambda x: torch.cat([tokens(x), registers(x, 1)], dim=1),
        "the cells at its right edge follow the other side of the picture",
    ),
    "windows": (units, "of its cells follow another corner than the one they lie in"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("size", [(64, 64), (96, 64), (64, 112)], ids=str)
@pytest.mark.parametrize("mixed", [0.2, 5.0])
def test_wrong_layouts_fail(wrong: str, size: tuple[int, int], mixed: float) -> None:
    arrange, told = WRONG[wrong]
    proof = wrap(arrange, size, mixed=mixed).prove(size)
    assert proof.verdict == "fails"
    if size == (64, 64):
        assert told in reason(proof)


def claimed(ex: explainer.Explainer, grid: Grid, layer: str = "cells") -> explainer.Explainer:
    """An explainer that takes a layer to lie on the picture as it is told."""
    choice = Choice(layer, grid, 0, "claimed")

    class Claimed(Geometry):
        def __init__(self) -> None:
            self.last = self.gradient = choice

    ex.encoder.geometry = lambda size: Claimed()  # type: ignore[method-assign]
    return ex


@pytest.mark.parametrize("size", [(64, 96), (96, 64)], ids=str)
def test_height_and_width_taken_for_each_other(size: tuple[int, int]) -> None:
    grid = Grid(size[1] // 8, size[0] // 8, "NLC")
    assert claimed(wrap(tokens, size), grid).prove(size).verdict == "fails"


def test_tokens_taken_for_channels() -> None:
    ex = wrap(lambda x: x.flatten(2), channels=64)  # 64 channels of 64 cells
    assert ex.prove().trials[0].grid == Grid(8, 8, "NLC")
    assert not ex.prove().holds


def test_channels_taken_for_rows() -> None:
    square = (64, 64)
    assert not wrap(lambda x: x.permute(0, 2, 3, 1), channels=8, layout="NCHW").prove(square).holds
    assert wrap(lambda x: x.permute(0, 2, 3, 1), channels=8, layout="NHWC").prove(square).holds
    # As many channels as rows and columns; a larger picture tells which is which.
    assert wrap(lambda x: x.permute(0, 2, 3, 1), channels=8).prove(square).holds


def test_a_hiera_before_its_tokens_are_put_in_order() -> None:
    model = timm.create_model("hiera_tiny_224", num_classes=3, embed_dim=16, num_heads=1, stages=(1, 1, 1, 1))
    ex = explainer.wrap(perturb(model))
    proof = claimed(ex, Grid(56, 56, "NLC"), "blocks.0").prove((224, 224))
    assert proof.verdict == "fails"
    assert "of its cells follow another corner than the one they lie in" in reason(proof)


# What cannot be told


def test_a_map_without_a_place() -> None:
    proof = wrap(lambda x: x.mean(dim=(2, 3), keepdim=True).expand_as(x)).prove()
    assert (proof.holds, proof.verdict) == (False, "cannot tell")
    assert str(proof) == (
        "layout       cannot tell: where the picture changes makes no difference that stands out from noise; weights "
        "that start at zero hide it (last norms, layer scales), and so does a wrong layout\n"
        "  64 x 64    cells: 8 x 8 cells, NCHW: cannot tell: no corner of the picture leaves a clear mark of its own "
        "on it\n"
        "  64 x 48    cells: 8 x 6 cells, NCHW: cannot tell: no corner of the picture leaves a clear mark of its own "
        "on it\n"
        "  48 x 64    cells: 6 x 8 cells, NCHW: cannot tell: no corner of the picture leaves a clear mark of its own "
        "on it"
    )


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "it is the same whatever the picture shows"), (float("nan"), "it holds numbers that are not finite")],
)
def test_a_map_of_nothing(value: float, told: str) -> None:
    proof = wrap(lambda x: x * value).prove((64, 64))
    assert (proof.verdict, reason(proof)) == ("cannot tell", told)


def test_a_grid_without_four_corners() -> None:
    ex = explainer.wrap(Cells(lambda x: x.mean(dim=2, keepdim=True)), size=(64, 64))
    proof = claimed(ex, Grid(1, 8, "NCHW")).prove((64, 64))
    assert (proof.verdict, reason(proof)) == ("cannot tell", "a grid of 1 x 8 cells has no four corners")


def test_noise_is_never_taken_for_a_wrong_layout() -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        rounds = 1 + torch.rand(MOST, 4, 3, 4, generator=generator, dtype=torch.float64)
        assert {judge(rounds[:n]).verdict for n in range(3, MOST + 1)} == {"cannot tell"}
