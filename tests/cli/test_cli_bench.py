"""`explainer bench`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from explainer_registry import Registry, use

FEW = ("bench", "--encoder", "tiny", "--data", "squares", "--scenes", "3")
METRICS = ("--metrics", "pointing,energy")


@pytest.fixture(autouse=True)
def _squares() -> Iterator[None]:
    extra = EntryPoint("squares", "tests.bench.squares", "explainer")
    with use(Registry.discover(entry_points=[*entry_points(group="explainer"), extra])):
        yield


def columns(line: str) -> list[str]:
    return re.split(r"\s{2,}", line.strip())


def test_what_is_printed(explainer) -> None:
    result = explainer(*FEW, *METRICS, "--methods", "finds,gem", "--method", "constant")

    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == ["squares: 3 pictures", "does the model know what is in them?"]
    assert columns(lines[2]) == [
        *("model", "best label is in the picture", "1 of 3", "2 of 3", "3 of 3", "average precision of presence"),
        "labels",
    ]
    assert columns(lines[3])[0] == "tiny"
    assert lines[4] == "tiny, weights: as given, input 32 x 32: maps of 6 objects"
    assert columns(lines[5]) == ["method", "pointing", "energy", "time in forwards"]
    rows = {columns(line)[0]: columns(line)[1:] for line in lines[6:11]}
    assert set(rows) == {"finds", "gem", "constant", "random (control)", "centre (control)"}
    assert columns(lines[6])[:2] == ["finds", "1.000 [1.000, 1.000] *"]
    assert re.fullmatch(r"\d+\.\d", rows["gem"][-1])
    assert rows["random (control)"][-1] == "-"
    assert lines[11:] == [
        "[low, high]: interval of 95% (1000 resamples of the pictures); * it lies above those of both controls",
        "in explainer-bench: scores.md, scores.csv, scores.json, times.csv",
    ]
    assert result.stderr == (
        "warning: constant: 6 of 6 maps constant; what is the same everywhere points nowhere and counts as chance\n"
    )


def test_what_is_written_is_the_same_again(explainer, folder: Path) -> None:
    for out in ("one", "two"):
        assert explainer(*FEW, *METRICS, "--methods", "draws", "--seed", "4", "--out", out).exit_code == 0

    for name in ("scores.md", "scores.csv", "scores.json"):
        assert (folder / "one" / name).read_bytes() == (folder / "two" / name).read_bytes()
    assert json.loads((folder / "one" / "scores.json").read_text())["settings"]["seed"] == 4
    assert (folder / "one" / "times.csv").exists()


@pytest.mark.parametrize("arguments", [(), ("--methods", "all")])
def test_all_methods_that_fit(explainer, folder: Path, arguments: tuple[str, ...]) -> None:
    result = explainer(*FEW, "--metrics", "pointing", *arguments)

    # Methods that fail are told, and the command says so in the end.
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert "warning: refuses failed on 3 pictures ('square-0', 'square-1', 'square-2'): this cannot work" in told
    assert "warning: dislikes_two failed on 1 picture ('square-1'): two squares are too many" in told
    with (folder / "explainer-bench" / "scores.csv").open(newline="") as stream:
        failed = {row["method"]: row["failed"] for row in csv.DictReader(stream)}
    assert {"gem", "gradcam", "similarity", "self_self", "finds", "random", "centre"} <= set(failed)
    assert (failed["refuses"], failed["dislikes_two"], failed["gem"]) == ("3", "1", "0")


def test_settings_go_to_models_data_and_methods(explainer, folder: Path) -> None:
    settings = ("--set", "model.seed=1", "--set", "data.count=2", "--set", "depth=2")

    result = explainer(*FEW, *METRICS, "--method", "gem", "--method", "finds", *settings)

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("squares: 2 pictures\n")
    document = json.loads((folder / "explainer-bench" / "scores.json").read_text())
    assert document["settings"]["data"]["count"] == 2
    assert "gem depth=2" in {method["name"] for method in document["encoders"][0]["methods"]}


def test_two_models(explainer) -> None:
    result = explainer(*FEW, "--model", "tiny", "--metrics", "pointing", "--methods", "finds")

    assert result.exit_code == 0, result.output
    headings = [line for line in result.stdout.splitlines() if ": maps of " in line]
    assert [line.partition(",")[0] for line in headings] == ["tiny", "tiny-2"]


def test_labels_that_the_model_does_not_know_are_told(explainer) -> None:
    result = explainer(*FEW, *METRICS, "--methods", "finds", "--set", "model.reads=[red, blue]")

    assert result.exit_code == 0
    assert result.stderr == (
        "warning: tiny cannot be asked about 1 label, which is left out: 'green' (of the first it says: 'green' is no "
        "word that this model reads)\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--methods", "gme"),
            "no method named 'gme'; did you mean 'gem'? (available: ",
        ),
        (("--methods", "classy"), "method 'classy' does not fit tiny: it has no classes; methods that fit: "),
        (("--methods", "all,gem"), "Invalid value for '--methods': 'all' stands alone; leave the other names out\n"),
        (
            ("--set", "depth=3"),
            "--set depth: say with --method which method this is for, or write model.depth for a setting of the "
            "model\n",
        ),
        (
            ("--set", "data.cuont=3"),
            "cuont: no such setting of 'squares'; did you mean 'count'? (settings: count, width, labels, thin)\n",
        ),
        (("--metrics", "pionting"), "metrics.0: no metric named 'pionting'; did you mean 'pointing'? (available: "),
        (
            ("--set", "model.reads=[]"),
            "tiny cannot be asked about any of the 3 labels of the dataset 'squares'; of 'red' it says: 'red' is no "
            "word that this model reads\n",
        ),
        (
            ("--templates", "photograph of"),
            "tiny cannot be asked about any of the 3 labels of the dataset 'squares'; of 'red' it says: 'photograph "
            "of' is neither a set of templates (plain, photo, openai) nor a template with one {} in the place of the "
            "prompt\n",
        ),
    ],
)
def test_what_is_refused(explainer, folder: Path, arguments: tuple[str, ...], said: str) -> None:
    result = explainer(*FEW, *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    text = result.stderr[result.stderr.index("Error: ") :].removeprefix("Error: ")
    assert text == said if said.endswith("\n") else text.startswith(said)
    assert not (folder / "explainer-bench").exists()


def test_a_bug_keeps_its_traceback(explainer) -> None:
    result = explainer(*FEW, "--methods", "breaks", "--set", "needed=1")

    assert isinstance(result.exception, ZeroDivisionError)


def test_ctrl_c_ends_it(explainer, folder: Path) -> None:
    result = explainer(*FEW, "--methods", "stopped", "--set", "needed=1")

    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "stopped; nothing is written\n")
    assert not (folder / "explainer-bench").exists()


def test_the_shipped_model_on_the_shipped_scenes(explainer) -> None:
    result = explainer(
        "bench", "--encoder", "stickers", "--methods", "gradcam", "--metrics", "pointing", "--scenes", "2"
    )

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("stickers: 2 pictures\n")
