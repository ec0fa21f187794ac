"""The files and tables of results, word by word."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from explainer.bench import report
from explainer.bench.results import EncoderResult, MethodResult, Recognition, Results, Time
from explainer.bench.statistics import ALL, Figure
from explainer_registry import ExplainerError

GROUP = "1 object"


def figure(mean: float, width: float = 0.1, setting: int | None = None) -> Figure:
    return Figure(mean, mean - width, mean + width, setting)


def method(name: str, mean: float, *, control: bool = False, **fields: object) -> MethodResult:
    figures = {"iou_best": {ALL: figure(mean, setting=3), GROUP: figure(mean + 0.05, setting=3)}}
    plain = {"name": name, "settings": None if control else {"depth": 7}, "figures": figures}
    return MethodResult(**{**plain, "objects": 4, "constant": 0, **fields})


ENCODER = EncoderResult(
    name="tiny",
    weights="random",
    size=(32, 48),
    recognition=Recognition({ALL: figure(0.75), GROUP: figure(0.5)}, figure(2 / 3), 3, 2),
    methods=(
        method("gem depth=7", 0.5, above_controls=frozenset({"iou_best"})),
        method("a|b", 0.4, constant=3, failures={"too dark": ("two", "three")}),
        method("random", 0.2, control=True),
        method("refuses", 0, figures={}, objects=0, failures={"it cannot work": ("one", "two", "three")}),
    ),
    objects=4,
    unseen=1,
    filling=2,
    unknown=("cow",),
    warnings=("its weights are random",),
)
RESULTS = Results(
    dataset="pets",
    pictures=3,
    metrics={"iou_best": {"name": "iou_best", "steps": 100}},
    definitions={"iou_best": "At the best threshold. (Nobody 2020)"},
    settings={"data": {"name": "pets"}, "seed": 5},
    versions={"torch": "2.6"},
    encoders=(ENCODER,),
    times=(Time("tiny", "gem depth=7", 0.03, 0.02, 3), Time("tiny", "a|b", 0.5, 0.02, 1)),
)


def test_markdown(tmp_path: Path) -> None:
    RESULTS.save(tmp_path)

    assert (
        (tmp_path / "scores.md").read_text()
        == """\
# Maps against the true masks of pets

3 pictures, seed 5. Settings and versions are in scores.json.

## Recognition

| model | best label is in the picture | 1 object | average precision of presence | labels |
| --- | --- | --- | --- | --- |
| tiny | 0.750 [0.650, 0.850] | 0.500 | 0.667 [0.567, 0.767] | 3 |

## tiny, weights: random, input 32 x 48

4 objects. [low, high]: interval of 95% (1000 resamples of the pictures); * it lies above those of both controls.

| method | iou_best |
| --- | --- |
| gem depth=7 | 0.500 [0.400, 0.600] * |
| a\\|b (failed on 2) | 0.400 [0.300, 0.500] |
| random (control) | 0.200 [0.100, 0.300] |
| refuses (failed on 3) | - |

- its weights are random
- left out: 1 object of which the model sees nothing
- left out: 2 objects without a pixel around it that the model sees
- a\\|b failed on 2 pictures ('two', 'three'): too dark
- a\\|b: 3 of 4 maps constant; what is the same everywhere points nowhere and counts as chance
- refuses failed on 3 pictures ('one', 'two', 'three'): it cannot work

### iou_best, by group

| method | 1 object |
| --- | --- |
| gem depth=7 | 0.550 |
| a\\|b (failed on 2) | 0.450 |
| random (control) | 0.250 |
| refuses (failed on 3) | - |

## What is measured

- `iou_best`: At the best threshold. (Nobody 2020)
"""
    )


def test_csv(tmp_path: Path) -> None:
    RESULTS.save(tmp_path)

    with (tmp_path / "scores.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["method"], row["metric"], row["group"]) for row in rows] == [
        ("recognition", "top_label", ""),
        ("recognition", "top_label", GROUP),
        ("recognition", "presence", ""),
        ("gem depth=7", "iou_best", ""),
        ("gem depth=7", "iou_best", GROUP),
        ("a|b", "iou_best", ""),
        ("a|b", "iou_best", GROUP),
        ("random", "iou_best", ""),
        ("random", "iou_best", GROUP),
        ("refuses", "", ""),
    ]
    assert rows[2]["mean"] == "0.666667"
    assert list(rows[3].values()) == [
        *("tiny", "gem depth=7", "0", "iou_best", "", "0.5", "0.4", "0.6", "3", "1", "4", "0", "0")
    ]
    assert list(rows[-1].values()) == ["tiny", "refuses", "0", *[""] * 7, "0", "0", "3"]


def test_json(tmp_path: Path) -> None:
    RESULTS.save(tmp_path)

    document = json.loads((tmp_path / "scores.json").read_text())
    assert list(document) == ["dataset", "settings", "metrics", "versions", "encoders"]
    (encoder,) = document["encoders"]
    assert encoder["size"] == [32, 48]
    assert encoder["recognition"]["precision"]["mean"] == 0.666667
    assert encoder["unknown"] == ["cow"]
    gem, ab, random, _ = encoder["methods"]
    assert gem["figures"]["iou_best"]["all"] == {"mean": 0.5, "low": 0.4, "high": 0.6, "setting": 3}
    assert (gem["above_controls"], gem["control"], gem["settings"]) == (["iou_best"], False, {"depth": 7})
    assert ab["failures"] == {"too dark": ["two", "three"]}
    assert (random["control"], random["settings"]) == (True, None)


def test_times_go_into_a_file_of_their_own(tmp_path: Path) -> None:
    files = RESULTS.save(tmp_path / "new" / "folder")

    assert [file.name for file in files] == ["scores.md", "scores.csv", "scores.json", "times.csv"]
    assert files[3].read_text().splitlines() == [
        "encoder,method,call_seconds,forward_seconds,forwards,calls",
        "tiny,gem depth=7,0.030000,0.020000,1.500,3",
        "tiny,a|b,0.500000,0.020000,25.000,1",
    ]
    replace(RESULTS, times=()).save(tmp_path / "other")
    for file in files[:3]:
        assert file.read_bytes() == (tmp_path / "other" / file.name).read_bytes()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ExplainerError) as caught:
        RESULTS.save(tmp_path / "file" / "folder")
    assert str(caught.value) == f"cannot write to '{tmp_path / 'file' / 'folder'}': Not a directory"


def test_the_table_of_a_terminal_has_times() -> None:
    headings, rows = report.scores(RESULTS, ENCODER, times=True)

    assert headings == ["method", "iou_best", "time in forwards"]
    assert [row[-1] for row in rows] == ["1.5", "25.0", "-", "-"]


def test_models_of_other_groups_stand_in_one_table() -> None:
    other = replace(ENCODER, name="other", recognition=Recognition({ALL: figure(1), "2": figure(1)}, figure(1), 9, 9))

    headings, rows = report.recognition(replace(RESULTS, encoders=(ENCODER, other)))

    assert headings[2:4] == [GROUP, "2"]
    assert [row[2:4] for row in rows] == [["0.500", "-"], ["-", "1.000"]]


def test_without_groups_there_is_no_table_of_them() -> None:
    plain = replace(ENCODER, methods=(method("gem", 0.5, figures={"iou_best": {ALL: figure(0.5)}}),))

    assert report.by_group(plain, "iou_best") is None


def test_parts_are_found_by_name() -> None:
    assert RESULTS["tiny"]["a|b"].failed == 2
    for missing in (lambda: RESULTS["tini"], lambda: ENCODER["gme"]):
        with pytest.raises(KeyError):
            missing()
