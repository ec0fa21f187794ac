"""`explainer bench` on pictures of one's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

from explainer.cli import main

from .common import coco, entry, folder, grey, outlined

PHOTO = Path(__file__).parents[2] / "plugins" / "explainer_plugins" / "demo" / "photos" / "chelsea.jpg"


@pytest.fixture
def cat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A photograph of a cat, in the working directory, in a folder with a mask of 255 on its face."""
    monkeypatch.chdir(tmp_path)
    with Image.open(PHOTO) as photo:
        picture = photo.resize((120, 80))
    mask = np.zeros((80, 120))
    mask[10:70, 30:90] = 255
    folder(tmp_path / "pets", {"cat": grey(mask)})
    picture.save(tmp_path / "pets" / "images" / "cat.png")
    return tmp_path


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["bench", "--encoder", "demo", "--methods", "gradcam", *arguments])


def test_what_to_type_next_is_what_works(cat: Path) -> None:
    done = bench("--data", "pets")
    assert done.exit_code == 2
    assert done.output == (
        "Error: nothing names the classes in 'pets'; give them with the setting classes, such as --set "
        "data.classes=[dog,cat] where dogs are 1 in the masks and cats 2, or in a file classes.txt there, one on each "
        "line; the first mask, cat.png, holds 0, 255 (then --set data.classes=[dog] --set data.void=null)\n"
    )
    done = bench("--data", "pets", "--set", "data.classes=[tiger cat]", "--set", "data.void=null")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("voc:pets: 1 picture\n")


def test_an_outline_and_a_mask_give_the_same_scores(cat: Path) -> None:
    """Two ways to write down one rectangle, through everything that comes after."""
    corners = [[30, 10, 90, 10, 90, 70, 30, 70]]
    coco(cat / "farm", [outlined(1, 1, 1, corners)], [entry(1, "cat.png", 80, 120)], names=["tiger cat"])
    (cat / "pets" / "images" / "cat.png").replace(cat / "farm" / "cat.png")
    (cat / "pets" / "images" / "cat.png").write_bytes((cat / "farm" / "cat.png").read_bytes())
    assert bench("--data", "coco:farm", "--out", "outline").exit_code == 0
    settings = ("--set", "data.classes=[tiger cat]", "--set", "data.void=null")
    assert bench("--data", "voc:pets", *settings, "--out", "mask").exit_code == 0
    outline, mask = ((cat / name / "scores.csv").read_text() for name in ("outline", "mask"))
    assert "gradcam" in mask
    assert outline.replace("coco:annotations", "voc:pets") == mask
