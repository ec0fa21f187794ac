from __future__ import annotations

import dataclasses

import cmap
import numpy as np
import pytest
import torch
from explanations import explanation, on_picture, said
from PIL import Image, ImageFont

from explainer.frame import Frame
from explainer.sheet import sheet, wrapped
from explainer.views import grid, overlay
from explainer_registry import ExplainerError

ORANGE = (250, 120, 10)


def colour(name: str, place: float) -> np.ndarray:
    return np.array(cmap.Colormap(name).lut(257)[round(place * 256), :3]) * 255


def blended(base: tuple[int, ...], over: np.ndarray, share: float) -> list[int]:
    return np.rint((1 - share) * np.array(base) + share * over).astype(int).tolist()


def pixels(picture: Image.Image) -> list[list[list[int]]]:
    return np.asarray(picture).tolist()


@pytest.fixture
def picture() -> Image.Image:
    return Image.new("RGB", (4, 1), ORANGE)


def test_a_map_without_negative_values_runs_from_its_minimum_to_its_maximum(picture: Image.Image):
    drawn = on_picture([[[2.0, 4.0, 3.0, 2.5]]], picture).overlay()
    assert (drawn.mode, drawn.size) == ("RGB", (4, 1))
    assert pixels(drawn) == [[blended(ORANGE, colour("bids:inferno", at), 0.5) for at in (0, 1, 0.5, 0.25)]]


def test_a_signed_map_is_red_for_blue_against_and_plain_between(picture: Image.Image):
    drawn = pixels(on_picture([[[-2.0, 0.0, 1.0, 2.0]]], picture).overlay(alpha=0.8))[0]
    assert drawn == [
        blended(ORANGE, colour("matplotlib:bwr", 0), 0.8),
        list(ORANGE),
        blended(ORANGE, colour("matplotlib:bwr", 0.75), 0.4),
        blended(ORANGE, colour("matplotlib:bwr", 1), 0.8),
    ]
    against, support = np.array(drawn[0]), np.array(drawn[3])
    assert against[2] > against[0]
    assert support[0] > support[2]


def test_the_choice_can_be_overruled(picture: Image.Image):
    e = on_picture([[[-2.0, 0.0, 1.0, 2.0]]], picture)
    drawn = e.overlay(normalize="minmax", colormap="bids:viridis", alpha=1)
    assert pixels(drawn) == [[blended(ORANGE, colour("bids:viridis", at), 1) for at in (0, 0.5, 0.75, 1)]]
    positive = on_picture([[[0.0, 1.0, 1.0, 2.0]]], picture).overlay(normalize="symmetric")
    assert pixels(positive)[0][0] == list(ORANGE)


def test_what_the_model_did_not_see_stays_plain(picture: Image.Image):
    for maps in ([[[1.0, 2.0]]], [[[-1.0, 2.0]]]):
        drawn = pixels(on_picture(maps, picture, (1, 0, 3, 1)).overlay())[0]
        assert drawn[0] == drawn[3] == list(ORANGE)
        assert list(ORANGE) not in drawn[1:3]


def test_nothing_of_the_colour_is_the_picture(picture: Image.Image):
    assert pixels(on_picture([[[1.0, 2.0]]], picture).overlay(alpha=0)) == pixels(picture)


def test_without_a_picture_the_heat_lies_on_grey():
    drawn = explanation([[[[0.0, 1.0]]]]).overlay()
    assert pixels(drawn) == [[blended((128, 128, 128), colour("bids:inferno", at), 0.5) for at in (0, 1)]]


def test_a_target_is_drawn_by_name_or_number_and_the_first_by_default():
    maps = torch.arange(8.0).view(2, 2, 1, 2) * torch.tensor([1.0, -1.0])
    e = explanation(maps, ["a bus", "a bicycle"])
    assert pixels(e.overlay()) == pixels(e.overlay("a bus")) == pixels(e.overlay(0, 0))
    assert pixels(e.overlay("a bicycle", 1)) == pixels(e[1]["a bicycle"].overlay()) == pixels(overlay(e, -1, -1))
    assert pixels(e.overlay("a bicycle")) != pixels(e.overlay())


