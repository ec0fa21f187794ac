from __future__ import annotations

import dataclasses
from io import BytesIO

import pytest
import torch
from explanations import PROVENANCE, explanation, on_picture, said
from PIL import Image

from explainer.explanation import Explanation
from explainer.frame import Frame
from explainer_registry import ExplainerError

CONSTANT = (
    "picture {}, '{}': the map is constant and points nowhere; the score may not depend on this layer, or "
    "the method cut everything off. Its normalised heat is zero, and it has no mask and no boxes"
)


def two_by_three() -> Explanation:
    maps = torch.arange(2 * 3 * 2 * 2, dtype=torch.float32).view(2, 3, 2, 2)
    return explanation(maps, ["a bus", "a bicycle", "a tram"], scores=torch.arange(6.0).view(2, 3))


def test_pictures_are_picked_by_number_and_slice():
    e = two_by_three()
    assert len(e) == 2
    assert e[1].maps.equal(e.maps[1:])
    assert e[1].scores.tolist() == [[3, 4, 5]]
    assert e[-1] == e[1]
    assert e[:1] == e[0]
    assert e[::-1].maps.equal(e.maps.flip(0))
    assert [one == e[b] for b, one in enumerate(e)] == [True, True]


def test_targets_are_picked_by_name():
    tram = two_by_three()["a tram"]
    assert (tram.names, tram.labels) == (("a tram",), (("a tram",), ("a tram",)))
    assert tram.maps.equal(two_by_three().maps[:, 2:])
    assert tram.scores.tolist() == [[2], [5]]
    assert two_by_three()[1]["a tram"] == tram[1]


def test_what_every_map_is_about_serves_as_a_name():
    maps = torch.arange(8, dtype=torch.float32).view(2, 1, 2, 2)
    cats = explanation(maps, ["top class"], labels=(("tabby",), ("tabby",)))
    assert cats["tabby"] == cats["top class"] == cats
    assert "  targets  'top class (tabby)'" in repr(cats)
    both = explanation(maps, ["top class"], labels=(("tabby",), ("lynx",)))
    with pytest.raises(ExplainerError) as caught:
        both["tabby"]
    assert said(caught) == "no target named 'tabby' (available: 'top class')"
    assert both[0]["tabby"] == both[0]


def test_parts_keep_their_pictures_and_frames():
    pictures = Image.new("RGB", (4, 4)), Image.new("RGB", (6, 4))
    frames = Frame((4, 4), (1, 1, 3, 3)), Frame.whole((6, 4))
    e = explanation(torch.rand(2, 1, 2, 2), pictures=pictures, frames=frames)
    assert e[1].pictures == pictures[1:]
    assert e[1].frames == frames[1:]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (2, "no picture 2: there are 2 pictures, numbered from 0"),
        (-3, "no picture -3: there are 2 pictures, numbered from 0"),
        (slice(5, 9), "slice(5, 9, None) picks no picture; there are 2"),
        (
            "bicycle",
            "no target named 'bicycle'; did you mean 'a bicycle'? (available: 'a bus', 'a bicycle', 'a tram')",
        ),
        ("zebra", "no target named 'zebra' (available: 'a bus', 'a bicycle', 'a tram')"),
        (
            1.5,
            "an explanation is indexed by a picture's number, a slice of pictures or a target's name; got 1.5",
        ),
    ],
)
def test_impossible_keys_are_refused(key, message):
    with pytest.raises(ExplainerError) as error:
        two_by_three()[key]
    assert said(error) == message


def test_a_long_list_of_targets_is_cut_short():
    with pytest.raises(ExplainerError) as error:
        explanation(torch.rand(1, 80, 1, 2), [str(name) for name in range(80)])["zebra"]
    assert said(error) == ("no target named 'zebra' (available: '0', '1', '2', '3', '4', '5', '6', '7', and 72 more)")


def test_a_name_that_several_targets_have_is_refused():
    e = explanation(torch.rand(1, 3, 2, 2), ["crane", "a bus", "crane"])
    with pytest.raises(ExplainerError) as error:
        e["crane"]
    assert said(error) == "2 targets are named 'crane'; draw one by its number: target=0 or 2"
    assert e.overlay(2).size == (2, 2)


def test_explanations_are_equal_when_all_but_their_pictures_is():
    e = two_by_three()
    assert e == two_by_three()
    assert e == dataclasses.replace(e, pictures=(Image.new("RGB", (2, 2)),) * 2)
    assert e != dataclasses.replace(e, maps=e.maps + 1)
    assert e != dataclasses.replace(e, scores=None)
    assert e != dataclasses.replace(e, scores=e.scores + 1)
    assert e != dataclasses.replace(e, method="cam")
    assert e != e[0]
    assert e != "e"


def test_heat_has_the_size_of_the_picture_or_the_one_asked_for():
    e = on_picture(torch.rand(3, 2, 2), Image.new("RGB", (6, 4)))
    assert e.heat().shape == (1, 3, 4, 6)
    assert e.heat((5, 7)).shape == (1, 3, 5, 7)
    assert explanation(torch.rand(2, 1, 3, 5)).heat().shape == (2, 1, 3, 5)


def test_heat_is_raw_unless_asked_otherwise():
    e = explanation([[[[-1.0, 3.0]]]])
    assert e.heat().tolist() == [[[[-1, 3]]]]
    assert e.heat(normalize="minmax").tolist() == [[[[0, 1]]]]
    assert e.heat((1, 4), mode="nearest").tolist() == [[[[-1, -1, 3, 3]]]]
    torch.testing.assert_close(e.heat(normalize="symmetric"), torch.tensor([[[[-1 / 3, 1]]]]))


