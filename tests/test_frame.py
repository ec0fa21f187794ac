from __future__ import annotations

import pytest
from explanations import frames, said
from hypothesis import given, settings
from hypothesis import strategies as st

from explainer.frame import Frame
from explainer_registry import ExplainerError


def test_a_whole_picture_is_its_own_box():
    frame = Frame.whole((640, 480))
    assert frame == Frame((640, 480), (0.0, 0.0, 640.0, 480.0))
    assert frame.size == (480, 640)


def test_a_resized_picture_takes_its_box_along():
    crop = Frame((640, 480), (80, 0, 560, 480))
    assert crop.scaled((240, 640)) == Frame((640, 240), (80, 0, 560, 240))


@settings(deadline=None)
@given(frames(), st.integers(1, 50), st.integers(1, 50))
def test_resizing_back_gives_the_frame_again(frame: Frame, height: int, width: int):
    there_and_back = frame.scaled((height, width)).scaled(frame.size)
    assert there_and_back.picture == frame.picture
    assert there_and_back.box == pytest.approx(frame.box)


def test_lists_as_json_gives_them_make_an_equal_frame():
    assert Frame([4, 3], [0, 0, 2, 3]) == Frame((4, 3), (0.0, 0.0, 2.0, 3.0))


@pytest.mark.parametrize(
    ("picture", "box", "message"),
    [
        (
            (0, 5),
            (0, 0, 1, 1),
            "a frame needs a picture of at least 1 x 1 pixels; got width 0 and height 5",
        ),
        (
            (4, 4),
            (2, 0, 2, 4),
            "a frame's box is (left, top, right, bottom) with left < right and top < bottom; got (2.0, 0.0, 2.0, 4.0)",
        ),
        (
            (4, 4),
            (0, 0, float("nan"), 4),
            "a frame's box is (left, top, right, bottom) with left < right and top < bottom; got (0.0, 0.0, nan, 4.0)",
        ),
        (
            (4, 3),
            (0, 3, 4, 6),
            "the box (0.0, 3.0, 4.0, 6.0) lies outside the picture, which is 4 wide and 3 high",
        ),
    ],
)
def test_impossible_frames_are_refused(picture: tuple[int, int], box: tuple[float, ...], message: str):
    with pytest.raises(ExplainerError) as error:
        Frame(picture, box)
    assert said(error) == message
