"""From what was observed to figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

import numpy as np
import torch

from explainer.bench.config import dumped, portable
from explainer.bench.ranking import average_precision
from explainer.bench.results import BenchError, EncoderResult, MethodResult, Recognition, Time
from explainer.bench.statistics import ALL, Figure, figure, figures, precision, resampled
from explainer.bench.trial import Tally, Trial
from explainer_registry import Selected


def encoder_result(trial: Trial, metrics: Sequence[str], seed: int, warnings: Sequence[str]) -> EncoderResult:
    """Sum up what was observed of a model.

    Args:
        trial: What was observed.
        metrics: Names of the metrics; the first says which method is the best.
        seed: Of the intervals.
        warnings: What else whoever reads the figures must know.

    Raises:
        BenchError: Nothing was observed.
    """
    encoder = trial.explainer.encoder
    if not trial.objects:
        raise BenchError(_nothing(trial))
    controls = [_result(name, None, tally, metrics, seed) for name, tally in trial.controls.items()]
    found = [_result(name, trial.methods[name], tally, metrics, seed) for name, tally in trial.tallies.items()]
    marked = [replace(result, above_controls=_above(result, controls)) for result in found]
    return EncoderResult(
        name=trial.name,
        weights=portable(encoder.weights),
        size=encoder.preprocess.size,
        recognition=recognition(trial, seed),
        methods=tuple(sorted([*marked, *controls], key=lambda result: _rank(result, metrics[0]))),
        objects=trial.objects,
        unseen=trial.unseen,
        filling=trial.filling,
        unknown=tuple(trial.vocabulary.unknown),
        warnings=(*encoder.warnings, *warnings),
    )


def times(trial: Trial) -> list[Time]:
    """Sum up how long the methods took on a model."""
    forward = median(trial.seconds)
    timed = {name: trial.tallies[name].seconds for name in trial.methods}
    return [
        Time(trial.name, name, median(seconds), forward, len(seconds)) for name, seconds in timed.items() if seconds
    ]


def recognition(trial: Trial, seed: int) -> Recognition:
    """Sum up how well a model knows what is in the pictures.

    The average precision is that of each label over the pictures, by the raw score, averaged over the labels that are
    in a picture; in a resample, over those that are in a picture of it.

    Args:
        trial: What was observed.
        seed: Of the intervals.
    """
    logits, shown = np.array(trial.logits), np.array(trial.shown)
    pictures = range(len(logits))
    best = shown[pictures, logits.argmax(axis=1)]
    top = figures(best[:, None].astype(np.float64), pictures, trial.groups, seed)
    there = np.flatnonzero(shown.any(axis=0))
    drawn = resampled(len(logits), seed)
    asked, answers = torch.tensor(trial.logits, dtype=torch.float64), torch.tensor(trial.shown)
    means = [float(average_precision(asked[:, t], answers[:, t])) for t in there]
    spread = np.stack([precision(logits[:, t], shown[:, t], drawn) for t in there])
    mean, resamples = sum(means) / len(means), np.nanmean(spread, axis=0)
    # Two copies of a picture stand at one rank and lift each other, so that all resamples lie too high.
    resamples += mean - resamples.mean()
    return Recognition(top, figure(mean, resamples), logits.shape[1], len(there))


def _result(name: str, selected: Selected | None, tally: Tally, metrics: Sequence[str], seed: int) -> MethodResult:
    measured: dict[str, dict[str, Figure]] = {}
    if tally.pictures:
        measured = {metric: _figures(tally, metric, seed) for metric in metrics}
    return MethodResult(
        name=name,
        settings=None if selected is None else dumped(selected),
        figures=measured,
        objects=len(tally.pictures),
        constant=tally.constant,
        failures={reason: tuple(names) for reason, names in tally.failures.items()},
    )


def _above(result: MethodResult, controls: Sequence[MethodResult]) -> frozenset[str]:
    """Name the metrics whose interval lies above those of all controls; one that touches another does not."""
    return frozenset(
        metric
        for metric, figures in result.figures.items()
        if all(figures[ALL].low > control.figures[metric][ALL].high for control in controls)
    )


def _figures(tally: Tally, metric: str, seed: int) -> dict[str, Figure]:
    return figures(np.array(tally.values[metric]), tally.pictures, tally.groups, seed)


def _rank(result: MethodResult, metric: str) -> tuple[float, str]:
    """Sort the highest mean first, and what has none last."""
    return (-result.figures[metric][ALL].mean if result.figures else 1.0), result.name


def _nothing(trial: Trial) -> str:
    """Say why a model was asked nothing."""
    for tally in trial.tallies.values():
        for reason in tally.failures:
            return f"{trial.name} could not be run on any picture: {reason}"
    return (
        f"there is nothing to measure {trial.name} on: of {trial.unseen} objects it sees nothing, and {trial.filling} "
        "fill all that it sees"
    )