def test_pictures_of_different_sizes_need_a_size():
    e = explanation(torch.rand(2, 1, 2, 2), frames=(Frame.whole((640, 480)), Frame.whole((30, 20))))
    for name in ("heat", "mask"):
        with pytest.raises(ExplainerError) as error:
            getattr(e, name)()
        assert said(error) == (
            f"the pictures differ in size (height x width: 480 x 640, 20 x 30), so their {name} does not fit "
            f"one tensor; pass size=(height, width), or take one picture at a time: e[0].{name}()"
        )
        assert getattr(e, name)(size=(4, 4)).shape == (2, 1, 4, 4)
        assert getattr(e[1], name)().shape == (1, 1, 20, 30)


def test_nothing_of_the_size_of_a_picture_is_kept():
    e = on_picture([[[1.0, 2.0]]], Image.new("RGB", (50, 40)))
    before = e.maps.clone()
    e.heat(normalize="minmax"), e.mask(), e.boxes(), e.overlay(), e.grid(width=20), repr(e)
    assert e.maps.equal(before)
    kept = [value for value in vars(e).values() if isinstance(value, torch.Tensor)]
    assert [tensor.shape for tensor in kept] == [(1, 1, 1, 2)]


def test_a_constant_map_is_warned_of():
    maps = torch.rand(2, 2, 2, 2)
    maps[1, 0] = 0.25
    provenance = dataclasses.replace(PROVENANCE, warnings=("the weights are random",))
    e = explanation(maps, ["a bus", "a tram"], provenance=provenance)
    assert e.warnings == ("the weights are random", CONSTANT.format(1, "a bus"))
    assert e[0].warnings == ("the weights are random",)
    assert e["a bus"][1].warnings == ("the weights are random", CONSTANT.format(0, "a bus"))
    assert two_by_three().warnings == ()


def test_the_text_says_what_it_is_and_warns():
    assert repr(two_by_three()) == (
        "Explanation of 2 pictures x 3 targets by gradcam on timm:resnet50\n"
        "  maps     2 x 2, cpu\n"
        "  targets  'a bus', 'a bicycle', 'a tram'"
    )
    assert repr(explanation(torch.zeros(1, 1, 7, 9), ["a bus"])) == (
        "Explanation of 1 picture x 1 target by gradcam on timm:resnet50\n"
        "  maps     7 x 9, cpu\n"
        "  targets  'a bus'\n"
        f"  warning  {CONSTANT.format(0, 'a bus')}"
    )
    assert repr(explanation(torch.zeros(1, 9, 1, 1))).endswith("\n  and 1 more warning: see .warnings")


def test_a_notebook_shows_the_grid_of_the_first_targets():
    e = explanation(torch.rand(2, 10, 2, 2))
    with Image.open(BytesIO(e._repr_png_())) as shown:
        assert shown.format == "PNG"
        assert shown.size == explanation(e.maps[:1, :8]).grid().size


def test_scores_are_kept_as_float32():
    e = explanation(torch.rand(1, 1, 2, 2), scores=torch.tensor([[2]], dtype=torch.bfloat16))
    assert e.scores.dtype == torch.float32


MAPS = torch.ones(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"maps": MAPS.half()},
            "maps are float32 of shape [B, T, h, w], none of them 0; got float16 of shape [2, 3, 4, 5]",
        ),
        (
            {"maps": MAPS[0]},
            "maps are float32 of shape [B, T, h, w], none of them 0; got float32 of shape [3, 4, 5]",
        ),
        (
            {"maps": MAPS[:, :0]},
            "maps are float32 of shape [B, T, h, w], none of them 0; got float32 of shape [2, 0, 4, 5]",
        ),
        ({"names": ("a bus",)}, "maps of shape [2, 3, 4, 5] need 3 names; got 1"),
        ({"labels": (("a", "b", "c"),)}, "maps of shape [2, 3, 4, 5] need 2 labels; got 1"),
        ({"pictures": ()}, "maps of shape [2, 3, 4, 5] need 2 pictures; got 0"),
        ({"frames": ()}, "maps of shape [2, 3, 4, 5] need 2 frames; got 0"),
        (
            {"labels": (("a", "b", "c"), ("a", "b"))},
            "labels need one text for each of 3 targets; picture 1 has 2",
        ),
        (
            {"scores": torch.ones(3, 2)},
            "scores need the shape [B, T] of the maps, [2, 3]; got [3, 2]",
        ),
        (
            {"pictures": (None, Image.new("L", (5, 4)))},
            "picture 1 has mode 'L'; convert it first: .convert('RGB')",
        ),
        (
            {"pictures": (Image.new("RGB", (4, 5)), None)},
            "picture 0 has width and height (4, 5), but its frame was made for (5, 4)",
        ),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, message):
    with pytest.raises(ExplainerError) as error:
        dataclasses.replace(explanation(MAPS), **fields)
    assert said(error) == message


@pytest.mark.parametrize(("others", "counted"), [(0, ""), (1, " (and 1 other map)"), (2, " (and 2 other maps)")])
def test_a_map_that_is_not_finite_is_refused(others: int, counted: str):
    maps = MAPS.clone()
    maps[0, 1, 0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    maps[1, :others, 0, 0] = torch.nan
    with pytest.raises(ExplainerError) as error:
        explanation(maps, ["a bus", "a bicycle", "a tram"])
    assert said(error) == (
        f"the map of picture 0 for 'a bicycle'{counted} is not finite: 3 of 20 values are NaN or infinity; "
        "if the model runs in half precision, try float32, otherwise look for NaN in its weights or in "
        "the picture"
    )
