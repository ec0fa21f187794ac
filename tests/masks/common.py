"""Small folders with known masks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from explainer.selection import select
from explainer_registry import ExplainerError, registry

VOC = ("JPEGImages", "SegmentationClass")
PLAIN = ("images", "masks")


def load(value: Any, **settings: Any) -> Any:
    """The dataset that a user gets for `--data VALUE`."""
    selected = select("datasets", value, settings)
    return registry().datasets.load(selected.name)(selected.options)


def message(call: Callable[[], object]) -> str:
    with pytest.raises(ExplainerError) as caught:
        call()
    return str(caught.value)


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def grey(numbers: Any) -> Image.Image:
    return Image.fromarray(np.asarray(numbers, dtype=np.uint8))


def in_palette(numbers: Any, colours: Mapping[int, tuple[int, int, int]]) -> Image.Image:
    """A mask with a palette; numbers that are not named in it are pink."""
    picture = grey(numbers)
    picture.putpalette([level for n in range(256) for level in colours.get(n, (255, 0, 200))])
    return picture


def folder(root: Path, masks: Mapping[str, Any], layout: tuple[str, str] = PLAIN, **texts: str) -> Path:
    """Write a data set: a picture of noise for each mask, and text files such as classes="dog\\ncat"."""
    for name in layout:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, mask in masks.items():
        drawn = mask if isinstance(mask, Image.Image) else grey(mask)
        drawn.save(root / layout[1] / f"{name}.png")
        Image.fromarray(noise(drawn.height, drawn.width)).save(root / layout[0] / f"{name}.png")
    for name, text in texts.items():
        (root / f"{name}.txt").write_text(text, encoding="utf-8")
    return root


def entry(number: int, file_name: str, height: int, width: int) -> dict[str, Any]:
    return {"id": number, "file_name": file_name, "height": height, "width": width}


def outlined(number: int, image: int, category: int, segmentation: Any, crowd: int = 0) -> dict[str, Any]:
    return {
        "id": number,
        "image_id": image,
        "category_id": category,
        "segmentation": segmentation,
        "iscrowd": crowd,
        "bbox": [0, 0, 1, 1],
    }


def coco(
    root: Path,
    annotations: Sequence[Mapping[str, Any]],
    images: Sequence[Mapping[str, Any]] = (),
    names: Sequence[str] = ("dog", "cat"),
    file: str = "annotations.json",
    pictures: str = "",
) -> Path:
    """Write an annotation file and its pictures, by default one of 6 x 8 pixels; categories are numbered from 1."""
    images = images or [entry(1, "a.png", 6, 8)]
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    categories = [{"id": number, "name": name} for number, name in enumerate(names, start=1)]
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    for image in images:
        picture = root / pictures / image["file_name"]
        picture.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(image["height"], image["width"])).save(picture)
    return path


def runs(mask: Any) -> list[int]:
    """Lengths of runs down the columns, background first, written without pycocotools."""
    flat = np.asarray(mask, dtype=bool).T.ravel()
    lengths, value, count = [], False, 0
    for pixel in flat:
        if pixel != value:
            lengths.append(count)
            value, count = bool(pixel), 0
        count += 1
    return [*lengths, count]


def save_turned(path: Path, pixels: np.ndarray, orientation: int) -> Path:
    exif = Image.Exif()
    exif[0x112] = orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, exif=exif)
    return path
