"""The dataset of pictures with COCO annotations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from explainer.bench.sample import Sample
from explainer.naming import counted, listing
from explainer_plugins.masks.annotations import Annotated, Annotation, Image, read_annotations
from explainer_plugins.masks.outlines import encode, library, union
from explainer_plugins.masks.places import COCO_KEYS, DataError, annotation_files
from explainer_plugins.masks.upright import is_drawn_turned, open_drawn
from explainer_registry.errors import listed

if TYPE_CHECKING:
    from explainer_plugins.masks import Coco

_TRIED: Final = 20


@dataclass(frozen=True)
class _Entry:
    picture: Path
    turned: bool
    annotated: Annotated


class CocoDataset:
    """The pictures of an annotation file that have an object in them.

    The file and the heads of the pictures are read and checked when it is made; masks and pixels when they are
    asked for. All objects of a category are one mask. Where a crowd is outlined pixels do not count, of whatever
    category it is, since a sample says of each pixel only once whether it counts.

    Args:
        config: Where they are.

    Raises:
        DataError: Something about the file or the pictures is not as it should be.
    """

    def __init__(self, config: Coco) -> None:
        library()
        self._path = _annotation_file(config.source.expanduser())
        self._annotations = read_annotations(self._path)
        pictures = self._annotations.pictures
        folder = _picture_folder(self._path, config.images, pictures)
        _check_there(folder, pictures, self._path)
        self._entries = [_entry(folder, annotated, self._path) for annotated in pictures]

    @property
    def name(self) -> str:
        """Such as "coco:instances_val2017"."""
        return f"coco:{self._path.stem}"

    @property
    def labels(self) -> Sequence[str]:
        """The names of the categories, in the order of the file."""
        return tuple(self._annotations.names.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int, /) -> Sample:
        """Read a picture and draw its masks.

        Raises:
            ExplainerError: The picture cannot be read, or an outline cannot be drawn.
        """
        entry = self._entries[index]
        image = entry.annotated.image
        objects: dict[int | str, list[Annotation]] = defaultdict(list)
        crowds: list[Annotation] = []
        for annotation in entry.annotated.annotations:
            (crowds if annotation.iscrowd else objects[annotation.category_id]).append(annotation)
        valid = ~self._draw(crowds, image) if crowds else None
        masks: dict[str, npt.NDArray[np.bool_]] = {}
        for category, name in self._annotations.names.items():
            if category in objects:
                mask = self._draw(objects[category], image)
                mask = mask if valid is None else mask & valid
                if mask.any():
                    masks[name] = mask
        picture = open_drawn(entry.picture, entry.turned)
        return Sample(image.file_name, picture, masks, valid, counted(len(masks), "object"))

    def _draw(self, annotations: Sequence[Annotation], image: Image) -> npt.NDArray[np.bool_]:
        codes: list[Any] = []
        for annotation in annotations:
            try:
                codes += encode(annotation.segmentation, image.width, image.height)
            except DataError as error:
                raise DataError(f"{annotation.named(self._path)} {error}") from None
        return union(codes, image.width, image.height)


def build(config: Coco) -> CocoDataset:
    """Build the dataset that a `Coco` describes.

    Raises:
        ExplainerError: Something about the file or the pictures is not as it should be.
    """
    return CocoDataset(config)


def _annotation_file(source: Path) -> Path:
    if source.is_file():
        return source
    if not source.is_dir():
        raise DataError(f"there is no file or folder '{source}'")
    found = annotation_files(source)
    if not found:
        raise DataError(
            f"there is no file of COCO annotations in '{source}' or in its folder annotations; such a file ends in "
            f".json and holds the lists {listed(COCO_KEYS)}"
        )
    if len(found) > 1:
        ways = " or ".join(f"'coco:{path}'" for path in found[:2])
        raise DataError(
            f"there are {len(found)} files of COCO annotations in '{source}': "
            f"{listing([str(path.relative_to(source)) for path in found])}; say which, such as {ways}"
        )
    return found[0]


def _picture_folder(path: Path, given: Path | None, pictures: Sequence[Annotated]) -> Path:
    if given is not None:
        folder = path.parent / given.expanduser()
        if not folder.is_dir():
            raise DataError(f"there is no folder '{folder}', where the setting images looks")
        return folder
    above = [path.parent.parent] if path.parent.name == "annotations" else []
    places = [path.parent, path.parent / "images"]
    for folder in above:
        # Annotations of instances_val2017.json are of the pictures in val2017.
        split = path.stem.rpartition("_")[2]
        places += [folder, folder / "images", folder / split, folder / "images" / split]
    first = [_file_name(annotated) for annotated in pictures[:_TRIED]]
    for folder in places:
        if any((folder / name).is_file() for name in first):
            return folder
    raise DataError(
        f"the pictures of '{path}', such as {str(first[0])!r}, are in none of the folders "
        f"{listing([str(folder) for folder in places if folder.is_dir()])}; say with the setting images where they are"
    )


def _check_there(folder: Path, pictures: Sequence[Annotated], path: Path) -> None:
    missing = [annotated.image.file_name for annotated in pictures if not (folder / _file_name(annotated)).is_file()]
    if missing:
        raise DataError(
            f"{len(missing)} of {counted(len(pictures), 'picture')} of '{path}' not in '{folder}': {listing(missing)}; "
            "put them there, or say with the setting images where they are"
        )


def _entry(folder: Path, annotated: Annotated, path: Path) -> _Entry:
    picture, image = folder / _file_name(annotated), annotated.image
    turned = is_drawn_turned(picture, (image.width, image.height), f"what '{path}' says of {image.file_name}")
    return _Entry(picture, turned, annotated)


def _file_name(annotated: Annotated) -> Path:
    # Written on Windows, folders are separated by "\\".
    return Path(annotated.image.file_name.replace("\\", "/"))
