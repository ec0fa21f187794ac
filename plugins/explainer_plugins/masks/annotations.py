"""A COCO annotation file: what is in it, and whether it holds together."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from pydantic import BaseModel, Field, PositiveInt, ValidationError

from explainer.naming import counted
from explainer_plugins.masks.outlines import flaw
from explainer_plugins.masks.places import COCO_KEYS, DataError
from explainer_registry.errors import listed, shown

_SHOWN: Final = 8


class Category(BaseModel):
    """A class of objects."""

    id: int | str
    name: str = Field(min_length=1)


class Image(BaseModel):
    """A picture; its size is that of the masks."""

    id: int | str
    file_name: str
    width: PositiveInt
    height: PositiveInt


class Annotation(BaseModel):
    """An object, or a crowd of them, in one picture."""

    id: int | str | None = None
    image_id: int | str
    category_id: int | str
    segmentation: Any = None
    iscrowd: bool = False

    def named(self, path: Path) -> str:
        """Give what messages call it: its id, or that of its picture where it has none."""
        which = f"an annotation of picture {self.image_id!r}" if self.id is None else f"annotation {self.id!r}"
        return f"{which} in '{path}'"


class _File(BaseModel):
    images: list[Image]
    annotations: list[Annotation]
    categories: list[Category]


@dataclass(frozen=True)
class Annotated:
    """A picture and everything that is annotated in it."""

    image: Image
    annotations: tuple[Annotation, ...]


@dataclass(frozen=True)
class Annotations:
    """What an annotation file holds.

    Attributes:
        path: The file.
        names: Names of the categories by their id, in the order of the file.
        pictures: Those with at least one object that is no crowd, in the order of the file.
    """

    path: Path
    names: dict[int | str, str]
    pictures: tuple[Annotated, ...]


def read_annotations(path: Path) -> Annotations:
    """Read a COCO annotation file.

    Raises:
        DataError: It cannot be read, is not of this form, or does not hold together.
    """
    file = _validated(_parsed(path), path)
    _check_once((category.id for category in file.categories), "categories", "id", path)
    _check_once((category.name for category in file.categories), "categories", "name", path)
    _check_once((image.id for image in file.images), "images", "id", path)
    names = {category.id: category.name for category in file.categories}
    images = {image.id: image for image in file.images}
    _check_known([a for a in file.annotations if a.image_id not in images], "image_id", "images", path)
    _check_known([a for a in file.annotations if a.category_id not in names], "category_id", "categories", path)
    _check_outlined(file.annotations, path)
    by_image: dict[int | str, list[Annotation]] = defaultdict(list)
    for annotation in file.annotations:
        image = images[annotation.image_id]
        if found := flaw(annotation.segmentation, image.width, image.height):
            raise DataError(f"{annotation.named(path)} {found}")
        by_image[annotation.image_id].append(annotation)
    pictures = tuple(
        Annotated(image, tuple(by_image[image.id]))
        for image in file.images
        if not all(annotation.iscrowd for annotation in by_image[image.id])
    )
    if not pictures:
        raise DataError(f"no picture in '{path}' has an object in it; there is nothing to find")
    return Annotations(path, names, pictures)


def _parsed(path: Path) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise DataError(f"'{path}' holds {constant}, which is no number of JSON")

    try:
        return json.loads(path.read_text(encoding="utf-8-sig"), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise DataError(f"'{path}' is not valid JSON: line {error.lineno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise DataError(f"'{path}' is not a text file in UTF-8: {error}") from None
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}") from None


def _validated(document: Any, path: Path) -> _File:
    lacking = [key for key in COCO_KEYS if not isinstance(document, dict) or key not in document]
    if lacking:
        raise DataError(
            f"'{path}' is no file of COCO annotations: it lacks {listed(lacking)}; such a file holds the lists "
            f"{listed(COCO_KEYS)}"
        )
    try:
        return _File.model_validate(document)
    except ValidationError as error:
        raise DataError(f"'{path}' is no file of COCO annotations: {_first(error)}") from None


def _first(error: ValidationError) -> str:
    detail = error.errors(include_url=False)[0]
    keys = detail["loc"]
    if detail["type"] == "missing":
        return f"{_place(keys[:-1])} has no {keys[-1]}"
    return f"{_place(keys[:3])}: {detail['msg']} (given: {shown(detail['input'])})"


def _place(keys: Sequence[int | str]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def _check_once(values: Iterable[Hashable], where: str, field: str, path: Path) -> None:
    twice = [value for value, count in Counter(values).items() if count > 1]
    if twice:
        raise DataError(
            f"in '{path}' several {where} have the same {field}: {_written(twice)}; each has one of its own"
        )


def _check_known(strangers: Sequence[Annotation], field: str, where: str, path: Path) -> None:
    if strangers:
        values = list(dict.fromkeys(getattr(annotation, field) for annotation in strangers))
        raise DataError(
            f"in '{path}' {counted(len(strangers), 'annotation')} with a {field} that no entry of {where} has: "
            f"{_written(values)}"
        )


def _check_outlined(annotations: Sequence[Annotation], path: Path) -> None:
    bare = [annotation for annotation in annotations if not annotation.segmentation]
    if not bare:
        return
    if len(bare) == len(annotations):
        raise DataError(
            f"the annotations in '{path}' are boxes without a segmentation; maps are measured against outlines, so "
            "export the annotations as polygons or masks"
        )
    raise DataError(
        f"in '{path}' {len(bare)} of {counted(len(annotations), 'annotation')} without a segmentation, with the id "
        f"{_written([annotation.id for annotation in bare])}; outline these objects too, or they count as background"
    )


def _written(values: Sequence[object]) -> str:
    more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
    return ", ".join(map(repr, values[:_SHOWN])) + more