def test_gradients_of_the_maps_do_not_stand_in_the_way():
    e = explanation(torch.rand(1, 1, 2, 2).requires_grad_())
    assert e.overlay().size == (2, 2)
    assert len(e.boxes()[0]) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"target": "a buss"},
            "no target named 'a buss'; did you mean 'a bus'? (available: 'a bus', 'a bicycle')",
        ),
        ({"target": 2}, "no target 2: there are 2 targets, numbered from 0"),
        ({"picture": 1}, "no picture 1: there is 1 picture, numbered from 0"),
        ({"alpha": 50}, "alpha is the share of the colour, a number from 0 to 1; got 50"),
        ({"normalize": "max"}, "normalize is None, 'minmax' or 'symmetric'; got 'max'"),
        (
            {"colormap": "bids:infermo"},
            "no colour map named 'bids:infermo'; did you mean 'bids:inferno' or 'inferno'? "
            "(all of them: https://cmap-docs.readthedocs.io)",
        ),
        (
            {"colormap": "#?"},
            "no colour map named '#?' (all of them: https://cmap-docs.readthedocs.io)",
        ),
    ],
)
def test_impossible_overlays_are_refused(arguments, message):
    with pytest.raises(ExplainerError) as error:
        explanation(torch.rand(1, 2, 2, 2), ["a bus", "a bicycle"]).overlay(**arguments)
    assert said(error) == message


def test_a_grid_has_a_row_per_method_and_a_column_per_target_after_the_picture():
    picture = Image.new("RGB", (80, 40), ORANGE)
    e = on_picture(torch.rand(3, 2, 2), picture)
    one, two = e.grid(width=40), grid([e, dataclasses.replace(e, method="gem")], width=40)
    assert one.mode == two.mode == "RGB"
    assert two.height - one.height == 20 + 6  # a drawing and a gap
    wider = on_picture(torch.rand(4, 2, 2), picture).grid(width=40)
    assert wider.width - one.width == 40 + 6
    # From the right: three overlays, then the plain picture.
    start = one.width - 4 * (40 + 6)
    plain = one.crop((start, one.height - 26, start + 40, one.height - 6))
    assert pixels(plain) == [[list(ORANGE)] * 40] * 20
    last = one.crop((one.width - 46, one.height - 26, one.width - 6, one.height - 6))
    small = on_picture(e.maps[0, 2:], picture.resize((40, 20)))
    assert pixels(last) == pixels(small.overlay())


def test_columns_are_headed_by_labels_where_the_rows_agree():
    e = explanation(torch.rand(1, 1, 2, 2), ["top class"], labels=(("tabby cat",),))
    other = dataclasses.replace(e, labels=(("tiger cat",),))
    agreed = dataclasses.replace(e, names=("tabby cat",))
    assert pixels(grid([e, e])) == pixels(grid([agreed, agreed]))
    apart = dataclasses.replace(e, labels=(("top class",),))
    assert pixels(grid([e, other])) == pixels(grid([apart, apart]))


def test_the_sheet_has_paper_between_the_drawings():
    cell = Image.new("RGB", (30, 20), ORANGE)
    paper = sheet([[cell, cell]], ["one", "two"], ["a method"])
    drawings = np.all(np.asarray(paper) == ORANGE, axis=-1)
    assert drawings.sum() == 2 * 30 * 20
    assert np.all(np.asarray(paper)[-6:] == 255)


def test_long_headings_are_wrapped_between_words_and_inside_them_where_they_must():
    font = ImageFont.load_default(size=10)
    for text in ("a photo of a red double-decker bus", "a", "", "Donaudampfschifffahrt is long"):
        lines = wrapped(text, 60, font)
        assert all(font.getlength(line) <= 60 for line in lines)
        assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert wrapped("a red bus", 1000, font) == ["a red bus"]


@pytest.mark.parametrize(
    ("others", "arguments", "message"),
    [
        ([], {"width": 0}, "width is that of one drawing in pixels, at least 1; got 0"),
        ([], {"picture": 3}, "no picture 3: there is 1 picture, numbered from 0"),
        (
            [explanation(torch.rand(1, 1, 2, 2), ["a dog"])],
            {},
            "the explanations of a grid need the same targets; number 0 has 'a cat', number 1 has 'a dog'",
        ),
        (
            [explanation(torch.rand(1, 1, 2, 2), ["a cat"], frames=(Frame.whole((9, 9)),))],
            {},
            "the explanations of a grid need the same pictures; number 0 and number 1 differ",
        ),
    ],
)
def test_impossible_grids_are_refused(others, arguments, message):
    with pytest.raises(ExplainerError) as error:
        grid([explanation(torch.rand(1, 1, 2, 2), ["a cat"]), *others], **arguments)
    assert said(error) == message


def test_an_empty_grid_is_refused():
    with pytest.raises(ExplainerError) as error:
        grid([])
    assert said(error) == "a grid needs at least one explanation; got none"
