"""How the layout proof runs a model: at which sizes and layers, on which pictures, and that it leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch import Tensor, nn

import explainer
from core.cells import Cells, tokens, wrap
from core.nets import snapshot
from explainer import ExplainerError
from explainer.corners import changes, level, pictures
from explainer.layout import Grid

# Sizes and layers


class Choosy(Cells):
    """Takes only inputs whose sides `takes` accepts."""

    def __init__(self, takes: Callable[[int, int], bool]) -> None:
        super().__init__(tokens)
        self.takes = takes

    def forward(self, images: Tensor) -> Tensor:
        if not self.takes(*images.shape[2:]):
            raise ValueError(f"no pictures of\n{images.shape[2]} x {images.shape[3]}.")
        return super().forward(images)


def choosy(takes: Callable[[int, int], bool], size: tuple[int, int] = (64, 64)) -> explainer.Explainer:
    return explainer.wrap(Choosy(takes), size=size, layer="cells")


def test_a_model_that_takes_no_rectangles() -> None:
    proof = choosy(lambda height, width: height == width).prove()
    assert proof.holds
    lines = str(proof).splitlines()
    assert lines[0] == (
        "layout       holds: each corner of the picture changes the map most in that corner (contrast: 1 is none, 4 "
        "the most)"
    )
    assert lines[1].startswith("  64 x 64    cells: 8 x 8 cells, NLC: holds, contrast ")
    assert lines[2:] == [
        "  64 x 48    not tried: the model does not take it (ValueError: no pictures of 64 x 48)",
        "  48 x 64    not tried: the model does not take it (ValueError: no pictures of 48 x 64)",
    ]


def test_twice_the_width_where_two_thirds_do_not_fit() -> None:
    proof = choosy(lambda height, width: height % 64 == width % 64 == 0).prove()
    assert ([trial.size for trial in proof.trials], proof.untried) == ([(64, 64), (64, 128), (128, 64)], ())


class Late(Cells):
    """Fails on rectangles, but only once there are as many as the proof runs."""

    def forward(self, images: Tensor) -> Tensor:
        if len(images) == 5 and images.shape[2] != images.shape[3]:
            raise IndexError
        return super().forward(images)


def test_a_model_that_fails_only_on_real_pictures() -> None:
    proof = explainer.wrap(Late(tokens), size=(64, 64), layer="cells").prove()
    assert proof.holds
    assert [told for _, told in proof.untried] == ["the model does not take it (IndexError)"] * 2


def test_a_rectangle_of_ones_own_is_tried_upright_too() -> None:
    proof = wrap(tokens, (64, 96)).prove()
    assert [trial.size for trial in proof.trials] == [(64, 96), (96, 64)]


def test_a_coarse_grid_gets_a_wider_rectangle() -> None:
    assert [trial.size for trial in wrap(tokens, (16, 16)).prove().trials] == [(16, 16), (16, 24), (24, 16)]


def test_a_size_that_is_given_is_the_only_one() -> None:
    assert [trial.size for trial in wrap(tokens).prove((32, 40)).trials] == [(32, 40)]
    assert [trial.size for trial in wrap(tokens).prove(32).trials] == [(32, 32)]


def test_a_size_that_is_given_has_to_be_taken() -> None:
    with pytest.raises(ExplainerError, match=r"^torch:Choosy cannot run on an input of 64 x 40 \(ValueError: no pict"):
        choosy(lambda height, width: height == width).prove((64, 40))


def test_a_layer_that_is_named() -> None:
    ex = wrap(tokens)
    for layer in ("stem", ex.encoder.model.stem):
        assert [trial.layer for trial in ex.prove(layer=cast("Any", layer)).trials] == ["stem"] * 3


def test_the_layout_that_was_given_is_the_one_that_is_proved() -> None:
    ex = wrap(lambda x: x.permute(0, 2, 3, 1), channels=8, layout="NHWC")
    assert ex.prove((64, 64), "cells").trials[0].grid == Grid(8, 8, "NHWC")


def test_a_layer_that_does_not_lie_on_the_picture() -> None:
    with pytest.raises(ExplainerError) as caught:
        wrap(tokens).prove(layer="head")
    assert str(caught.value) == (
        "layer 'head' gives 3 per picture, which does not lie on the picture; nearest layers that do: stem, cells"
    )


# No trace


class State(NamedTuple):
    model: dict[str, Any]
    noise: Tensor
    gradients: bool


def state(model: nn.Module) -> State:
    return State(snapshot(model), torch.random.get_rng_state(), torch.is_grad_enabled())


def used() -> nn.Module:
    model = Cells(tokens).train()
    model.stem.weight.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    model.stem.register_forward_hook(lambda _m, _args, output: output * 1)
    return model


@pytest.mark.parametrize("fails", [False, True], ids=["", "interrupted"])
def test_nothing_is_left_behind(fails: bool) -> None:
    model = used()
    ex = explainer.wrap(model, size=(64, 64), layer="cells")
    if fails:
        model.head.forward = interrupted  # type: ignore[method-assign]
    before = state(model)
    if fails:
        with pytest.raises(KeyboardInterrupt):
            ex.prove()
    else:
        with torch.inference_mode():
            assert ex.prove().holds
    after = state(model)
    assert after.model == before.model
    assert torch.equal(after.noise, before.noise)
    assert after.gradients == before.gradients


def interrupted(_x: Tensor) -> Tensor:
    raise KeyboardInterrupt


def test_no_graph_is_recorded_and_few_pictures_are_run() -> None:
    model, batches = Cells(tokens), list[tuple[int, bool]]()
    ex = explainer.wrap(model, size=(64, 64), layer="cells")
    ex.encoder.geometry((64, 64))
    model.cells.register_forward_hook(lambda _m, _args, output: batches.append((len(output), output.requires_grad)))
    ex.prove((64, 64))
    assert batches == [(5, False)] * 3


# The parts


def test_pictures_differ_from_the_first_in_one_corner_each() -> None:
    made = pictures((5, 8), seed=3)
    changed = (made[1:] != made[:1]).all(dim=1)
    assert made.shape == (5, 3, 5, 8)
    expected = torch.zeros(4, 5, 8, dtype=torch.bool)
    expected[0, :3, :4] = expected[1, :3, 4:] = expected[2, 3:, :4] = expected[3, 3:, 4:] = True
    assert torch.equal(changed, expected)
    assert torch.equal((made[1:] == made[:1]).all(dim=1), ~expected)
    assert not torch.equal(made, pictures((5, 8), seed=4))


def test_changes_are_distances() -> None:
    maps = torch.zeros(5, 2, 1, 3)
    maps[2, :, 0, 1] = torch.tensor([3.0, 4.0])
    expected = torch.zeros(4, 1, 3, dtype=torch.float64)
    expected[1, 0, 1] = 5
    assert torch.equal(changes(maps), expected)


def test_levelling_takes_away_what_cells_and_corners_do_anyway() -> None:
    generator = torch.Generator().manual_seed(0)
    marks = 1 + torch.rand(2, 4, 3, 5, generator=generator, dtype=torch.float64)
    louder = torch.rand(2, 4, 1, 1, generator=generator, dtype=torch.float64) + 0.1
    livelier = torch.rand(2, 1, 3, 5, generator=generator, dtype=torch.float64) + 0.1
    levelled = level(marks)
    torch.testing.assert_close(level(marks * louder * livelier), levelled)
    ones = torch.ones(1, dtype=torch.float64)
    torch.testing.assert_close(levelled.mean(dim=1), ones.expand(2, 3, 5))
    torch.testing.assert_close(levelled.mean(dim=(2, 3)), ones.expand(2, 4))


def test_cells_that_never_move_count_as_usual() -> None:
    marks = torch.ones(1, 4, 2, 2)
    marks[..., 0, 0] = 0
    assert torch.equal(level(marks)[..., 0, 0], torch.ones(1, 4))
