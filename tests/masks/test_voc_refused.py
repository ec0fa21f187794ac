"""Folders and masks that cannot be used: what is wrong, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from .common import VOC, folder, grey, in_palette, load, message, noise
from .test_voc import VOC_PALETTE, in_colours

A = [[0, 1, 2]]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    return folder(tmp_path / "pets", {"a": A, "b": A}, classes="dog\ncat")


def voc(source: Path, **settings: Any) -> Any:
    return load({"name": "voc", "source": source}, **settings)


# Folders


def test_no_folder(tmp_path: Path) -> None:
    assert message(lambda: voc(tmp_path / "pest")) == f"there is no folder '{tmp_path}/pest'"


def test_a_file(tmp_path: Path) -> None:
    for name, more in (("a.png", ""), ("a.json", f"; for COCO annotations say 'coco:{tmp_path}/a.json'")):
        (tmp_path / name).write_text("{}")
        assert message(lambda name=name: voc(tmp_path / name)) == (
            f"'{tmp_path}/{name}' is a file; voc reads a folder with pictures and masks{more}"
        )


def test_no_masks_folder(tmp_path: Path) -> None:
    assert message(lambda: voc(tmp_path)) == (
        f"'{tmp_path}' holds neither JPEGImages nor images; say with the setting images where the pictures are; there "
        "are no folders in it"
    )
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    assert message(lambda: voc(tmp_path)) == (
        f"'{tmp_path}' holds neither SegmentationClass nor masks; say with the setting masks where the masks are; in "
        "it are the folders 'images', 'labels'"
    )


def test_the_folder_above(pets: Path) -> None:
    assert message(lambda: voc(pets.parent)) == (
        f"'{pets.parent}' holds neither JPEGImages nor images (did you mean '{pets}'?); say with the setting images "
        "where the pictures are; in it are the folders 'pets'"
    )


def test_a_folder_that_is_not_there(pets: Path) -> None:
    assert message(lambda: voc(pets, masks="mask")) == (
        f"there is no folder '{pets}/mask', where the setting masks looks; in it are the folders 'images', 'masks'"
    )


def test_pictures_and_masks_in_one_folder(pets: Path) -> None:
    assert message(lambda: voc(pets, images="masks")) == (
        f"pictures and masks are both looked for in '{pets}/masks'; put the masks into a folder of their own"
    )


def test_an_empty_folder_of_masks(pets: Path) -> None:
    for path in pets.glob("masks/*"):
        path.unlink()
    assert message(lambda: voc(pets)) == (
        f"there are no masks in '{pets}/masks'; a mask is a file of one of the kinds .bmp, .png, .tif, .tiff"
    )


def test_masks_as_jpeg(pets: Path) -> None:
    for path in pets.glob("masks/*"):
        path.rename(path.with_suffix(".jpg"))
    assert message(lambda: voc(pets)) == (
        f"the masks in '{pets}/masks' are of a kind that does not keep numbers exactly: 'a.jpg', 'b.jpg'; save them "
        "anew, from where they were drawn, as PNG"
    )


# Pairs


def test_masks_without_a_picture(pets: Path) -> None:
    (pets / "masks" / "b.png").rename(pets / "masks" / "b_mask.png")
    (pets / "images" / "b.png").unlink()
    assert message(lambda: voc(pets)) == (
        f"1 mask without a picture of the same name in '{pets}/images': 'b_mask'; a mask is named as its picture is, "
        "such as dog.png for dog.jpg"
    )


def test_pictures_without_a_mask(pets: Path) -> None:
    for name in "cdefghijkl":
        Image.fromarray(noise(1, 3)).save(pets / "images" / f"{name}.jpg")
    assert message(lambda: voc(pets)) == (
        f"10 pictures in '{pets}/images' without a mask of the same name in '{pets}/masks': 'c.jpg', 'd.jpg', 'e.jpg', "
        "'f.jpg', 'g.jpg', 'h.jpg', 'i.jpg', 'j.jpg', and 2 more; give each a mask, which is 0 all over where there is "
        "nothing to find, or write the names to take, without suffix, one on each line, to "
        "ImageSets/Segmentation/some.txt in the folder, and take them with --set data.split=some"
    )
    (pets / "ImageSets" / "Segmentation").mkdir(parents=True)
    (pets / "ImageSets" / "Segmentation" / "some.txt").write_text("a\nb\n")
    assert len(voc(pets, split="some")) == 2


@pytest.mark.parametrize(("place", "noun"), [("images", "picture"), ("masks", "mask")])
def test_two_of_one_name(pets: Path, place: str, noun: str) -> None:
    grey(A).save(pets / place / "a.bmp")
    assert message(lambda: voc(pets)) == (
        f"two {noun}s in '{pets}/{place}' have the name 'a': a.bmp and a.png; keep one of them there"
    )


def test_splits(pets: Path) -> None:
    lists = pets / "ImageSets" / "Segmentation"
    assert message(lambda: voc(pets, split="val")) == f"there is no split 'val' in '{lists}' (splits: none)"
    lists.mkdir(parents=True)
    (lists / "train.txt").write_text("a\nx\ny\n")
    (lists / "val.txt").write_text("\n")
    assert message(lambda: voc(pets, split="vla")) == (
        f"there is no split 'vla' in '{lists}'; did you mean 'val'? (splits: train, val)"
    )
    assert message(lambda: voc(pets, split="val")) == (
        f"'{lists}/val.txt' is empty; it holds the names of pictures, without suffix, one on each line"
    )
    assert message(lambda: voc(pets, split="train")) == (
        f"2 names of split 'train' without a mask in '{pets}/masks': 'x', 'y'"
    )
    for name in "xy":
        grey(A).save(pets / "masks" / f"{name}.png")
    assert message(lambda: voc(pets, split="train")) == (
        f"2 names of split 'train' without a picture in '{pets}/images': 'x', 'y'"
    )


def test_a_mask_of_another_size(pets: Path) -> None:
    grey(noise(4, 5)[..., 0]).save(pets / "masks" / "b.png")
    assert message(lambda: voc(pets)) == (
        f"the mask '{pets}/masks/b.png' is 5 x 4 pixels, but the picture '{pets}/images/b.png' is 3 x 1 (width x "
        "height); a mask has the size of its picture"
    )


@pytest.mark.parametrize(("place", "noun"), [("images", "picture"), ("masks", "mask")])
def test_files_that_are_no_pictures(pets: Path, place: str, noun: str) -> None:
    (pets / place / "b.png").write_text("nothing")
    assert message(lambda: voc(pets)) == (
        f"the {noun} '{pets}/{place}/b.png' is not a picture in a format that Pillow reads"
    )


def test_files_that_break_off(tmp_path: Path) -> None:
    folder(tmp_path, {name: noise(40, 50)[..., 0] % 3 for name in "ab"}, classes="dog\ncat")
    for path in (tmp_path / "images" / "a.png", tmp_path / "masks" / "b.png"):
        path.write_bytes(path.read_bytes()[:200])
    data = voc(tmp_path)
    why = "image file is truncated"
    assert message(lambda: data[0]).startswith(f"the picture '{tmp_path}/images/a.png' cannot be read: {why}")
    assert message(lambda: data[1]).startswith(f"the mask '{tmp_path}/masks/b.png' cannot be read: {why}")


# Names


def test_no_names(tmp_path: Path) -> None:
    folder(tmp_path, {"a": [[0, 7, 9]]})
    advice = (
        f"nothing names the classes in '{tmp_path}'; give them with the setting classes, such as "
        "--set data.classes=[dog,cat] "
        "where dogs are 1 in the masks and cats 2, or in a file classes.txt there, one on each line"
    )
    assert message(lambda: voc(tmp_path)) == f"{advice}; the first mask, a.png, holds 0, 7, 9"
    grey([[0, 255, 255]]).save(tmp_path / "masks" / "a.png")
    assert message(lambda: voc(tmp_path)) == (
        f"{advice}; the first mask, a.png, holds 0, 255 (then --set data.classes=[dog] --set data.void=null)"
    )
    in_colours([[0, 1, 1]], (9, 0, 0), (1, 2, 3)).save(tmp_path / "masks" / "a.png")
    assert message(lambda: voc(tmp_path)) == advice


def test_names_that_are_not_right(pets: Path) -> None:
    assert message(lambda: voc(pets, classes=[])) == (
        "the setting classes names no classes; give one name for each number in the masks, from 1 on"
    )
    assert message(lambda: voc(pets, classes=["dog", " ", "cat"])) == (
        "in the setting classes number 2 has an empty name; each class has one, in order from 1 on"
    )
    (pets / "classes.txt").write_text("background\ndog\ncat\ndog\n")
    assert message(lambda: voc(pets)) == (
        f"in '{pets}/classes.txt' the numbers 1 and 3 are both called 'dog'; a name stands for one number"
    )
    (pets / "classes.txt").write_bytes(b"\xff\xfe")
    assert message(lambda: voc(pets)) == (
        f"'{pets}/classes.txt' is not a text file in UTF-8: 'utf-8' codec can't decode byte 0xff in position 0: "
        "invalid start byte"
    )


def test_labelmaps_that_are_not_right(tmp_path: Path) -> None:
    path = folder(tmp_path, {"a": A}, labelmap="dog:1,2,3::\n\ncat:300,0,0::\n") / "labelmap.txt"
    for colour in ("300,0,0", "1,2", "red"):
        path.write_text(f"dog:1,2,3::\n\ncat:{colour}::\n")
        assert message(lambda: voc(tmp_path)) == (
            f"line 3 of '{path}' holds the colour {colour!r}; expected red, green and blue from 0 to 255, such as "
            "dog:64,0,128::"
        )
    path.write_text("dog:1,2,3::\ncat:1,2,3::\n")
    assert message(lambda: voc(tmp_path)) == f"line 2 of '{path}' repeats the colour 1,2,3; a colour is one class"


# Numbers and colours


def test_numbers_without_a_name(tmp_path: Path) -> None:
    folder(tmp_path, {"a": [[0, 1, 3]], "b": [list(range(20))]}, classes="dog\ncat")
    data, start = voc(tmp_path), f"the mask '{tmp_path}/masks"
    end = (
        f"(from '{tmp_path}/classes.txt'); name every number with the setting classes, or in classes.txt in the folder"
    )
    assert message(lambda: data[0]) == f"{start}/a.png' holds the number 3, but only 1 to 2 have names {end}"
    assert message(lambda: data[1]) == (
        f"{start}/b.png' holds the numbers 3, 4, 5, 6, 7, 8, 9, 10 and 9 more, but only 1 to 2 have names {end}"
    )


def test_numbers_that_voc_does_not_have(tmp_path: Path) -> None:
    data = voc(folder(tmp_path, {"a": [[0, 20, 21]]}, VOC))
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/SegmentationClass/a.png' holds the number 21, but only 1 to 20 have names (from PASCAL "
        "VOC, since nothing else names the classes); name every number with the setting classes, or in classes.txt in "
        "the folder"
    )


def test_255_of_one_class_is_not_guessed(tmp_path: Path) -> None:
    data = voc(folder(tmp_path, {"a": [[0, 255, 255]]}), classes=["dog"])
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/masks/a.png' holds 255 but not 1: where 255 is the object ('dog'), say --set "
        "data.void=null; where it marks what is left undecided, nothing of the object is left, so take the picture out"
    )


def test_255_where_nothing_is_void(tmp_path: Path) -> None:
    data = voc(folder(tmp_path, {"a": [[0, 1, 255]]}), classes=["dog"], void=None)
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/masks/a.png' holds the number 255, but only 1 has a name ('dog', from the setting "
        "classes); say --set data.void=255 where it marks what is left undecided"
    )


@pytest.mark.parametrize("void", [None, 255])
def test_soft_edges(tmp_path: Path, void: int | None) -> None:
    data = voc(folder(tmp_path, {"a": [[0, 3, 90, 160, 254, 255]]}), classes=["dog"], void=void)
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/masks/a.png' holds the numbers 3, 90, 160, 254, but only 1 has a name ('dog', from the "
        "setting classes); numbers in between are soft edges, which drawing or resizing leaves; save the mask with two "
        "values only"
    )


def test_colours_that_stand_for_nothing(tmp_path: Path) -> None:
    mask = in_colours([[0, 1, 2]], (0, 0, 0), (12, 34, 56), (255, 0, 0))
    data = voc(folder(tmp_path, {"a": mask}, VOC))
    start = f"the mask '{tmp_path}/SegmentationClass/a.png' holds colours that are not in "
    end = " (red,green,blue); list the colour of each class in labelmap.txt in the folder, such as dog:64,0,128::"
    assert message(lambda: data[0]) == f"{start}PASCAL VOC's palette: '12,34,56', '255,0,0'{end}"
    (tmp_path / "labelmap.txt").write_text("dog:255,0,0::")
    data = voc(tmp_path)
    assert message(lambda: data[0]) == f"{start}'{tmp_path}/labelmap.txt': '12,34,56'{end}"


@pytest.mark.parametrize(
    ("colours", "stands"),
    [
        ({0: (0, 0, 0), 1: (0, 128, 0), 2: (128, 0, 0)}, "0, 2, 1"),
        ({0: (0, 0, 0), 1: (2, 2, 2), 2: (255, 255, 255)}, "0, 2, 255"),
    ],
)
def test_a_renumbered_palette(tmp_path: Path, colours: dict[int, tuple[int, int, int]], stands: str) -> None:
    """What programs that make PNG smaller do to masks in VOC's colours, and to grey masks."""
    data = voc(folder(tmp_path, {"a": in_palette(A, colours)}), classes=["dog", "cat"])
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/masks/a.png' can be read in two ways: its pixels hold the numbers 0, 1, 2, but in "
        f"colours that stand for {stands}; save it as grey levels of the right numbers, or list the colour of each "
        "class in labelmap.txt in the folder, such as dog:64,0,128::"
    )


