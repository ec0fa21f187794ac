"""Pictures and masks of one's own: folders in the layout of PASCAL VOC, and COCO annotation files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from explainer_plugins.masks.places import annotation_files, mask_folder
from explainer_registry import DatasetSpec, Schema, hookimpl


class Voc(Schema):
    """Pictures, and for each a mask of the same name whose pixels are the numbers of classes; 0 is background."""

    looks_for: ClassVar[str] = "a folder that holds a folder SegmentationClass or masks"

    source: Path = Field(description="Folder in the layout of PASCAL VOC, or with the folders images and masks.")
    images: Path | None = Field(
        None, description="Folder of the pictures, seen from source; by default JPEGImages or images."
    )
    masks: Path | None = Field(
        None, description="Folder of the masks, seen from source; by default SegmentationClass or masks."
    )
    classes: tuple[str, ...] | None = Field(
        None,
        description="Names of the classes; the first is number 1 in the masks, but a first 'background' is 0. By "
        "default from classes.txt, class_names.txt or labelmap.txt in source, and else the 20 of PASCAL VOC where "
        "source has its layout.",
    )
    split: str | None = Field(
        None, description="Name of the list in ImageSets/Segmentation of the pictures to take; by default all."
    )
    void: int | None = Field(
        255,
        ge=1,
        description="Number of pixels that are left undecided and do not count; null where there are none. Masks of "
        "one class that are 255 on the object have none.",
    )

    @classmethod
    def reads(cls, path: Path) -> bool:
        """Say whether a path that is given alone is meant for this dataset."""
        return mask_folder(path) is not None


class Coco(Schema):
    """Pictures with the objects that a COCO annotation file outlines; all of a category are one mask."""

    looks_for: ClassVar[str] = (
        "a COCO annotation file (.json), or a folder that holds one, or one in its folder annotations"
    )

    source: Path = Field(description="Annotation file, or a folder with one in it or in its folder annotations.")
    images: Path | None = Field(
        None,
        description="Folder of the pictures, seen from the folder of the annotation file; by default looked for "
        "around the file.",
    )

    @classmethod
    def reads(cls, path: Path) -> bool:
        """Say whether a path that is given alone is meant for this dataset."""
        return path.suffix.lower() == ".json" if path.is_file() else bool(annotation_files(path))


@hookimpl
def explainer_datasets() -> Iterable[DatasetSpec]:
    """Declare the datasets."""
    return [
        DatasetSpec(
            name="voc",
            schema=Voc,
            factory="explainer_plugins.masks.voc:build",
            summary="Pictures with mask pictures: 'voc:FOLDER', in PASCAL VOC's layout or with images/ and masks/.",
        ),
        DatasetSpec(
            name="coco",
            schema=Coco,
            factory="explainer_plugins.masks.coco:build",
            summary="Pictures with COCO annotations: 'coco:FILE.json', or a folder with the file in it.",
        ),
    ]
