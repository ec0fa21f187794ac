"""The controls: what they depend on, and where they lie."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from explainer.bench.controls import CONTROLS, Blind, centre, random
from explainer.frame import Frame
from explainer.heat import lay

WHOLE = Blind(seed=0, number=3, label="cat", frame=Frame.whole((24, 16)), cells=(2, 3))


def test_random_values_depend_on_seed_sample_and_label_alone() -> None:
    first = random(WHOLE)

    torch.manual_seed(1)
    random(replace(WHOLE, label="dog"))
    assert torch.equal(random(WHOLE), first)
    for other in ({"seed": 1}, {"number": 4}, {"label": "dog"}):
        assert not torch.equal(random(replace(WHOLE, **other)), first)
    # The parts of what it is drawn from do not run into each other.
    assert not torch.equal(random(replace(WHOLE, seed=1, number=11)), random(replace(WHOLE, seed=11, number=1)))


def test_random_values_belong_to_the_cells_of_the_grid() -> None:
    frame = Frame.whole((15, 10))
    heat = random(replace(WHOLE, frame=frame))

    # The middle of each of 2 x 3 cells of 5 x 5 pixels is a pixel, and that has the cell's own value.
    cells = heat[2::5, 2::5]
    assert tuple(heat.shape) == (10, 15)
    assert torch.allclose(lay(cells[None, None], [frame], (10, 15))[0, 0], heat, atol=1e-6)
    assert len(cells.unique()) == 6
    assert bool(((heat >= 0) & (heat < 1)).all())


def test_random_values_are_uniform() -> None:
    many = random(replace(WHOLE, cells=(100, 100), frame=Frame.whole((100, 100)))).flatten().sort().values

    assert torch.allclose(many, torch.linspace(0, 1, 10_000), atol=0.025)


@pytest.mark.parametrize(
    ("picture", "box", "middle"),
    [
        ((20, 10), (0, 0, 20, 10), (4.5, 9.5)),
        ((20, 10), (10, 0, 20, 10), (4.5, 14.5)),  # a crop
        ((20, 10), (-4, -5, 24, 15), (4.5, 9.5)),  # padding, of which nothing is seen
        ((20, 10), (-10, 0, 10, 10), (4.5, 4.5)),
    ],
)
def test_the_centre_is_that_of_what_is_seen(
    picture: tuple[int, int], box: tuple[float, float, float, float], middle: tuple[float, float]
) -> None:
    heat = centre(replace(WHOLE, frame=Frame(picture, box)))

    rows, columns = (heat == heat.max()).nonzero().double().mean(dim=0).tolist()
    assert tuple(heat.shape) == (picture[1], picture[0])
    assert (rows, columns) == middle


def test_the_centre_falls_off_equally_in_all_directions() -> None:
    heat = centre(replace(WHOLE, frame=Frame.whole((41, 21))))

    assert float(heat[10, 20]) == 1
    assert torch.allclose(heat[10, 20:31], heat[10:21, 20])
    # A quarter of the shorter side is one standard deviation.
    assert float(heat[10, 25]) == pytest.approx(float(torch.tensor(-((5 / 5.25) ** 2) / 2).exp()))


def test_there_are_two() -> None:
    assert list(CONTROLS) == ["random", "centre"]
