"""Means and their intervals, against a bootstrap that is written out."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torchmetrics.functional.classification import multilabel_average_precision

from bench import literal
from explainer.bench.ranking import average_precision
from explainer.bench.statistics import ALL, RESAMPLES, Figure, figures, precision, resampled
from explainer.bench.summary import recognition


def objects(seed: int, settings: int) -> list[literal.Object]:
    """One to three objects in each of eight pictures of two groups; their numbers have gaps."""
    rng = np.random.default_rng(seed)
    return [
        (3 * picture + 1, f"group {picture % 2}", rng.random(settings).tolist())
        for picture in rng.permutation(8).tolist()
        for _ in range(1 + picture % 3)
    ]


def figured(found: list[literal.Object], seed: int = 0) -> dict[str, Figure]:
    pictures, groups, values = zip(*found, strict=True)
    return figures(np.array(values), pictures, groups, seed)


def test_as_many_pictures_are_drawn_as_there_are() -> None:
    drawn = resampled(7, 3)

    assert drawn.shape == (RESAMPLES, 7)
    assert set(drawn.sum(axis=1).tolist()) == {7}
    assert np.allclose(drawn.mean(axis=0), 1, atol=0.15)
    assert np.array_equal(drawn, resampled(7, 3))
    assert not np.array_equal(drawn, resampled(7, 4))


@pytest.mark.parametrize("settings", [1, 5])
@pytest.mark.parametrize("group", [ALL, "group 0", "group 1"])
def test_figures_are_those_of_a_bootstrap_written_out(settings: int, group: str) -> None:
    found = objects(settings, settings)
    inside = [one for one in found if not group or one[1] == group]
    setting = literal.best(found)

    figure = figured(found, seed=5)[group]

    ends = np.percentile(literal.resamples(found, resampled(8, 5).tolist(), group), [2.5, 97.5])
    assert figure.mean == pytest.approx(literal.mean(inside, setting))
    assert (figure.low, figure.high) == pytest.approx(ends.tolist())
    assert figure.setting == (setting if settings > 1 else None)


def test_the_objects_of_a_picture_stay_together() -> None:
    found: list[literal.Object] = [(picture, "", [float(picture)]) for picture in (0, 1) for _ in range(500)]

    assert figured(found) == {ALL: Figure(0.5, 0.0, 1.0)}


def test_each_resample_chooses_its_setting() -> None:
    # Either setting is right for half of the pictures; each resample takes the one that is right more often.
    found: list[literal.Object] = [(picture, "", [picture % 2, 1 - picture % 2]) for picture in range(20)]

    figure = figured(found)[ALL]

    assert (figure.mean, figure.setting) == (0.5, 0)
    assert figure.low == 0.5
    assert figure.high > 0.6


def test_one_picture_has_no_width() -> None:
    figure = figured([(4, "", [0.25]), (4, "", [0.75])])[ALL]

    assert (figure.mean, figure.low, figure.high) == (0.5, 0.5, 0.5)


def test_the_order_of_objects_does_not_matter() -> None:
    found = objects(0, 3)

    assert figured(found) == figured(sorted(found))


class TestPrecision:
    def ranked(self, tied: bool) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(tied)
        scores = rng.integers(-3, 4, 30).astype(float) if tied else 100 * rng.normal(size=30)
        return scores, rng.random(30) < 0.4

    @pytest.mark.parametrize("tied", [False, True])
    def test_it_counts_pictures_as_often_as_they_are_drawn(self, tied: bool) -> None:
        scores, shown = self.ranked(tied)
        drawn = resampled(30, 1)[:20]

        found = precision(scores, shown, drawn)

        repeated = [(np.repeat(scores, times), np.repeat(shown, times)) for times in drawn]
        expected = [literal.average_precision(list(zip(*(a.tolist() for a in pair), strict=True))) for pair in repeated]
        assert found.tolist() == pytest.approx(expected)

    @pytest.mark.parametrize("tied", [False, True])
    def test_of_the_pictures_as_they_are_it_is_what_torchmetrics_computes(self, tied: bool) -> None:
        scores, shown = self.ranked(tied)

        once = precision(scores, shown, np.ones((1, 30), dtype=int))

        values, there = torch.from_numpy(scores), torch.from_numpy(shown)
        assert float(once[0]) == pytest.approx(float(average_precision(values, there)), abs=1e-6)
        scaled = torch.stack([(values - values.min()) / (values.max() - values.min())] * 2, dim=1)
        both = multilabel_average_precision(scaled, torch.stack([there] * 2, dim=1).long(), num_labels=2)
        assert float(once[0]) == pytest.approx(float(both), abs=1e-6)

    def test_where_nothing_is_shown_there_is_none(self) -> None:
        drawn = np.array([[1, 1, 1], [0, 2, 1]])

        found = precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, False]), drawn)

        assert found[0] == 1
        assert np.isnan(found[1])


class TestRecognition:
    def observed(self, pictures: int = 60) -> SimpleNamespace:
        """A model that knows 4 of 5 labels more or less; the fifth is in no picture."""
        rng = np.random.default_rng(0)
        shown = rng.random((pictures, 5)) < [0.2, 0.3, 0.4, 0.5, 0]
        shown[:, 0] |= ~shown.any(axis=1)
        logits = 20 * (rng.normal(size=shown.shape) + 1.5 * shown)
        groups = [f"{count} objects" for count in shown.sum(axis=1).tolist()]
        return SimpleNamespace(logits=logits.tolist(), shown=shown.tolist(), groups=groups)

    def test_the_best_label_is_in_the_picture_or_not(self) -> None:
        trial = self.observed()

        found = recognition(trial, seed=2)

        best = [row.index(max(row)) for row in trial.logits]
        hits = [shown[label] for shown, label in zip(trial.shown, best, strict=True)]
        expected: list[literal.Object] = [(p, trial.groups[p], [float(hit)]) for p, hit in enumerate(hits)]
        assert found.top == figured(expected, seed=2)
        assert (found.labels, found.shown) == (5, 4)

    def test_presence_is_ranked_label_by_label(self) -> None:
        trial = self.observed()

        found = recognition(trial, seed=2)

        columns = [[row[label] for row in trial.logits] for label in range(4)]
        there = [[row[label] for row in trial.shown] for label in range(4)]
        areas = [literal.average_precision(list(zip(*pair, strict=True))) for pair in zip(columns, there, strict=True)]
        assert found.precision.mean == pytest.approx(sum(areas) / 4, abs=1e-6)
        assert found.precision.low < found.precision.mean < found.precision.high

    def test_the_interval_lies_around_the_figure_although_copies_lift_each_other(self) -> None:
        rng = np.random.default_rng(0)
        shown = np.arange(60)[:, None] % 20 == np.arange(20)
        logits = rng.normal(size=shown.shape) + shown
        trial = SimpleNamespace(logits=logits.tolist(), shown=shown.tolist(), groups=[""] * 60)
        drawn = resampled(60, 2)
        spread = np.nanmean([precision(logits[:, t], shown[:, t], drawn) for t in range(20)], axis=0)

        found = recognition(trial, seed=2).precision

        bias = spread.mean() - found.mean
        assert bias > 0.01
        assert (found.low, found.high) == pytest.approx((np.percentile(spread, [2.5, 97.5]) - bias).tolist())

    def test_a_model_that_always_knows(self) -> None:
        trial = self.observed()
        trial.logits = np.where(trial.shown, 1.0, -1.0).tolist()

        found = recognition(trial, seed=0)

        assert found.top[ALL] == Figure(1, 1, 1)
        assert (found.precision.mean, found.precision.low, found.precision.high) == pytest.approx((1, 1, 1))