@pytest.mark.parametrize("mode", ["LA", "RGBA"])
def test_transparent_masks(tmp_path: Path, mode: str) -> None:
    mask = in_palette(A, VOC_PALETTE).convert("RGB").convert(mode)
    mask.putalpha(grey([[255, 255, 254]]))
    data = voc(folder(tmp_path, {"a": mask}), classes=["dog", "cat"])
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/masks/a.png' is transparent in places, which stands for no number; save it without "
        "transparency"
    )


def test_masks_of_other_modes(tmp_path: Path) -> None:
    folder(tmp_path, {"a": A}, classes="dog\ncat")
    (tmp_path / "masks" / "a.png").unlink()
    Image.fromarray(np.array(A, dtype=np.float32)).save(tmp_path / "masks" / "a.tif")
    data = voc(tmp_path)
    assert message(lambda: data[0]) == (
        f"the mask '{tmp_path}/masks/a.tif' is of mode 'F'; a mask holds a number at each pixel, as grey levels or "
        "indices of a palette"
    )


# Settings


def test_settings_that_are_not_right(pets: Path) -> None:
    assert message(lambda: voc(pets, voids=3)) == (
        "voids: no such setting of 'voc'; did you mean 'void'? (settings: source, images, masks, classes, split, void)"
    )
    assert message(lambda: voc(pets, classes="dog")) == "classes: Input should be a valid tuple (given: 'dog')"
    assert message(lambda: voc(pets, void=0)) == "void: Input should be greater than or equal to 1 (given: 0)"
    assert message(lambda: load("voc")) == "source: 'voc' needs this setting and has no default for it"
