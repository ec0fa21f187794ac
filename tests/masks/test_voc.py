"""Masks as pictures: what is in the files is what the dataset gives."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from explainer_plugins.masks import Voc
from explainer_plugins.masks.classes import VOC_CLASSES, voc_colour

from .common import PLAIN, VOC, folder, grey, in_palette, load, noise

VOC_PALETTE = {number: voc_colour(number) for number in range(256)}
"""As the development kit makes it."""

SMALL = [[0, 1, 1, 255], [0, 2, 1, 255], [0, 2, 2, 255]]


def numbers_of(sample: Any, labels: Any, void: int = 255) -> np.ndarray:
    """Put the masks of a sample back into one mask of numbers."""
    shape = sample.picture.size[::-1]
    whole = np.zeros(shape, dtype=np.int64)
    for label, mask in sample.masks.items():
        assert mask.dtype == np.bool_
        assert mask.shape == shape
        assert mask.any()
        assert not whole[mask].any()
        whole[mask] = list(labels).index(label) + 1
    if sample.valid is not None:
        assert sample.valid.dtype == np.bool_
        assert not sample.valid.all()
        assert not whole[~sample.valid].any()
        whole[~sample.valid] = void
    return whole


# Layouts


@pytest.mark.parametrize("layout", [VOC, PLAIN])
@pytest.mark.parametrize("way", ["voc:{}", "{}"])
def test_a_folder_in_either_layout(tmp_path: Path, layout: tuple[str, str], way: str) -> None:
    folder(tmp_path / "pets", {"b": SMALL, "a": [[2, 0], [0, 0]]}, layout, classes="dog\ncat\n")

    data = load(way.format(tmp_path / "pets"))

    assert data.name == "voc:pets"
    assert list(data.labels) == ["dog", "cat"]
    assert len(data) == 2
    first, second = data
    assert (first.name, second.name) == ("a", "b")
    assert (first.group, second.group) == ("1 object", "2 objects")
    assert list(first.masks) == ["cat"]
    assert first.valid is None
    assert second.picture.mode == "RGB"
    assert np.array_equal(np.asarray(second.picture), noise(3, 4))
    assert np.array_equal(numbers_of(second, data.labels), SMALL)
    assert np.array_equal(second.valid, np.array(SMALL) != 255)
    assert np.array_equal(numbers_of(data[-1], data.labels), SMALL)


def test_folders_of_other_names(tmp_path: Path) -> None:
    folder(tmp_path, {"a": SMALL}, ("photos", "labels/fine"), classes="dog\ncat")
    data = load(f"voc:{tmp_path}", images="photos", masks="labels/fine")
    assert np.array_equal(numbers_of(data[0], data.labels), SMALL)
    elsewhere = load(
        {"name": "voc", "source": tmp_path}, images=tmp_path / "photos", masks=tmp_path / "labels" / "fine"
    )
    assert np.array_equal(numbers_of(elsewhere[0], data.labels), SMALL)


def test_other_files_are_not_looked_at(tmp_path: Path) -> None:
    folder(tmp_path, {"a": SMALL}, classes="dog\ncat")
    for name in ("images/Thumbs.db", "images/._a.png", "masks/._a.png", "masks/readme.md", "masks/a.npy"):
        (tmp_path / name).write_text("nothing")
    assert len(load(tmp_path)) == 1


def test_suffixes_in_capitals_and_names_with_dots(tmp_path: Path) -> None:
    folder(tmp_path, {"a": SMALL}, classes="dog\ncat")
    (tmp_path / "images" / "a.png").rename(tmp_path / "images" / "of.2024.PNG")
    (tmp_path / "masks" / "a.png").rename(tmp_path / "masks" / "of.2024.Png")
    assert [sample.name for sample in load(tmp_path)] == ["of.2024"]


def test_a_split_takes_the_pictures_of_its_list_in_their_order(tmp_path: Path) -> None:
    folder(tmp_path, {"a": SMALL, "b": SMALL, "c": SMALL}, VOC)
    (tmp_path / "ImageSets" / "Segmentation").mkdir(parents=True)
    (tmp_path / "ImageSets" / "Segmentation" / "val.txt").write_text("c\n\na \nc\n")
    data = load(f"voc:{tmp_path}", split="val")
    assert data.name == f"voc:{tmp_path.name}:val"
    assert [sample.name for sample in data] == ["c", "a"]


def test_pictures_without_a_mask_are_usual_in_the_layout_of_voc(tmp_path: Path) -> None:
    folder(tmp_path, {"a": SMALL}, VOC)
    Image.fromarray(noise(3, 4)).save(tmp_path / "JPEGImages" / "b.jpg")
    assert [sample.name for sample in load(tmp_path)] == ["a"]


def test_making_it_reads_no_pixels(tmp_path: Path) -> None:
    """What follows the head of each file is cut off; only asking for the picture notices."""
    folder(tmp_path, {"a": noise(40, 50)[..., 0] % 3}, classes="dog\ncat")
    for path in (*tmp_path.glob("images/*"), *tmp_path.glob("masks/*")):
        path.write_bytes(path.read_bytes()[:60])
    assert len(load(tmp_path)) == 1


def test_the_same_picture_each_time(tmp_path: Path) -> None:
    data = load(folder(tmp_path, {"a": SMALL}, classes="dog\ncat"))
    once, again = data[0], data[0]
    assert once.picture.tobytes() == again.picture.tobytes()
    assert np.array_equal(numbers_of(once, data.labels), numbers_of(again, data.labels))


# Names of classes


@pytest.mark.parametrize("first", ["background", "_background_", "__background__", "Background"])
def test_a_first_background_is_number_0(tmp_path: Path, first: str) -> None:
    folder(tmp_path, {"a": SMALL}, classes=f"{first}\ndog\ncat")
    assert list(load(tmp_path).labels) == ["dog", "cat"]
    assert list(load(tmp_path, classes=[first, "wolf", "tiger"]).labels) == ["wolf", "tiger"]


def test_where_names_come_from(tmp_path: Path) -> None:
    """The setting goes before classes.txt, before class_names.txt, before labelmap.txt, before VOC's own."""
    folder(tmp_path, {"a": SMALL}, VOC)
    assert list(load(tmp_path).labels) == list(VOC_CLASSES)
    assert list(load(tmp_path)[0].masks) == ["aeroplane", "bicycle"]
    for name in ("labelmap", "class_names", "classes"):
        (tmp_path / f"{name}.txt").write_text(f"{name} 1\n{name} 2\n")
        assert list(load(tmp_path)[0].masks) == [f"{name} 1", f"{name} 2"]
    assert list(load(tmp_path, classes=["dog", " cat "])[0].masks) == ["dog", "cat"]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    folder(tmp_path, {"a": SMALL}, classes="\ufeffdog\r\ncat\r\n\r\n")
    assert list(load(tmp_path).labels) == ["dog", "cat"]


