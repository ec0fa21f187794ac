"""The views that come with the package, pixel by pixel."""

from __future__ import annotations

import cmap
import numpy as np
import pytest
from explanations import on_picture
from PIL import Image

from explainer_registry import ExplainerError

GREY = (200, 100, 50)


def pixels(picture: Image.Image) -> list[list[list[int]]]:
    return np.asarray(picture).tolist()


def colour(name: str, place: float) -> list[int]:
    return np.rint(np.array(cmap.Colormap(name).lut(257)[round(place * 256), :3]) * 255).astype(int).tolist()


@pytest.fixture
def picture() -> Image.Image:
    return Image.new("RGB", (4, 1), GREY)


def test_overlay_is_the_overlay_of_an_explanation(picture: Image.Image) -> None:
    e = on_picture([[[-2.0, 0.0, 1.0, 2.0]]], picture)
    assert e.draw("overlay") == e.overlay()
    settings = {"alpha": 1.0, "colormap": "bids:viridis", "normalize": "minmax"}
    assert e.draw("overlay", **settings) == e.overlay(**settings)


def test_heat_without_negative_values_runs_from_dark_to_bright(picture: Image.Image) -> None:
    drawn = on_picture([[[2.0, 4.0, 3.0, 2.5]]], picture).draw("heat")
    assert pixels(drawn) == [[colour("bids:inferno", at) for at in (0, 1, 0.5, 0.25)]]


def test_heat_of_two_signs_is_red_for_blue_against_and_white_between(picture: Image.Image) -> None:
    drawn = pixels(on_picture([[[-2.0, 0.0, 1.0, 2.0]]], picture).draw("heat"))[0]
    assert drawn == [colour("matplotlib:bwr", at) for at in (0, 0.5, 0.75, 1)]
    assert drawn[1] == [255, 255, 255]


def test_spotlight_darkens_what_is_cold(picture: Image.Image) -> None:
    drawn = pixels(on_picture([[[2.0, 4.0, 3.0, 2.5]]], picture).draw("spotlight", floor=0.2))[0]
    for pixel, light in zip(drawn, (0.2, 1, 0.6, 0.4), strict=True):
        assert pixel == [round(light * value) for value in GREY]


def test_spotlight_darkens_all_that_does_not_speak_for_the_target(picture: Image.Image) -> None:
    drawn = pixels(on_picture([[[-4.0, 0.0, 1.0, 2.0]]], picture).draw("spotlight", floor=0.0))[0]
    assert drawn == [[0, 0, 0], [0, 0, 0], [50, 25, 12], [100, 50, 25]]


def test_outline_goes_around_what_is_hot() -> None:
    picture = Image.new("RGB", (6, 6), GREY)
    maps = np.zeros((6, 6))
    maps[1:5, 1:5] = 1
    drawn = np.asarray(on_picture([maps.tolist()], picture).draw("outline", colour="#0000ff"))
    line = (drawn == (0, 0, 255)).all(-1)
    expected = maps.astype(bool)
    expected[2:4, 2:4] = False
    assert line.tolist() == expected.tolist()
    assert (drawn[~line] == GREY).all()
    assert (np.asarray(picture) == GREY).all()


def test_an_unknown_colour_is_refused(picture: Image.Image) -> None:
    with pytest.raises(ExplainerError) as caught:
        on_picture([[[0.0, 1.0]]], picture).draw("outline", colour="rod")
    assert str(caught.value) == "colour is a name of CSS such as 'red', or '#ff0000'; got 'rod'"
