"""Methods that fail: what is the request's fault, what the picture's, and what is a bug."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from explainer import Explanation
from explainer.job import Names, slug

pytestmark = pytest.mark.usefixtures("misbehaving")


@pytest.fixture
def pictures(folder: Path) -> list[str]:
    """A bright picture, a dark one and another bright one."""
    names = ["bright.png", "dark.png", "white.png"]
    for name, value in zip(names, (200, 0, 255), strict=True):
        Image.new("RGB", (40, 30), (value,) * 3).save(folder / name)
    return names


def test_a_picture_that_fails_is_named_and_its_batch_is_not_lost(explainer, pictures: list[str]) -> None:
    result = explainer("explain", *pictures, "--model", "demo", "--method", "dislikes_dark", "--target", "3")

    assert result.exit_code == 1
    assert result.stderr == ("failed: the picture 'dark.png' could not be explained: one of the pictures is too dark\n")
    assert result.stdout.splitlines()[4] == "explained 2 of 3 pictures"
    assert sorted(path.name for path in Path("explanations").iterdir()) == ["bright", "white"]


def test_a_request_that_fails_whatever_the_picture_is_refused(explainer, pictures: list[str]) -> None:
    result = explainer("explain", *pictures, "--model", "demo", "--method", "refuses")

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", "Error: this cannot work\n")
    assert not Path("explanations").exists()


def test_a_bug_keeps_its_traceback(explainer, pictures: list[str]) -> None:
    result = explainer("explain", *pictures, "--model", "demo", "--method", "breaks")

    assert isinstance(result.exception, ZeroDivisionError)


def test_ctrl_c_ends_it(explainer, pictures: list[str]) -> None:
    result = explainer("explain", *pictures, "--model", "demo", "--method", "stopped")

    assert result.exit_code == 130
    assert result.stderr == "stopped; the pictures listed above are complete\n"


def test_a_map_that_points_nowhere_is_warned_of(explainer, pictures: list[str]) -> None:
    result = explainer("explain", *pictures[:2], "--model", "demo", "--method", "flat", "--target", "lynx")

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        f"warning: {name}, flat, 'lynx': the map is constant and points nowhere; the score may not depend "
        "on this layer, or the method cut everything off. Its normalised heat is zero, and it has no mask "
        "and no boxes"
        for name in pictures[:2]
    ]


def test_methods_with_other_maps_get_a_grid_of_their_own(explainer, pictures: list[str]) -> None:
    result = explainer(
        *("explain", pictures[0], "--model", "demo", "--target", "3"),
        *("--method", "two_maps", "--method", "gradcam", "--method", "dislikes_dark"),
    )

    assert result.exit_code == 0
    assert sorted(path.name for path in Path("explanations/bright").glob("grid*")) == [
        "grid-gradcam-dislikes_dark.png",
        "grid-two_maps.png",
    ]


def test_a_score_gets_its_settings(explainer, pictures: list[str]) -> None:
    run = "pictures: [bright.png]\nmodel: demo\ntargets: [3]\nmethods: [gradcam]\nscore: {score}\nout: {out}\n"
    for out, score in (("one", "logit"), ("two", "{name: scaled, factor: 2.0}")):
        Path("run.yaml").write_text(run.format(score=score, out=out))
        assert explainer("run", "run.yaml").exit_code == 0

    one, two = (Explanation.load(f"{out}/bright/gradcam.npz") for out in ("one", "two"))
    assert one.scores is not None
    assert two.scores is not None
    assert float(two.scores) == pytest.approx(2 * float(one.scores))
    assert two.provenance.score == "scaled"


def test_names_are_distinct_on_every_file_system() -> None:
    names = Names()

    given = [
        "cat",
        "Cat",
        "cat-2",
        "cat",
        "e\N{COMBINING ACUTE ACCENT}",
        "\N{LATIN SMALL LETTER E WITH ACUTE}",
    ]
    assert [names.unique(name) for name in given[:4]] == ["cat", "Cat-2", "cat-2-2", "cat-3"]
    assert names.unique(given[4]) == given[4]
    assert names.unique(given[5]) == f"{given[5]}-2"


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("tiger cat", "tiger-cat"),
        ("a/b: c?", "a-b-c"),
        ("../..", "target"),
        ("größe", "größe"),
        ("x" * 80, "x" * 60),
    ],
)
def test_labels_become_file_names(label: str, name: str) -> None:
    assert slug(label) == name
