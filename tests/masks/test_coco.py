"""Annotation files: what is outlined is what the dataset gives."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pycocotools import mask as reference

from explainer_plugins.masks import Coco

from .common import coco, entry, load, noise, outlined, runs

BOX = [[1, 2, 4, 2, 4, 5, 1, 5]]


def box(top: int, bottom: int, left: int, right: int, shape: tuple[int, int] = (6, 8)) -> np.ndarray:
    mask = np.zeros(shape, dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


def coded(mask: np.ndarray, compressed: bool = False) -> dict[str, Any]:
    counts = reference.encode(np.asfortranarray(mask, dtype=np.uint8))["counts"].decode() if compressed else runs(mask)
    return {"size": list(mask.shape), "counts": counts}


def decoded(polygons: list[list[float]], height: int, width: int) -> np.ndarray:
    """As pycocotools decodes, which warns of itself with NumPy 2."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return reference.decode(reference.frPyObjects(polygons, height, width)).any(axis=2)


@pytest.mark.parametrize("way", ["coco:{}", "{}"])
def test_an_annotation_file(tmp_path: Path, way: str) -> None:
    images = [entry(7, "b.png", 6, 8), entry(3, "a.png", 4, 5), entry(4, "empty.png", 4, 5)]
    annotations = [
        outlined(1, 7, 2, BOX),
        outlined(2, 3, 1, coded(box(0, 4, 1, 3, (4, 5)))),
        outlined(3, 7, 1, coded(box(0, 1, 0, 8), compressed=True)),
    ]
    file = coco(tmp_path, annotations, images, names=("dog", "cat", "cow"), file="pets.json")

    data = load(way.format(file))

    assert data.name == "coco:pets"
    assert list(data.labels) == ["dog", "cat", "cow"]
    assert len(data) == 2
    first, second = data
    assert (first.name, second.name) == ("b.png", "a.png")
    assert (first.group, second.group) == ("2 objects", "1 object")
    assert first.picture.mode == "RGB"
    assert np.array_equal(np.asarray(first.picture), noise(6, 8))
    assert first.valid is second.valid is None
    assert list(first.masks) == ["dog", "cat"]
    assert np.array_equal(first.masks["dog"], box(0, 1, 0, 8))
    assert np.array_equal(first.masks["cat"], box(2, 5, 1, 4))
    assert np.array_equal(second.masks["dog"], box(0, 4, 1, 3, (4, 5)))
    assert data[-1].name == "a.png"
    for mask in first.masks.values():
        assert mask.dtype == np.bool_
        assert mask.flags.c_contiguous


def test_all_objects_of_a_category_are_one_mask(tmp_path: Path) -> None:
    first, second, third = box(0, 2, 0, 2), box(1, 4, 1, 5), box(5, 6, 7, 8)
    file = coco(tmp_path, [outlined(n, 1, 1, coded(mask)) for n, mask in enumerate((first, second, third))])
    (sample,) = load(file)
    assert np.array_equal(sample.masks["dog"], first | second | third)
    assert sample.group == "1 object"


def test_parts_of_one_object(tmp_path: Path) -> None:
    polygons = [[0, 0, 2, 0, 2, 2, 0, 2], [5, 3, 8, 3, 8, 6, 5, 6]]
    (sample,) = load(coco(tmp_path, [outlined(1, 1, 1, polygons)]))
    assert np.array_equal(sample.masks["dog"], box(0, 2, 0, 2) | box(3, 6, 5, 8))


def test_two_corners_enclose_nothing(tmp_path: Path) -> None:
    """pycocotools takes four numbers for a box: left, top, width, height."""
    polygons = [[1, 1, 5, 4], [1, 1], *BOX]
    (sample,) = load(coco(tmp_path, [outlined(1, 1, 1, polygons), outlined(2, 1, 2, [[0, 0, 8, 6]])]))
    assert list(sample.masks) == ["dog"]
    assert np.array_equal(sample.masks["dog"], box(2, 5, 1, 4))


def test_a_crowd_does_not_count(tmp_path: Path) -> None:
    crowd = box(0, 6, 3, 8)
    annotations = [
        outlined(1, 1, 1, coded(box(0, 4, 0, 5))),
        outlined(2, 1, 2, coded(crowd), crowd=1),
        outlined(3, 1, 2, coded(box(1, 2, 6, 7))),
        outlined(4, 2, 1, coded(crowd), crowd=1),
    ]
    data = load(coco(tmp_path, annotations, [entry(1, "a.png", 6, 8), entry(2, "crowd only.png", 6, 8)]))
    (sample,) = data
    assert np.array_equal(sample.valid, ~crowd)
    assert list(sample.masks) == ["dog"]
    assert np.array_equal(sample.masks["dog"], box(0, 4, 0, 3))
    assert sample.group == "1 object"


def test_a_picture_whose_objects_cover_no_pixel(tmp_path: Path) -> None:
    (sample,) = load(coco(tmp_path, [outlined(1, 1, 1, [[1, 1, 5, 4]])]))
    assert sample.masks == {}
    assert sample.group == "0 objects"