def test_the_numbers_of_voc() -> None:
    numbered = {1: "aeroplane", 5: "bottle", 8: "cat", 12: "dog", 15: "person", 20: "tvmonitor"}
    assert {number: VOC_CLASSES[number - 1] for number in numbered} == numbered
    assert len(VOC_CLASSES) == 20


def test_the_colours_of_voc() -> None:
    known = {
        0: (0, 0, 0),
        1: (128, 0, 0),
        2: (0, 128, 0),
        3: (128, 128, 0),
        4: (0, 0, 128),
        8: (64, 0, 0),
        12: (64, 0, 128),
        15: (192, 128, 128),
        20: (0, 64, 128),
        255: (224, 224, 192),
    }
    assert {number: voc_colour(number) for number in known} == known
    assert len({voc_colour(number) for number in range(256)}) == 256


# What files hold


def test_grey_and_palette_and_colours_say_the_same(tmp_path: Path) -> None:
    masks = {
        "grey": grey(SMALL),
        "palette": in_palette(SMALL, VOC_PALETTE),
        "own": in_palette(SMALL, {0: (9, 9, 9), 1: (0, 200, 0), 2: (0, 0, 250)}),
        "levels": in_palette(SMALL, {n: (n * 60 % 256,) * 3 for n in (0, 1, 2)} | {255: (250, 250, 250)}),
        "colours": in_palette(SMALL, VOC_PALETTE).convert("RGB"),
        "opaque": in_palette(SMALL, VOC_PALETTE).convert("RGBA"),
        "three": grey(SMALL).convert("RGB"),
        "two": grey(SMALL).convert("LA"),
        "deep": Image.fromarray(np.array(SMALL, dtype=np.uint16)),
    }
    assert [masks[name].mode for name in ("grey", "palette", "deep")] == ["L", "P", "I;16"]
    data = load(folder(tmp_path, masks, classes="dog\ncat"))
    assert len(data) == len(masks)
    for sample in data:
        assert np.array_equal(numbers_of(sample, data.labels), SMALL), sample.name


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("kind", ["grey", "palette"])
def test_masks_of_few_bits(tmp_path: Path, bits: int, kind: str) -> None:
    """Pillow spreads the levels of such greys over 0 to 255, and 2 of 4 bits comes out as 34."""
    numbers = noise(9, 7)[..., 0] % 2**bits
    folder(tmp_path, {"a": numbers}, classes="\n".join(f"class {n}" for n in range(1, 2**bits)))
    mask = grey(numbers) if kind == "grey" else in_palette(numbers, VOC_PALETTE)
    if bits == 1 and kind == "grey":
        mask = mask.point(lambda level: 255 * level).convert("1")
        mask.save(tmp_path / "masks" / "a.png")
    else:
        mask.save(tmp_path / "masks" / "a.png", bits=bits)
    assert (tmp_path / "masks" / "a.png").read_bytes()[24] == bits
    data = load(tmp_path)
    assert np.array_equal(numbers_of(data[0], data.labels), numbers)


