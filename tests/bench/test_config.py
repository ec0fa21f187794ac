"""What describes a benchmark, and the errors that say what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from explainer.bench.config import label, make_bench, portable
from explainer.selection import select
from explainer_registry import ExplainerError

pytestmark = pytest.mark.usefixtures("squares")


def message(call: Callable[[], Any]) -> str:
    with pytest.raises(ExplainerError) as caught:
        call()
    return str(caught.value)


def test_defaults() -> None:
    run = make_bench({"encoders": ["tiny"]})

    assert (run.data.name, run.methods, run.metrics, run.pictures) == ("stickers", None, None, None)
    assert (run.seed, run.out) == (0, Path("explainer-bench"))


def test_a_benchmark_can_be_written_down_and_read_again() -> None:
    run = make_bench({"encoders": ["tiny"], "methods": ["gem"], "data": {"name": "squares", "count": 2}})

    assert make_bench(run.model_dump()) == run
    assert make_bench(run.model_dump(mode="json")) == run


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"encoders": []}, "encoders: expected a list of at least one entry (given: []); begin each entry on a line of "
         "its own with '- '"),
        ({"pictures": 0}, "pictures: Input should be greater than or equal to 1 (given: 0)"),
        ({"seed": -1}, "seed: Input should be greater than or equal to 0 (given: -1)"),
        ({"methods": ["gem", "gem"]}, "methods: 'gem' is given twice with the same settings; give it once"),
        (
            {"methods": [{"name": "gem", "depth": 3}, "gem", {"name": "gem", "depth": 3}]},
            "methods: 'gem depth=3' is given twice with the same settings; give it once",
        ),
        ({"metrics": ["iou", "iou"]}, "metrics: 'iou' is given twice with the same settings; give it once"),
        (
            {"metrics": ["pionting"]},
            "metrics.0: no metric named 'pionting'; did you mean 'pointing'? (available: average_precision, energy, "
            "grows, iou, iou_best, nan, pointing, square, two)",
        ),
        (
            {"data": "sqares"},
            "data: no dataset named 'sqares'; did you mean 'squares'? (available: coco, squares, stickers, voc); nor "
            "is there a file or folder of this name",
        ),
        ({"data": "no/such/place"}, "data: there is no file or folder 'no/such/place'"),
        (
            {"encoder": "tiny"},
            "encoder: no such setting of 'bench'; did you mean 'encoders'? (settings: encoders, methods, data, "
            "pictures, metrics, templates, seed, out)",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(fields: dict[str, Any], said: str) -> None:
    assert message(lambda: make_bench({"encoders": ["tiny"], **fields})) == said


def test_several_settings_of_one_method() -> None:
    run = make_bench({"encoders": ["tiny"], "methods": ["gem", {"name": "gem", "depth": 3}]})

    assert [label(method) for method in run.methods or ()] == ["gem", "gem depth=3"]


@pytest.mark.parametrize(
    ("options", "name"),
    [({}, "iou"), ({"threshold": 0.5}, "iou threshold=0.5"), ({"threshold": 0.25}, "iou threshold=0.25")],
)
def test_a_label_tells_what_was_given(options: dict[str, Any], name: str) -> None:
    assert label(select("metrics", "iou", options)) == name


def test_a_path_alone_is_read_by_the_dataset_that_takes_it(tmp_path: Path) -> None:
    (tmp_path / "SegmentationClass").mkdir()

    for given in (tmp_path, str(tmp_path), f"voc:{tmp_path}"):
        run = make_bench({"encoders": ["tiny"], "data": given})
        assert (run.data.name, run.data.options.source) == ("voc", tmp_path)


def test_paths_of_this_machine_are_not_told() -> None:
    root = Path.cwd().anchor

    settings = {"source": f"{root}home/me/VOC", "n": 3, "list": [f"{root}a/b.png", "c/d"], "home": "~/x"}

    assert portable(settings) == {"source": "VOC", "n": 3, "list": ["b.png", "c/d"], "home": "x"}
