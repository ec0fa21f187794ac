"""Views by name: from the command line, YAML and Python; and what plugins hear once all is drawn."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from PIL import Image

from explainer import Explanation, hookimpl
from explainer.job import Job, Outcome
from explainer_registry import ExplainerError, Registry, Schema, ViewSpec, use

ASK = ("explain", "cat.jpg", "--model", "demo", "--target", "tabby", "--out", "maps")
HEARD: list[Outcome] = []


class Words(Schema):
    """Has no settings."""


def words(config: Words, explanation: Explanation) -> str:
    return "a cat"


@hookimpl
def explainer_views():
    return [
        ViewSpec(name="words", schema=Words, factory=f"{__name__}:words", summary="."),
        ViewSpec(name="lost", schema=Words, factory="nowhere_to_be_found:draw", summary="."),
    ]


@hookimpl
def explainer_after_job(outcome):
    HEARD.append(outcome)


@pytest.fixture
def own_plugin():
    """This module as a plugin beside what is installed."""
    extra = EntryPoint("own", __name__, "explainer")
    HEARD.clear()
    with use(Registry.discover(entry_points=[*entry_points(group="explainer"), extra], strict=True)):
        yield


def drawings() -> list[str]:
    return sorted(path.name for path in Path("maps/cat").glob("*.png"))


def test_views_are_listed(explainer) -> None:
    lines = explainer("views").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["view", "heat", "outline", "overlay", "spotlight"]


def test_each_map_is_drawn_by_each_view(explainer, cat: Path) -> None:
    result = explainer(*ASK, "--view", "overlay", "--view", "outline", "--set", "view.colour=lime")

    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:3]] == [
        "tabby-gradcam.png",
        "tabby-gradcam-outline.png",
    ]
    assert drawings() == ["grid.png", "tabby-gradcam-outline.png", "tabby-gradcam.png"]
    with Image.open("maps/cat/tabby-gradcam-outline.png") as drawn:
        assert (0, 255, 0) in {colour for _, colour in drawn.getcolors(1 << 24) or ()}


def test_settings_without_a_view_are_those_of_the_overlay(explainer, cat: Path) -> None:
    assert explainer(*ASK).exit_code == 0
    plain = Path("maps/cat/tabby-gradcam.png").read_bytes()
    assert explainer(*ASK, "--set", "view.alpha=1").exit_code == 0

    assert drawings() == ["grid.png", "tabby-gradcam.png"]
    assert Path("maps/cat/tabby-gradcam.png").read_bytes() != plain


def test_a_run_names_its_views(explainer, cat: Path) -> None:
    Path("run.yaml").write_text(
        "pictures: [cat.jpg]\nmodel: demo\ntargets: [tabby]\nout: maps\nviews: [{name: spotlight, floor: 0}, heat]\n"
    )

    assert explainer("run", "run.yaml").exit_code == 0
    assert drawings() == ["grid.png", "tabby-gradcam-heat.png", "tabby-gradcam-spotlight.png"]
    found = Explanation.load("maps/cat/gradcam.npz")
    with Image.open("maps/cat/tabby-gradcam-heat.png") as drawn:
        assert drawn.tobytes() == found.draw("heat", "tabby").tobytes()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--view", "overley"), "no view named 'overley'; did you mean 'overlay'?"),
        (
            ("--view", "heat", "--set", "view.alpha=1"),
            "Error: --set view.alpha: no such setting of 'heat' (settings: none)\n",
        ),
        (
            ("--view", "spotlight", "--set", "view.flor=1"),
            "Error: --set view.flor: no such setting of 'spotlight'; did you mean 'view.floor'? (settings: view.floor)",
        ),
        (("--view", "spotlight", "--set", "view.floor=1"), "Error: floor: Input should be less than 1 (given: 1)"),
    ],
)
def test_what_is_wrong_with_a_view_is_told(explainer, cat: Path, given: tuple[str, ...], message: str) -> None:
    result = explainer(*ASK, *given)

    assert result.exit_code == 2
    assert message in result.stderr
    assert not Path("maps").exists()


def test_a_view_whose_code_cannot_be_imported_is_told_before_a_model_is_loaded(
    explainer, cat: Path, own_plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("explainer.explain.wrap", lambda model: pytest.fail("loaded the model"))

    result = explainer(*ASK, "--view", "lost")

    assert result.stderr.startswith("Error: view 'lost' is installed but could not be loaded: ")
    assert result.stderr.endswith("No module named 'nowhere_to_be_found'\n")


def test_what_is_no_picture_is_refused(explainer, cat: Path, own_plugin) -> None:
    assert explainer(*ASK).exit_code == 0
    with pytest.raises(ExplainerError) as caught:
        Explanation.load("maps/cat/gradcam.npz").draw("words")
    assert str(caught.value).startswith("view 'words' (")
    assert str(caught.value).endswith(
        ") has to give a PIL.Image.Image, an Animation or a Document, or several; it gave 'a cat' (str)"
    )


def test_plugins_hear_of_the_end_of_a_run(explainer, cat: Path, own_plugin) -> None:
    Path("broken.jpg").write_text("no picture")

    assert explainer(*ASK, "broken.jpg").exit_code == 1

    (outcome,) = HEARD
    assert outcome.out == Path("maps")
    assert [model.name for model in [outcome.run.model]] == ["demo"]
    assert [(result.picture.name, bool(result.failure)) for result in outcome.results] == [
        ("cat.jpg", False),
        ("broken.jpg", True),
    ]
    assert all(drawing.file.is_file() for result in outcome.results for drawing in result.drawings)


def test_a_run_that_is_left_has_no_end(explainer, cat: Path, own_plugin) -> None:
    from explainer.config import make_run

    Path("dog.jpg").write_bytes(cat.read_bytes())
    job = Job(make_run({"pictures": ["cat.jpg", "dog.jpg"], "model": "demo", "out": "maps"}))
    next(job.results())

    assert HEARD == []