@pytest.mark.parametrize("suffix", ["bmp", "tif", "tiff"])
def test_other_kinds_of_files_that_keep_numbers(tmp_path: Path, suffix: str) -> None:
    folder(tmp_path, {"a": SMALL}, classes="dog\ncat")
    (tmp_path / "masks" / "a.png").unlink()
    grey(SMALL).save(tmp_path / "masks" / f"a.{suffix}")
    data = load(tmp_path)
    assert np.array_equal(numbers_of(data[0], data.labels), SMALL)


def test_more_classes_than_a_byte_holds(tmp_path: Path) -> None:
    numbers = np.array([[0, 299, 300], [0, 255, 1]], dtype=np.uint16)
    names = [f"class {n}" for n in range(1, 301)]
    data = load(folder(tmp_path, {"a": Image.fromarray(numbers)}), classes=names, void=None)
    assert np.array_equal(numbers_of(data[0], data.labels), numbers)
    assert list(data[0].masks) == ["class 1", "class 255", "class 299", "class 300"]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_masks_come_back(scratch: Path, data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 30))
    shape = data.draw(st.tuples(st.integers(1, 12), st.integers(1, 12)))
    numbers = data.draw(arrays.arrays(np.uint8, shape, elements=st.sampled_from([*range(count + 1), 255])))
    kind = data.draw(st.sampled_from(["grey", "palette", "colours"]))
    mask = grey(numbers) if kind == "grey" else in_palette(numbers, VOC_PALETTE)
    shutil.rmtree(scratch, ignore_errors=True)
    folder(scratch, {"a": mask.convert("RGB") if kind == "colours" else mask})

    dataset = load(scratch, classes=[f"class {n}" for n in range(1, count + 1)])

    sample = dataset[0]
    assert np.array_equal(numbers_of(sample, dataset.labels), numbers)
    assert sample.group == f"{len(sample.masks)} object" + ("" if len(sample.masks) == 1 else "s")
    assert len(sample.masks) == len(set(numbers.flat) - {0, 255})


# Colours that the data set explains itself, as CVAT exports them

LABELMAP = "# label:color_rgb:parts:actions\ncat:10,20,30::\nbackground:1,2,3::\ndog:200,0,0::\nignored:7,7,7::\n"


def in_colours(numbers: Any, *colours: tuple[int, int, int]) -> Image.Image:
    return Image.fromarray(np.array(colours, dtype=np.uint8)[np.array(numbers)])


def test_colours_of_a_labelmap(tmp_path: Path) -> None:
    drawn = [[0, 1, 2], [3, 4, 5]]
    mask = in_colours(drawn, (0, 0, 0), (1, 2, 3), (10, 20, 30), (200, 0, 0), (7, 7, 7), (224, 224, 192))
    data = load(folder(tmp_path, {"a": mask, "b": mask.quantize(8)}, VOC, labelmap=LABELMAP))
    assert list(data.labels) == ["cat", "dog"]
    for sample in data:
        assert np.array_equal(numbers_of(sample, data.labels), [[0, 0, 1], [2, 255, 255]])


