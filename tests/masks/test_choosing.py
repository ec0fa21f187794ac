"""What stands for a dataset: a name, a name with a path behind a colon, or a path alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from explainer.selection import select
from explainer_plugins.masks import Coco, Voc
from explainer_registry import Selected

from .common import VOC, coco, folder, message, outlined

BOX = [[1, 2, 4, 2, 4, 5, 1, 5]]
VOC_TAKES = "voc takes a folder that holds a folder SegmentationClass or masks"
COCO_TAKES = "coco takes a COCO annotation file (.json), or a folder that holds one, or one in its folder annotations"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_name_with_a_path(here: Path) -> None:
    """Whether the path exists is asked when the dataset is made."""
    assert select("datasets", "voc:my/pets") == Selected("voc", Voc(source=Path("my/pets")))
    assert select("datasets", "coco:pets.json") == Selected("coco", Coco(source=Path("pets.json")))
    assert select("datasets", "voc:C:\\pets") == Selected("voc", Voc(source=Path("C:\\pets")))
    assert select("datasets", "vision-explainer/voc:pets").name == "vision-explainer/voc"
    given = select("datasets", "voc:pets", {"classes": ["dog"], "void": None})
    assert given.options == Voc(source=Path("pets"), classes=("dog",), void=None)


def test_a_path_alone(here: Path) -> None:
    folder(here / "pets", {"a": [[0, 1]]})
    folder(here / "VOC2012", {"a": [[0, 1]]}, VOC)
    coco(here / "farm", [outlined(1, 1, 1, BOX)])
    coco(here / "zoo", [outlined(1, 1, 1, BOX)], file="annotations/zoo.JSON".lower())
    for given, name in (
        ("pets", "voc"),
        ("./pets/", "voc"),
        ("VOC2012", "voc"),
        ("farm", "coco"),
        ("zoo", "coco"),
        ("farm/annotations.json", "coco"),
    ):
        for path in (given, Path(given), str(here / given), here / given):
            selected = select("datasets", path)
            assert (selected.name, selected.options.source) == (name, Path(path))
    assert select("datasets", "pets", {"void": 7}).options == Voc(source=Path("pets"), void=7)


def test_a_name_goes_before_a_path_of_that_name(here: Path) -> None:
    folder(here / "coco", {"a": [[0, 1]]})
    assert message(lambda: select("datasets", "coco")) == "source: 'coco' needs this setting and has no default for it"
    assert select("datasets", "./coco").name == "voc"
    assert select("datasets", Path("coco")).name == "voc"


def test_any_json_file_is_meant_as_annotations(here: Path) -> None:
    """So that what is wrong with it is said in full when it is read."""
    (here / "a.json").write_text("nothing")
    assert select("datasets", "a.json").name == "coco"


def test_home(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.setenv("USERPROFILE", str(here))
    folder(here / "pets", {"a": [[0, 1]]})
    assert select("datasets", "~/pets").options == Voc(source=Path("~/pets"))


def test_a_path_that_two_datasets_read(here: Path) -> None:
    folder(here / "pets", {"a": [[0, 1]]})
    coco(here / "pets", [outlined(1, 1, 1, BOX)])
    assert message(lambda: select("datasets", "pets")) == (
        "'pets' can be read as more than one kind of data; say 'coco:pets' or 'voc:pets'"
    )


def test_a_path_that_no_dataset_reads(here: Path) -> None:
    (here / "pets").mkdir()
    (here / "pets" / "a.json").write_text('{"shapes": []}')
    (here / "pets.zip").write_text("")
    for given in ("pets", "./pets", "pets.zip"):
        assert message(lambda given=given: select("datasets", given)) == (
            f"no dataset reads '{given}' ({COCO_TAKES}; {VOC_TAKES})"
        )


def test_nothing_is_there(here: Path) -> None:
    for given in ("my/pets", "pets.json", Path("pets")):
        assert message(lambda given=given: select("datasets", given)) == f"there is no file or folder '{given}'"


def test_neither_a_name_nor_a_path(here: Path) -> None:
    for given, more in (("pets", "; nor is there a file or folder of this name"), ("pets:my/folder", "")):
        text = message(lambda given=given: select("datasets", given))
        assert text.startswith("no dataset named 'pets' (available: coco, ")
        assert text.endswith(f"voc){more}")
    assert message(lambda: select("datasets", "vok:my/pets")).startswith(
        "no dataset named 'vok'; did you mean 'voc'? (available: coco, "
    )
    assert message(lambda: select("datasets", "voc:")) == "'voc:' lacks the source after ':'; say 'voc:<source>'"


def test_choosing_by_a_look_loads_nothing_heavy(here: Path) -> None:
    folder(here / "pets", {"a": [[0, 1]]})
    coco(here / "farm", [outlined(1, 1, 1, BOX)])
    program = (
        "import sys; from explainer.selection import select\n"
        "print([select('datasets', path).name for path in ('pets', 'farm')])\n"
        "print([name for name in ('torch', 'numpy', 'PIL', 'pycocotools') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=here, capture_output=True, text=True, check=True)
    assert done.stdout == "['voc', 'coco']\n[]\n"