def test_ids_may_be_words_and_optional_keys_missing(tmp_path: Path) -> None:
    file = coco(tmp_path, [outlined(1, 1, 1, BOX)])
    document = json.loads(file.read_text())
    document["images"][0]["id"] = document["annotations"][0]["image_id"] = "one"
    document["categories"][0]["id"] = document["annotations"][0]["category_id"] = "d"
    for key in ("id", "iscrowd", "bbox"):
        del document["annotations"][0][key]
    file.write_text(json.dumps(document), encoding="utf-8-sig")
    (sample,) = load(file)
    assert np.array_equal(sample.masks["dog"], box(2, 5, 1, 4))


# Where files are


@pytest.mark.parametrize(
    ("file", "pictures"),
    [
        ("_annotations.coco.json", ""),
        ("pets.json", "images"),
        ("annotations/instances_default.json", ""),
        ("annotations/instances_default.json", "images"),
        ("annotations/instances_default.json", "annotations"),
        ("annotations/instances_val2017.json", "val2017"),
        ("annotations/instances_default.json", "images/default"),
    ],
)
def test_pictures_are_found_around_the_file(tmp_path: Path, file: str, pictures: str) -> None:
    path = coco(tmp_path, [outlined(1, 1, 1, BOX)], file=file, pictures=pictures)
    for spelling in (path, tmp_path, f"coco:{tmp_path}"):
        (sample,) = load(spelling)
        assert np.array_equal(sample.masks["dog"], box(2, 5, 1, 4))


def test_pictures_elsewhere(tmp_path: Path) -> None:
    path = coco(tmp_path, [outlined(1, 1, 1, BOX)], file="sets/pets.json", pictures="photos")
    assert len(load(path, images="../photos")) == 1
    assert len(load(f"coco:{path}", images=str(tmp_path / "photos"))) == 1


def test_file_names_with_folders_of_windows(tmp_path: Path) -> None:
    path = coco(tmp_path, [outlined(1, 1, 1, BOX)], [entry(1, "deep/er/a.png", 6, 8)])
    path.write_text(path.read_text().replace("deep/er/", r"deep\\er\\"))
    (sample,) = load(path)
    assert sample.name == r"deep\er\a.png"


def test_files_on_the_same_pictures_that_are_about_something_else(tmp_path: Path) -> None:
    path = coco(tmp_path, [outlined(1, 1, 1, BOX)], file="annotations/instances_val.json", pictures="val")
    for name in ("person_keypoints_val", "stuff_val"):
        path.with_name(f"{name}.json").write_text(path.read_text())
    for name in ("captions_val", "empty"):
        path.with_name(f"{name}.json").write_text('{"images": [], "annotations": []}' if name != "empty" else "")
    assert load(tmp_path).name == "coco:instances_val"


def test_making_it_reads_no_pixels(tmp_path: Path) -> None:
    file = coco(tmp_path, [outlined(1, 1, 1, BOX)], [entry(1, "a.png", 40, 50)])
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:60])
    assert len(load(file)) == 1


def test_settings_are_plain(tmp_path: Path) -> None:
    assert Coco(source=tmp_path).model_dump(mode="json") == {"source": str(tmp_path), "images": None}


# Random outlines


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), compressed=st.booleans())
def test_random_masks_come_back(scratch: Path, data: st.DataObject, compressed: bool) -> None:
    shape = data.draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
    masks = data.draw(st.lists(arrays.arrays(np.bool_, shape), min_size=1, max_size=4))
    annotations = [outlined(n, 1, n % 2 + 1, coded(mask, compressed)) for n, mask in enumerate(masks)]
    (sample,) = load(coco(scratch, annotations, [entry(1, "a.png", *shape)]))
    for place, label in enumerate(("dog", "cat")):
        expected = np.any([np.zeros(shape, bool), *masks[place::2]], axis=0)
        assert (label in sample.masks) == expected.any()
        assert np.array_equal(sample.masks.get(label, np.zeros(shape, bool)), expected)


@pytest.mark.parametrize("shape", [(700, 900), (1, 100000)])
def test_long_runs(tmp_path: Path, shape: tuple[int, int]) -> None:
    """Numbers of several characters, and differences of either sign."""
    mask = np.zeros(shape, dtype=bool)
    mask.T.reshape(-1)[:: shape[1] // 7 + 13] = True
    mask[0, shape[1] // 2 :] = True
    (sample,) = load(coco(tmp_path, [outlined(1, 1, 1, coded(mask, compressed=True))], [entry(1, "a.png", *shape)]))
    assert np.array_equal(sample.masks["dog"], mask)


@settings(max_examples=60, deadline=None)
@given(
    polygons=st.lists(
        st.lists(st.floats(-5, 25, width=32), min_size=6, max_size=16).filter(lambda polygon: len(polygon) % 2 == 0),
        min_size=1,
        max_size=3,
    )
)
def test_polygons_are_drawn_as_coco_draws_them(scratch: Path, polygons: list[list[float]]) -> None:
    (sample,) = load(coco(scratch, [outlined(1, 1, 1, polygons)], [entry(1, "a.png", 13, 17)]))
    expected = decoded(polygons, 13, 17)
    assert np.array_equal(sample.masks.get("dog", np.zeros((13, 17), bool)), expected)