def test_other_names_for_the_colours_of_a_labelmap(tmp_path: Path) -> None:
    mask = in_colours([[0, 1]], (10, 20, 30), (200, 0, 0))
    data = load(folder(tmp_path, {"a": mask}, VOC, labelmap=LABELMAP), classes=["a cat", "a dog"])
    assert list(data[0].masks) == ["a cat", "a dog"]


def test_numbers_with_a_labelmap(tmp_path: Path) -> None:
    """Not every exporter paints: numbers are then the places in the list, background left out."""
    data = load(folder(tmp_path, {"a": SMALL}, VOC, labelmap=LABELMAP))
    assert list(data[0].masks) == ["cat", "dog"]
    assert np.array_equal(numbers_of(data[0], data.labels), SMALL)


def test_a_renumbered_palette_is_read_by_the_colours_of_a_labelmap(tmp_path: Path) -> None:
    mask = in_palette([[0, 1, 2]], {0: (200, 0, 0), 1: (0, 0, 0), 2: (10, 20, 30)})
    data = load(folder(tmp_path, {"a": mask}, labelmap=LABELMAP))
    assert np.array_equal(numbers_of(data[0], data.labels), [[2, 0, 1]])


def test_a_palette_in_other_colours_than_the_labelmap_holds_numbers(tmp_path: Path) -> None:
    mask = in_palette([[0, 1, 2]], {0: (0, 0, 0), 1: (50, 50, 50), 2: (60, 60, 60)})
    data = load(folder(tmp_path, {"a": mask}, labelmap=LABELMAP))
    assert np.array_equal(numbers_of(data[0], data.labels), [[0, 1, 2]])


# One class, and pixels that do not count


@pytest.mark.parametrize("mode", ["L", "1", "RGB", "P"])
@pytest.mark.parametrize("shown", [1, 255])
def test_one_object_in_black_and_white(tmp_path: Path, mode: str, shown: int) -> None:
    """Of one class both spellings mean the object where nothing is void."""
    truth = noise(5, 6)[..., 0] % 2 == 1
    mask = grey(np.where(truth, 255 if mode == "1" else shown, 0))
    mask = in_palette(truth, {0: (0, 0, 0), 1: (255, 255, 255)}) if mode == "P" else mask.convert(mode)
    data = load(folder(tmp_path, {"a": mask}), classes=["dog"], void=None)
    assert data[0].valid is None
    assert np.array_equal(data[0].masks["dog"], truth)


def test_black_and_white_in_a_palette_are_0_and_1(tmp_path: Path) -> None:
    """White is 255, but it is not what the pixels hold."""
    mask = in_palette([[0, 1, 1]], {0: (0, 0, 0), 1: (255, 255, 255)})
    data = load(folder(tmp_path, {"a": mask}), classes=["dog"])
    assert np.array_equal(data[0].masks["dog"], [[False, True, True]])


def test_one_class_with_a_border(tmp_path: Path) -> None:
    data = load(folder(tmp_path, {"a": [[0, 1, 255]]}), classes=["dog"])
    assert np.array_equal(data[0].masks["dog"], [[False, True, False]])
    assert np.array_equal(data[0].valid, [[True, True, False]])


def test_another_number_that_does_not_count(tmp_path: Path) -> None:
    data = load(folder(tmp_path, {"a": [[0, 1, 9, 2]]}), classes=["dog", "cat"], void=9)
    assert np.array_equal(numbers_of(data[0], data.labels, void=9), [[0, 1, 9, 2]])


def test_a_picture_with_nothing_in_it(tmp_path: Path) -> None:
    (sample,) = load(folder(tmp_path, {"a": [[0, 0]]}), classes=["dog"])
    assert sample.masks == {}
    assert sample.group == "0 objects"


def test_settings_are_plain(tmp_path: Path) -> None:
    assert Voc(source=tmp_path).model_dump(mode="json") == {
        "source": str(tmp_path),
        "images": None,
        "masks": None,
        "classes": None,
        "split": None,
        "void": 255,
    }
