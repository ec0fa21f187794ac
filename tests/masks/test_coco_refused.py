"""Annotation files that cannot be used: what is wrong, and what to do."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .common import coco, entry, load, message, noise, outlined, runs

BOX = [[1, 2, 4, 2, 4, 5, 1, 5]]
FORMS = 'expected polygons [[x, y, x, y, ...], ...] or run lengths {"size": [height, width], "counts": ...}'


def file_with(root: Path, **changes: Any) -> Path:
    """A good file with one picture and one annotation, in which something is changed."""
    path = coco(root, [outlined(5, 1, 1, BOX)])
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


def counts(value: Any, size: Any = (6, 8)) -> dict[str, Any]:
    return {"size": list(size), "counts": value}


# The file


def test_without_pycocotools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = file_with(tmp_path)
    monkeypatch.setitem(sys.modules, "pycocotools", None)
    assert message(lambda: load(file)) == (
        "COCO annotations need the package pycocotools, which is not installed; run pip install "
        '"vision-explainer[coco]"'
    )


def test_no_file(tmp_path: Path) -> None:
    assert message(lambda: load(f"coco:{tmp_path}/a.json")) == f"there is no file or folder '{tmp_path}/a.json'"
    assert message(lambda: load(f"coco:{tmp_path}")) == (
        f"there is no file of COCO annotations in '{tmp_path}' or in its folder annotations; such a file ends in .json "
        "and holds the lists images, annotations, categories"
    )


def test_several_files(tmp_path: Path) -> None:
    path = coco(tmp_path, [outlined(1, 1, 1, BOX)], file="annotations/instances_train.json")
    path.with_name("instances_val.json").write_text(path.read_text())
    assert message(lambda: load(tmp_path)) == (
        f"there are 2 files of COCO annotations in '{tmp_path}': 'annotations/instances_train.json', "
        f"'annotations/instances_val.json'; say which, such as 'coco:{tmp_path}/annotations/instances_train.json' or "
        f"'coco:{tmp_path}/annotations/instances_val.json'"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"images": [],\n]', "is not valid JSON: line 2: Expecting property name enclosed in double quotes"),
        ("", "is not valid JSON: line 1: Expecting value"),
        ('{"images": [NaN]}', "holds NaN, which is no number of JSON"),
        (
            "[]",
            "is no file of COCO annotations: it lacks images, annotations, categories; such a file holds the lists "
            "images, annotations, categories",
        ),
        (
            '{"images": [], "shapes": []}',
            "is no file of COCO annotations: it lacks annotations, categories; such a file holds the lists images, "
            "annotations, categories",
        ),
    ],
)
def test_files_that_are_something_else(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "a.json").write_text(text)
    assert message(lambda: load(tmp_path / "a.json")) == f"'{tmp_path}/a.json' {why}"


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b'{"\xe4": 1}')
    assert message(lambda: load(tmp_path / "a.json")) == (
        f"'{tmp_path}/a.json' is not a text file in UTF-8: 'utf-8' codec can't decode byte 0xe4 in position 2: invalid "
        "continuation byte"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"images": [{"id": 1, "file_name": "a.png", "height": 6}]}, "images[0] has no width"),
        (
            {"images": [entry(1, "a.png", 6, 0)]},
            "images[0].width: Input should be greater than 0 (given: 0)",
        ),
        ({"images": {}}, "images: Input should be a valid list (given: {})"),
        ({"annotations": [{"id": 5, "category_id": 1}]}, "annotations[0] has no image_id"),
        (
            {"categories": [{"id": [1], "name": "dog"}]},
            "categories[0].id: Input should be a valid integer (given: [1])",
        ),
        (
            {"categories": [{"id": 1, "name": ""}]},
            "categories[0].name: String should have at least 1 character (given: '')",
        ),
    ],
)
def test_entries_that_are_not_right(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    path = file_with(tmp_path, **changes)
    assert message(lambda: load(path)) == f"'{path}' is no file of COCO annotations: {why}"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"images": [entry(1, "a.png", 6, 8), entry(1, "b.png", 6, 8)]}, "several images have the same id: 1"),
        (
            {"categories": [{"id": n, "name": name} for n, name in ((1, "dog"), (2, "dog"))]},
            "several categories have the same name: 'dog'",
        ),
        (
            {"categories": [{"id": n % 10, "name": str(n)} for n in range(20)]},
            "several categories have the same id: 0, 1, 2, 3, 4, 5, 6, 7 and 2 more",
        ),
    ],
)
def test_what_is_there_twice(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    path = file_with(tmp_path, **changes)
    assert message(lambda: load(path)) == f"in '{path}' {why}; each has one of its own"


@pytest.mark.parametrize(
    ("annotations", "why"),
    [
        (
            [outlined(1, 9, 1, BOX), outlined(2, 9, 1, BOX), outlined(3, "1", 1, BOX), outlined(4, 1, 1, BOX)],
            "3 annotations with a image_id that no entry of images has: 9, '1'",
        ),
        ([outlined(1, 1, 90, BOX)], "1 annotation with a category_id that no entry of categories has: 90"),
    ],
)
def test_annotations_of_nothing(tmp_path: Path, annotations: list[Any], why: str) -> None:
    path = file_with(tmp_path, annotations=annotations)
    assert message(lambda: load(path)) == f"in '{path}' {why}"


# Outlines


@pytest.mark.parametrize("missing", [[], None])
def test_boxes(tmp_path: Path, missing: Any) -> None:
    path = file_with(tmp_path, annotations=[outlined(n, 1, 1, missing) for n in (5, 6)])
    assert message(lambda: load(path)) == (
        f"the annotations in '{path}' are boxes without a segmentation; maps are measured against outlines, so export "
        "the annotations as polygons or masks"
    )
    path = file_with(tmp_path, annotations=[outlined(5, 1, 1, missing), outlined(6, 1, 1, BOX)])
    assert message(lambda: load(path)) == (
        f"in '{path}' 1 of 2 annotations without a segmentation, with the id 5; outline these objects too, or they "
        "count as background"
    )


@pytest.mark.parametrize("annotations", [[], [outlined(5, 1, 1, BOX, crowd=1)]])
def test_nothing_to_find(tmp_path: Path, annotations: list[Any]) -> None:
    path = file_with(tmp_path, annotations=annotations)
    assert message(lambda: load(path)) == f"no picture in '{path}' has an object in it; there is nothing to find"


@pytest.mark.parametrize(
    ("segmentation", "why"),
    [
        ([1, 2, 4, 2, 4, 5], f"is [1, 2, 4, 2, 4, 5]; {FORMS}"),
        ("PPYo0", f"is 'PPYo0'; {FORMS}"),
        ({"counts": [48]}, f"is {{'counts': [48]}}; {FORMS}"),
        (
            [[1, 2, 4, 2, 4, 5, 1]],
            f"has a polygon with an odd number of numbers (7), which are no pairs of x and y; {FORMS}",
        ),
        ([[1, 2, 4, "2", 4, 5]], f"has a polygon with the coordinate '2'; {FORMS}"),
        ([[1, 2, 4, 1e9, 4, 5]], f"has a polygon with the coordinate 1000000000.0; {FORMS}"),
        (counts([48], (8, 6)), "has the size [8, 6]; that of its picture is [6, 8] ([height, width])"),
        (counts([40, 7]), "has run lengths of 47 pixels; its picture has 48"),
        (counts([40, 9]), "has run lengths of 49 pixels; its picture has 48"),
        (counts([50, -2]), "has run lengths that are not whole numbers from 0 on"),
        (counts([40, 8.0]), "has run lengths that are not whole numbers from 0 on"),
        (counts(48), "has the counts 48; expected a list of numbers or a str"),
    ],
)
def test_outlines_that_are_not_right(tmp_path: Path, segmentation: Any, why: str) -> None:
    path = file_with(tmp_path, annotations=[outlined(5, 1, 1, segmentation)])
    assert message(lambda: load(path)) == f"annotation 5 in '{path}' {why}"


@pytest.mark.parametrize(
    ("segmentation", "why"),
    [
        (counts("P1"), "has run lengths of 32 pixels; its picture has 48"),
        (counts("P1?"), "has run lengths of 47 pixels; its picture has 48"),
        (counts(""), "has run lengths of 0 pixels; its picture has 48"),
        (counts("P"), "has counts that break off"),
        (counts("1é"), "has the character 'é' in its counts, which is none of run lengths"),
        (counts("1 1"), "has the character ' ' in its counts, which is none of run lengths"),
        (counts("1OOO"), "has run lengths that are not whole numbers from 0 on"),
    ],
)
def test_outlines_that_turn_out_wrong_when_drawn(tmp_path: Path, segmentation: Any, why: str) -> None:
    """pycocotools would make masks of most of these, out of whatever is in memory."""
    path = file_with(tmp_path, annotations=[outlined(5, 1, 1, segmentation)])
    data = load(path)
    assert message(lambda: data[0]) == f"annotation 5 in '{path}' {why}"


def test_an_annotation_without_an_id(tmp_path: Path) -> None:
    annotation = outlined(5, 1, 1, [[1]])
    del annotation["id"]
    path = file_with(tmp_path, annotations=[annotation])
    assert message(lambda: load(path)) == (
        f"an annotation of picture 1 in '{path}' has a polygon with an odd number of numbers (1), which are no "
        f"pairs of x and y; {FORMS}"
    )


def test_broken_run_lengths_of_a_mask(tmp_path: Path) -> None:
    mask = noise(6, 8)[..., 0] % 2 == 1
    path = file_with(tmp_path, annotations=[outlined(5, 1, 1, counts(runs(mask)[:-2]))])
    assert message(lambda: load(path)).endswith("its picture has 48")
    path = file_with(tmp_path, annotations=[outlined(5, 1, 1, counts(runs(mask)))])
    assert np.array_equal(load(path)[0].masks["dog"], mask)


# Pictures


def test_pictures_that_are_nowhere(tmp_path: Path) -> None:
    path = coco(tmp_path, [outlined(1, 1, 1, BOX)], file="annotations/instances_val.json", pictures="elsewhere")
    (tmp_path / "val").mkdir()
    assert message(lambda: load(path)) == (
        f"the pictures of '{path}', such as 'a.png', are in none of the folders '{tmp_path}/annotations', "
        f"'{tmp_path}', '{tmp_path}/val'; say with the setting images where they are"
    )
    assert message(lambda: load(path, images="elsewhere")) == (
        f"there is no folder '{tmp_path}/annotations/elsewhere', where the setting images looks"
    )
    assert message(lambda: load(path, images="../val")) == (
        f"1 of 1 picture of '{path}' not in '{tmp_path}/annotations/../val': 'a.png'; put them there, or say with the "
        "setting images where they are"
    )


def test_some_pictures_are_missing(tmp_path: Path) -> None:
    images = [entry(n, f"{n}.png", 6, 8) for n in range(4)]
    path = coco(tmp_path, [outlined(n, n, 1, BOX) for n in range(3)], images)
    for n in (1, 2, 3):
        (tmp_path / f"{n}.png").unlink()
    assert message(lambda: load(path)) == (
        f"2 of 3 pictures of '{path}' not in '{tmp_path}': '1.png', '2.png'; put them there, or say with the setting "
        "images where they are"
    )


def test_a_picture_of_another_size(tmp_path: Path) -> None:
    path = file_with(tmp_path, images=[entry(1, "a.png", 8, 6)])
    assert message(lambda: load(path)) == (
        f"what '{path}' says of a.png is 6 x 8 pixels, but the picture '{tmp_path}/a.png' is 8 x 6 (width x height); a "
        "mask has the size of its picture"
    )


def test_a_picture_that_is_none(tmp_path: Path) -> None:
    path = file_with(tmp_path)
    (tmp_path / "a.png").write_text("nothing")
    assert message(lambda: load(path)) == (
        f"the picture '{tmp_path}/a.png' is not a picture in a format that Pillow reads"
    )
