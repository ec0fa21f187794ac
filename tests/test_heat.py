from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from explanations import frames, said, values
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from explainer.frame import Frame
from explainer.heat import flat, lay, seen
from explainer_registry import ExplainerError

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [(7, 5), (14, 10), (33, 64), (3, 2), (1, 1)])
@pytest.mark.parametrize(("mode", "reference"), [("bilinear", "bilinear"), ("nearest", "nearest-exact")])
def test_a_picture_seen_whole_is_interpolated_as_torch_does(size, mode, reference):
    maps = torch.randn(2, 3, 7, 5, generator=torch.Generator().manual_seed(1))
    expected = F.interpolate(maps, size, mode=reference)
    torch.testing.assert_close(lay(maps, [Frame.whole((50, 40))] * 2, size, mode=mode), expected)


def test_a_crop_is_filled_and_its_surroundings_are_zero():
    # A picture of 6 x 2 of which the model saw the middle 4 x 2. Four pixels across two map columns
    # lie at -0.25, 0.25, 0.75 and 1.25 columns, so they read 1, 1.5, 2.5 and 3.
    heat = lay(torch.tensor([[[[1.0, 3.0]]]]), [Frame((6, 2), (1, 0, 5, 2))], (2, 6))
    row = [0.0, 1.0, 1.5, 2.5, 3.0, 0.0]
    assert heat.tolist() == [[[row, row]]]


def test_padding_is_cut_off():
    # The input reaches two pixels beyond a picture of 4 x 1 on either side: of its eight pixels, which
    # read 1, 1.25, 1.75 ... across two map columns 0 and 4, the middle four are on the picture.
    heat = lay(torch.tensor([[[[0.0, 4.0]]]]), [Frame((4, 1), (-2, 0, 6, 1))], (1, 4))
    assert heat.tolist() == [[[[0.5, 1.5, 2.5, 3.5]]]]


def test_a_frame_may_begin_between_pixels():
    # Edges at 0.75 and 2.75: the centres 1.5 and 2.5 are inside, at 0.375 and 0.875 of the box, which
    # is 0.25 and 1.25 columns; the latter lies behind the last column's centre.
    heat = lay(torch.tensor([[[[0.0, 8.0]]]]), [Frame((4, 1), (0.75, 0, 2.75, 1))], (1, 4))
    assert heat.tolist() == [[[[0.0, 2.0, 8.0, 0.0]]]]


def test_each_picture_has_its_own_frame_which_scales():
    maps = torch.tensor([[[[5.0]]], [[[7.0]]]])
    heat = lay(maps, [Frame((2, 1), (0, 0, 1, 1)), Frame((20, 10), (10, 0, 20, 10))], (1, 4))
    assert heat.tolist() == [[[[5, 5, 0, 0]]], [[[0, 0, 7, 7]]]]


def test_ranges_are_taken_over_the_seen_part_after_interpolation():
    # Only the right half of the input is on the picture, where the map goes from 2.5 to 3 - or rather
    # from -1 to 3 across four columns read at their centres.
    maps = torch.tensor([[[[-8.0, -8.0, -1.0, 3.0]]]])
    frame = [Frame((2, 1), (-2, 0, 2, 1))]
    assert lay(maps, frame, (1, 2)).tolist() == [[[[-1.0, 3.0]]]]
    assert lay(maps, frame, (1, 2), "minmax").tolist() == [[[[0.0, 1.0]]]]
    torch.testing.assert_close(lay(maps, frame, (1, 2), "symmetric"), torch.tensor([[[[-1 / 3, 1.0]]]]))


@settings(deadline=None)
@given(frames(), st.floats(-(2.0**100), 2.0**100, width=32), st.sampled_from(["minmax", "symmetric"]))
def test_a_constant_map_is_normalised_to_zero(frame: Frame, value: float, how: str):
    maps = torch.full((1, 1, 3, 5), value)
    assert flat(maps).all()
    assert not lay(maps, [frame], frame.size, how).any()


