"""The metrics against their definitions, on maps made by hand, and for every map what must always hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision, binary_precision_recall_curve

from bench import literal
from explainer.bench import Truth
from explainer_registry import registry

Metric = Callable[[Tensor, Truth], Tensor]

NAMES = ("average_precision", "energy", "iou", "iou_best", "pointing")


def metric(name: str, **options: Any) -> Metric:
    catalogue = registry().metrics
    run, config = catalogue.load(name), catalogue.get(name).schema(**options)
    return lambda heat, truth: run(config, heat, truth)


def truth(mask: Any, valid: Any = None) -> Truth:
    mask = torch.tensor(mask, dtype=torch.bool)
    return Truth(mask, torch.ones_like(mask) if valid is None else torch.tensor(valid, dtype=torch.bool))


@st.composite
def cases(draw: st.DrawFn, tied: bool | None = None) -> tuple[Tensor, Truth]:
    """A heat of up to 6 x 6 pixels, an object that is not everything, and some pixels that do not count."""
    height, width = draw(st.integers(1, 6)), draw(st.integers(2, 6))
    if tied is None:
        tied = draw(st.booleans())
    value = st.integers(-3, 3) if tied else st.floats(-1e6, 1e6, width=32, allow_subnormal=False)
    count = height * width
    heat = torch.tensor(draw(st.lists(value, min_size=count, max_size=count)), dtype=torch.float32)
    bits = st.lists(st.booleans(), min_size=count, max_size=count)
    mask, valid = torch.tensor(draw(bits)), torch.tensor(draw(bits))
    mask[0], mask[1] = True, False
    valid[:2] = True
    order = torch.tensor(draw(st.permutations(range(count))))
    shape = (height, width)
    return heat[order].view(shape), Truth(mask[order].view(shape), valid[order].view(shape))


def counted(heat: Tensor, truth: Truth) -> literal.Pixels:
    return literal.pixels(heat.tolist(), truth.mask.tolist(), truth.valid.tolist())


quickly = settings(deadline=None, max_examples=60)


class TestDefinitions:
    @given(cases())
    @quickly
    def test_pointing(self, case: tuple[Tensor, Truth]) -> None:
        assert float(metric("pointing")(*case)) == pytest.approx(literal.pointing(counted(*case)), abs=1e-9)

    @given(cases())
    @quickly
    def test_energy(self, case: tuple[Tensor, Truth]) -> None:
        assert float(metric("energy")(*case)) == pytest.approx(literal.energy(counted(*case)), abs=1e-9)

    @given(cases(), st.sampled_from([0.0, 0.1, 0.5, 0.7, 1.0]))
    @quickly
    def test_iou(self, case: tuple[Tensor, Truth], threshold: float) -> None:
        expected = literal.iou(counted(*case), threshold)

        assert float(metric("iou", threshold=threshold)(*case)) == pytest.approx(expected, abs=1e-6)

    @given(cases(), st.integers(1, 12))
    @quickly
    def test_iou_best(self, case: tuple[Tensor, Truth], steps: int) -> None:
        found = metric("iou_best", steps=steps)(*case)

        expected = [literal.iou(counted(*case), k / steps) for k in range(steps)]
        assert found.tolist() == pytest.approx(expected, abs=1e-6)

    @given(cases())
    @quickly
    def test_average_precision(self, case: tuple[Tensor, Truth]) -> None:
        expected = literal.average_precision(counted(*case))

        assert float(metric("average_precision")(*case)) == pytest.approx(expected, abs=1e-5)

    @given(cases())
    @quickly
    def test_iou_at_many_thresholds_is_what_torchmetrics_counts(self, case: tuple[Tensor, Truth]) -> None:
        heat, truth = case
        values = torch.tensor([value for value, _ in literal.scaled(counted(heat, truth))], dtype=torch.float64)
        thresholds = torch.arange(10, dtype=torch.float64) / 10
        precision, recall, _ = binary_precision_recall_curve(
            values, truth.mask[truth.valid].long(), thresholds=thresholds
        )

        found = metric("iou_best", steps=10)(heat, truth)
        # 1/IoU = 1/precision + 1/recall - 1; where nothing is hit all three are 0, or precision is undefined.
        expected = (1 / (1 / precision + 1 / recall - 1))[:-1].nan_to_num(0)
        assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6)


class TestByHand:
    MASK = ((1, 1, 0, 0), (1, 1, 0, 0))

    @pytest.mark.parametrize(
        ("name", "heat", "expected"),
        [
            ("pointing", ((0, 9, 0, 0), (0, 0, 0, 0)), 1.0),
            ("pointing", ((0, 0, 9, 0), (0, 0, 0, 0)), 0.0),
            ("pointing", ((9, 0, 9, 9), (0, 0, 0, 0)), 1 / 3),
            ("pointing", ((-1, -2, -3, -4), (-5, -6, -7, -8)), 1.0),
            ("energy", ((3, 0, 1, 0), (0, 0, 0, 0)), 0.75),
            # Signed heat: the coldest pixel is 0.
            ("energy", ((1, -1, 0, -1), (-1, -1, -1, -1)), 2 / 3),
            # At least half of the way from -2 to 2: two pixels on the object, one beside it.
            ("iou", ((2, 0, 1, -2), (-1, -2, -2, -2)), 2 / 5),
            # From the hottest: on, off, on, off, on, on.
            ("average_precision", ((8, 6, 7, 5), (4, 3, 2, 1)), (1 + 2 / 3 + 3 / 5 + 4 / 6) / 4),
        ],
    )
    def test_a_value(self, name: str, heat: Any, expected: float) -> None:
        found = metric(name)(torch.tensor(heat, dtype=torch.float32), truth(self.MASK))

        assert float(found) == pytest.approx(expected, abs=1e-6)

    def test_the_threshold_counts_what_is_equal(self) -> None:
        heat = torch.tensor([[0.0, 1.0, 2.0]])

        assert float(metric("iou", threshold=0.5)(heat, truth([[0, 1, 1]]))) == 1.0
        assert metric("iou_best", steps=2)(heat, truth([[0, 1, 1]])).tolist() == pytest.approx([2 / 3, 1])

    @pytest.mark.parametrize("value", [0.0, -7.5, 1e30])
    def test_a_constant_map_is_at_chance(self, value: float) -> None:
        heat, half = torch.full((2, 4), value), truth(self.MASK)

        for name in ("pointing", "energy", "average_precision"):
            assert float(metric(name)(heat, half)) == pytest.approx(0.5)
        assert float(metric("iou")(heat, half)) == 0
        assert metric("iou_best", steps=3)(heat, half).tolist() == [0.5, 0, 0]

    def test_a_perfect_map_gets_all_there_is(self) -> None:
        perfect = truth(self.MASK)

        for name in NAMES:
            assert float(metric(name)(perfect.mask.float(), perfect).max()) == pytest.approx(1)

    def test_torchmetrics_alone_would_merge_what_is_far_from_zero(self) -> None:
        heat, there = torch.tensor([[31.0, 30.0, 29.0]]), truth([[1, 0, 0]])

        assert float(binary_average_precision(heat[0], there.mask[0].long())) == pytest.approx(1 / 3)
        assert float(metric("average_precision")(heat, there)) == 1

    def test_values_of_all_sizes_keep_their_order(self) -> None:
        heat = torch.tensor([[-1e30, 3e-30, 2e-30, 1e-30]])

        assert float(metric("average_precision")(heat, truth([[0, 1, 0, 0]]))) == 1
        assert float(metric("average_precision")(heat, truth([[0, 0, 1, 0]]))) == 0.5


class TestAlways:
    @given(cases())
    @quickly
    def test_values_lie_between_none_and_all(self, case: tuple[Tensor, Truth]) -> None:
        for name in NAMES:
            found = metric(name)(*case)
            assert bool(((found >= 0) & (found <= 1)).all())
            assert tuple(found.shape) == ((100,) if name == "iou_best" else ())

    @given(cases())
    @quickly
    def test_pixels_that_do_not_count_change_nothing(self, case: tuple[Tensor, Truth]) -> None:
        heat, truth = case
        other = torch.where(truth.valid, heat, 7e6 - heat)
        elsewhere = Truth(truth.mask ^ ~truth.valid, truth.valid)

        for name in NAMES:
            assert torch.equal(metric(name)(heat, truth), metric(name)(other, elsewhere))

    @given(cases(), st.lists(st.integers(1, 1000), min_size=36, max_size=36), st.integers(-(10**5), 10**5))
    @quickly
    def test_only_the_order_matters_to_some(self, case: tuple[Tensor, Truth], steps: list[int], start: int) -> None:
        heat, truth = case
        # Any increasing function: each distinct value becomes a whole number, and equal ones the same.
        rising = torch.tensor(steps).cumsum(0) + start
        other = rising[torch.unique(heat, return_inverse=True)[1]].float()

        for name in ("average_precision", "pointing"):
            assert torch.equal(metric(name)(heat, truth), metric(name)(other, truth))

    @given(cases(tied=True), st.sampled_from([0.25, 1.0, 4.0]), st.integers(-50, 50))
    @quickly
    def test_zero_and_scale_matter_to_none(self, case: tuple[Tensor, Truth], scale: float, shift: int) -> None:
        heat, truth = case

        for name in NAMES:
            assert torch.equal(metric(name)(heat, truth), metric(name)(scale * heat + shift, truth))

    @given(cases())
    @quickly
    def test_the_share_of_the_area_is_always_within_reach(self, case: tuple[Tensor, Truth]) -> None:
        _, truth = case
        area = truth.mask[truth.valid].double().mean()

        assert float(metric("iou_best")(*case)[0]) == pytest.approx(float(area))
