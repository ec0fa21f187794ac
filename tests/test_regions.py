from __future__ import annotations

import numpy as np
import pytest
import torch
from explanations import explanation, frames, said, values
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor

from explainer.frame import Frame
from explainer.heat import seen
from explainer.regions import Box, boxes, mask
from explainer_registry import ExplainerError

SHARES = st.floats(0, 1)


def flooded(hot: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """Box the regions of a mask by flooding them pixel by pixel: edges and area."""
    rest = set(map(tuple, np.argwhere(hot).tolist()))
    found = []
    while rest:
        front = [rest.pop()]
        region = set(front)
        while front:
            y, x = front.pop()
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & rest
            rest -= near
            region |= near
            front += near
        ys, xs = zip(*region, strict=True)
        found.append((min(xs), min(ys), max(xs) + 1, max(ys) + 1, len(region)))
    return sorted(found)


def test_a_threshold_marks_normalised_heat():
    e = explanation([[[[2.0, 4.0, 6.0]]]])
    assert e.mask(0.5).tolist() == [[[[False, True, True]]]]
    assert e.mask().equal(e.mask(0.5))
    assert e.mask(1).tolist() == [[[[False, False, True]]]]
    assert e.mask(0).all()


def test_a_quantile_marks_a_share_of_the_seen_pixels():
    maps = torch.arange(10.0).view(1, 1, 1, 10)
    assert explanation(maps).mask(quantile=0.7).tolist() == [[[[False] * 7 + [True] * 3]]]
    assert explanation(maps).mask(quantile=1).sum() == 1
    assert explanation(maps).mask(quantile=0).all()
    # Ten more pixels that the model never saw change nothing.
    framed = explanation(maps, frames=(Frame((20, 1), (0, 0, 10, 1)),))
    assert framed.mask(quantile=0.7).tolist() == [[[[False] * 7 + [True] * 3 + [False] * 10]]]


@settings(deadline=None)
@given(frames(), values(1, 2, 3, 4), SHARES, SHARES, st.booleans())
def test_masks_are_nested_and_stay_in_the_frame(frame: Frame, maps: Tensor, one: float, other: float, threshold: bool):
    def at(share: float) -> Tensor:
        return mask(maps, [frame], frame.size, **{"threshold" if threshold else "quantile": share})

    wide, narrow = at(min(one, other)), at(max(one, other))
    assert not (narrow & ~wide).any()
    assert not (wide & ~seen([frame], frame.size, maps.device)).any()


@settings(deadline=None)
@given(frames(), st.floats(-100, 100, width=32), SHARES)
def test_a_constant_map_has_no_mask_and_no_boxes(frame: Frame, value: float, share: float):
    maps = torch.full((1, 1, 2, 3), value)
    for chosen in ({"threshold": share}, {"quantile": share}):
        assert not mask(maps, [frame], frame.size, **chosen).any()
        assert boxes(maps[0], frame, **chosen) == [[]]


def test_boxes_are_the_connected_regions_hottest_first():
    heat = [
        [8.0, 0.0, 0.0, 0.0, 6.0],
        [0.0, 8.0, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 9.0, 10.0],
        [6.0, 6.0, 0.0, 0.0, 0.0],
    ]
    found = explanation([[heat]]).boxes(0.6)
    assert found == [
        [
            [
                Box(3, 2, 5, 3, pytest.approx(0.95)),
                Box(0, 0, 2, 2, pytest.approx(0.8)),  # joined by a corner
                Box(4, 0, 5, 1, pytest.approx(0.6)),
                Box(0, 3, 2, 4, pytest.approx(0.6)),
            ]
        ]
    ]
    assert [box.score for box in found[0][0]] == sorted((box.score for box in found[0][0]), reverse=True)


def test_small_regions_are_left_out():
    e = explanation([[[[9.0, 0.0, 10.0, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]]])
    assert [len(e.boxes(min_area=share)[0][0]) for share in (0, 0.1, 0.2, 0.3)] == [2, 2, 1, 0]


def test_pictures_of_different_sizes_have_boxes_of_their_own():
    maps = [[[[0.0, 1.0]]], [[[0.0, 1.0]]]]
    e = explanation(maps, frames=(Frame.whole((4, 2)), Frame((10, 4), (0, 0, 4, 4))))
    first, second = ([box[:4] for box in picture[0]] for picture in e.boxes(0.5))
    assert first == [(2, 0, 4, 2)]
    assert second == [(2, 0, 4, 4)]


@settings(deadline=None)
@given(arrays.arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))))
def test_regions_are_those_found_by_flooding(hot: np.ndarray):
    maps = torch.from_numpy(hot.astype(np.float32))
    frame = Frame.whole((hot.shape[1], hot.shape[0]))
    expected = flooded(hot) if hot.any() and not hot.all() else []
    assert sorted(box[:4] for box in boxes(maps[None], frame)[0]) == [region[:4] for region in expected]


@settings(deadline=None)
@given(frames(), values(1, 3, 4), SHARES)
def test_boxes_hold_the_mask_and_nothing_outside_the_picture(frame: Frame, maps: Tensor, threshold: float):
    hot = mask(maps[None], [frame], frame.size, threshold)[0, 0]
    rest = hot.clone()
    for left, top, right, bottom, score in boxes(maps, frame, threshold)[0]:
        assert 0 <= left < right <= frame.picture[0]
        assert 0 <= top < bottom <= frame.picture[1]
        assert threshold - 1e-6 <= score <= 1
        assert hot[top, left:right].any()
        assert hot[bottom - 1, left:right].any()
        assert hot[top:bottom, left].any()
        assert hot[top:bottom, right - 1].any()
        rest[top:bottom, left:right] = False
    assert not rest.any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"threshold": 0.5, "quantile": 0.9},
            "give a threshold or a quantile, not both; got threshold=0.5 and quantile=0.9",
        ),
        ({"threshold": 128}, "threshold is a number from 0 to 1; got 128"),
        ({"quantile": -0.1}, "quantile is a number from 0 to 1; got -0.1"),
    ],
)
def test_impossible_limits_are_refused(arguments, message):
    e = explanation(torch.rand(1, 1, 2, 2))
    for ask in (e.mask, e.boxes):
        with pytest.raises(ExplainerError) as error:
            ask(**arguments)
        assert said(error) == message


def test_an_impossible_area_is_refused():
    with pytest.raises(ExplainerError) as error:
        explanation(torch.rand(1, 1, 2, 2)).boxes(min_area=20)
    assert said(error) == "min_area is a share of the picture from 0 to 1; got 20"