@settings(deadline=None)
@given(frames(), values(1, 2, 3, 4))
def test_symmetric_heat_keeps_signs_and_the_hottest_pixel(frame: Frame, maps: Tensor):
    raw, heat = lay(maps, [frame], frame.size), lay(maps, [frame], frame.size, "symmetric")
    for before, after in zip(raw[0], heat[0], strict=True):
        if after.any():
            assert after.abs().max() == 1
            assert after.flatten()[before.argmax()] == after.max()
            assert torch.all((after.sign() == before.sign()) | (before.abs() < 1e-30))


@settings(deadline=None)
@given(frames(), values(1, 2, 3, 4), st.sampled_from(["minmax", "symmetric"]))
def test_normalised_heat_is_finite_and_in_range(frame: Frame, maps: Tensor, how: str):
    heat = lay(maps, [frame], frame.size, how)
    assert heat.isfinite().all()
    assert heat.min() >= (0 if how == "minmax" else -1)
    assert heat.max() <= 1
    assert not heat.masked_select(~seen([frame], frame.size, CPU)).any()
    if how == "minmax":
        assert {float(one.max()) for one in heat[0]} <= {0.0, 1.0}


@settings(deadline=None)
@given(values(1, 1, 3, 3))
def test_heat_lies_between_the_least_and_greatest_value(maps: Tensor):
    heat = lay(maps, [Frame.whole((10, 10))], (10, 10))
    assert maps.min() <= heat.min()
    assert heat.max() <= maps.max()


def test_rounding_is_not_stretched_to_a_pattern():
    maps = torch.full((1, 1, 2, 2), 0.25)
    maps[0, 0, 0, 0] = torch.nextafter(maps[0, 0, 0, 0], torch.tensor(1.0))
    assert flat(maps).tolist() == [[True]]
    assert not lay(maps, [Frame.whole((4, 4))], (4, 4), "minmax").any()


def test_a_crop_too_thin_for_a_pixel_gives_no_heat():
    frames = [Frame((100, 100), (49, 0, 51, 100))]
    assert not lay(torch.rand(1, 1, 2, 2), frames, (4, 4), "minmax").any()
    assert not seen(frames, (4, 4), CPU).any()


def test_seen_marks_the_pixels_whose_centre_is_in_the_frame():
    marks = seen([Frame((4, 2), (0.5, 0, 2.4, 1)), Frame.whole((2, 2))], (2, 4), CPU)
    assert marks.int().tolist() == [[[[1, 1, 0, 0], [0, 0, 0, 0]]], [[[1, 1, 1, 1], [1, 1, 1, 1]]]]


def test_gradients_flow_through_and_inference_tensors_are_welcome():
    maps = torch.ones(1, 1, 2, 2, requires_grad=True)
    lay(maps, [Frame.whole((4, 4))], (4, 4)).sum().backward()
    assert maps.grad.tolist() == [[[[4, 4], [4, 4]]]]
    with torch.inference_mode():
        made = torch.ones(1, 1, 2, 2)
    assert lay(made, [Frame.whole((4, 4))], (4, 4)).sum() == 16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 4),), "size is (height, width) in pixels, such as (480, 640); got (0, 4)"),
        (((4, 4, 4),), "size is (height, width) in pixels, such as (480, 640); got (4, 4, 4)"),
        (((4, 4), "max"), "normalize is None, 'minmax' or 'symmetric'; got 'max'"),
        (((4, 4), None, "bicubic"), "mode is 'bilinear' or 'nearest'; got 'bicubic'"),
    ],
)
def test_impossible_requests_are_refused(arguments, message):
    with pytest.raises(ExplainerError) as error:
        lay(torch.rand(1, 1, 2, 2), [Frame.whole((4, 4))], *arguments)
    assert said(error) == message
