"""The files of a benchmark."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from explainer.bench import report
from explainer.bench.results import BenchError, EncoderResult, MethodResult, Results
from explainer.bench.statistics import ALL, Figure

_DIGITS = 6


def write(results: Results, folder: Path) -> list[Path]:
    """Write the files.

    Args:
        results: What was found.
        folder: Where.

    Returns:
        The files.

    Raises:
        BenchError: They cannot be written.
    """
    texts = {
        "scores.md": _markdown(results),
        "scores.csv": _csv(_COLUMNS, _score_rows(results)),
        "scores.json": json.dumps(_document(results), indent=1, ensure_ascii=False) + "\n",
        "times.csv": _csv(_TIME_COLUMNS, _time_rows(results)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise BenchError(f"cannot write to '{folder}': {error.strerror or error}") from error
    return [folder / name for name in texts]


_COLUMNS = (
    *("encoder", "method", "control", "metric", "group", "mean", "low", "high", "setting"),
    *("above_controls", "objects", "constant", "failed"),
)
_TIME_COLUMNS = ("encoder", "method", "call_seconds", "forward_seconds", "forwards", "calls")


def _score_rows(results: Results) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for encoder in results.encoders:
        for group, figure in encoder.recognition.top.items():
            rows.append([encoder.name, "recognition", "", "top_label", group, *_numbers(figure), "", "", "", ""])
        figure = encoder.recognition.precision
        rows.append([encoder.name, "recognition", "", "presence", ALL, *_numbers(figure), "", "", "", ""])
        for method in encoder.methods:
            rows += _method_rows(encoder, method)
    return rows


def _method_rows(encoder: EncoderResult, method: MethodResult) -> list[list[Any]]:
    counts = [method.objects, method.constant, method.failed]
    head = [encoder.name, method.name, int(method.control)]
    if not method.figures:
        return [[*head, *[""] * 7, *counts]]
    return [
        [*head, metric, group, *_numbers(figure), int(metric in method.above_controls) if group == ALL else "", *counts]
        for metric, figures in method.figures.items()
        for group, figure in figures.items()
    ]


def _numbers(figure: Figure) -> list[Any]:
    rounded = [round(number, _DIGITS) for number in (figure.mean, figure.low, figure.high)]
    return [*rounded, "" if figure.setting is None else figure.setting]


def _time_rows(results: Results) -> list[list[Any]]:
    return [
        [time.encoder, time.method, f"{time.call:.6f}", f"{time.forward:.6f}", f"{time.ratio:.3f}", time.calls]
        for time in results.times
    ]


def _csv(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()


def _document(results: Results) -> dict[str, Any]:
    return {
        "dataset": results.dataset,
        "settings": results.settings,
        "metrics": results.metrics,
        "versions": results.versions,
        "encoders": [_encoder(encoder) for encoder in results.encoders],
    }


def _encoder(encoder: EncoderResult) -> dict[str, Any]:
    plain: dict[str, Any] = _rounded(asdict(encoder))
    for method, written in zip(encoder.methods, plain["methods"], strict=True):
        written["above_controls"] = sorted(method.above_controls)
        written["control"] = method.control
    return plain


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key or "all": _rounded(part) for key, part in cast("dict[str, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(part) for part in cast("list[Any]", value)]
    return round(value, _DIGITS) if isinstance(value, float) else value


def _markdown(results: Results) -> str:
    lines = [f"# Maps against the true masks of {results.dataset}", "", _count(results), "", "## Recognition", ""]
    lines += [*_table(*report.recognition(results)), ""]
    for encoder in results.encoders:
        lines += [f"## {report.heading(encoder)}", "", f"{encoder.objects} objects. {report.LEGEND}.", ""]
        lines += [*_table(*report.scores(results, encoder, times=False)), ""]
        lines += [*(f"- {_escaped(note)}" for note in report.notes(encoder)), ""]
        for metric in results.metrics:
            if groups := report.by_group(encoder, metric):
                lines += [f"### {metric}, by group", "", *_table(*groups), ""]
    lines += ["## What is measured", ""]
    lines += [f"- `{name}`: {definition}" for name, definition in results.definitions.items()]
    return "\n".join(_without_double_gaps(lines)) + "\n"


def _count(results: Results) -> str:
    return f"{results.pictures} pictures, seed {results.settings['seed']}. Settings and versions are in scores.json."


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---"] * len(headings)
    return [f"| {' | '.join(map(_escaped, row))} |" for row in (headings, marks, *rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _without_double_gaps(lines: Sequence[str]) -> list[str]:
    return [line for line, before in zip(lines, ["-", *lines], strict=False) if line or before]
