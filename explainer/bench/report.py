"""The results in words and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from explainer.bench.results import EncoderResult, MethodResult, Results
from explainer.bench.statistics import ALL, LEVEL, RESAMPLES, Figure
from explainer.naming import counted, listing

LEGEND = (
    f"[low, high]: interval of {LEVEL:.0%} ({RESAMPLES} resamples of the pictures); * it lies above those of both "
    "controls"
)

Table = tuple[list[str], list[list[str]]]
"""Headings and rows."""


def recognition(results: Results) -> Table:
    """Tell how well each model knows what is in the pictures.

    Returns:
        A row for each model.
    """
    groups = list(dict.fromkeys(group for one in results.encoders for group in one.recognition.top if group != ALL))
    headings = ["model", "best label is in the picture", *groups, "average precision of presence", "labels"]
    rows: list[list[str]] = []
    for one in results.encoders:
        found = one.recognition
        by_group = [f"{found.top[group].mean:.3f}" if group in found.top else "-" for group in groups]
        rows.append([one.name, interval(found.top[ALL]), *by_group, interval(found.precision), str(found.labels)])
    return headings, rows


def scores(results: Results, encoder: EncoderResult, times: bool) -> Table:
    """Tell how well the maps of each method lie on the objects.

    Args:
        results: All results.
        encoder: Those of one model.
        times: Whether to tell how long the methods took, too.

    Returns:
        A row for each method and control, the best first.
    """
    headings = ["method", *results.metrics, *(["time in forwards"] if times else [])]
    return headings, [_row(results, encoder, method, times) for method in encoder.methods]


def by_group(encoder: EncoderResult, metric: str) -> Table | None:
    """Tell how well the maps of each method lie on the objects of each group; None where there are no groups."""
    groups = sorted({group for method in encoder.methods for group in method.figures.get(metric, ())} - {ALL})
    if not groups:
        return None
    rows = [[_title(method), *_means(method.figures.get(metric, {}), groups)] for method in encoder.methods]
    return ["method", *groups], rows


def heading(encoder: EncoderResult) -> str:
    """Name a model."""
    height, width = encoder.size
    return f"{encoder.name}, weights: {encoder.weights}, input {height} x {width}"


def notes(encoder: EncoderResult) -> list[str]:
    """Tell what whoever reads the figures of a model must know.

    Returns:
        Sentences.
    """
    told = list(encoder.warnings)
    if encoder.unseen:
        told.append(f"left out: {counted(encoder.unseen, 'object')} of which the model sees nothing")
    if encoder.filling:
        told.append(f"left out: {counted(encoder.filling, 'object')} without a pixel around it that the model sees")
    for method in encoder.methods:
        for reason, names in method.failures.items():
            told.append(f"{method.name} failed on {counted(len(names), 'picture')} ({listing(names)}): {reason}")
        if method.constant:
            told.append(
                f"{method.name}: {method.constant} of {counted(method.objects, 'map')} constant; what is the same "
                "everywhere points nowhere and counts as chance"
            )
    return told


def interval(figure: Figure) -> str:
    """Write a figure: "0.412 [0.380, 0.444]"."""
    return f"{figure.mean:.3f} [{figure.low:.3f}, {figure.high:.3f}]"


def _row(results: Results, encoder: EncoderResult, method: MethodResult, times: bool) -> list[str]:
    row = [_title(method)]
    for metric in results.metrics:
        figures = method.figures.get(metric)
        mark = " *" if metric in method.above_controls else ""
        row.append(interval(figures[ALL]) + mark if figures else "-")
    if times:
        time = results.time(encoder.name, method.name)
        row.append(f"{time.ratio:.1f}" if time else "-")
    return row


def _title(method: MethodResult) -> str:
    if method.control:
        return f"{method.name} (control)"
    return f"{method.name} (failed on {method.failed})" if method.failed else method.name


def _means(figures: Mapping[str, Figure], groups: Sequence[str]) -> list[str]:
    return [f"{figures[group].mean:.3f}" if group in figures else "-" for group in groups]
