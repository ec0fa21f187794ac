"""Where the files of a data set are, as far as names tell. Imports nothing heavy."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

from explainer.naming import listing
from explainer_registry import ExplainerError

IMAGE_FOLDERS: Final = ("JPEGImages", "images")
MASK_FOLDERS: Final = ("SegmentationClass", "masks")
"""In the order in which they are looked for."""

PICTURE_SUFFIXES: Final = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
MASK_SUFFIXES: Final = frozenset({".bmp", ".png", ".tif", ".tiff"})
"""Kinds of files that keep numbers exactly."""

COCO_KEYS: Final = ("images", "annotations", "categories")


class DataError(ExplainerError):
    """Pictures or masks that cannot be used as they are."""


def mask_folder(source: Path) -> Path | None:
    """Find the folder of masks in a data set.

    Args:
        source: Folder of the data set.

    Returns:
        The first of `MASK_FOLDERS` that it holds; None where it holds neither.
    """
    return first_folder(source, MASK_FOLDERS)


def first_folder(source: Path, names: tuple[str, ...]) -> Path | None:
    """Give the first folder of these names in another one; None where there is none."""
    return next((source / name for name in names if (source / name).is_dir()), None)


def annotation_files(source: Path) -> list[Path]:
    """Find the files of COCO annotations in a folder and in its folder annotations, by a look into each.

    Args:
        source: Folder of the data set.

    Returns:
        Every such file, sorted; of captions and key points only where there are no others.
    """
    candidates = [*source.glob("*.json"), *source.glob("annotations/*.json")]
    found = sorted(path for path in candidates if _mentions_coco(path))
    # The published sets of COCO come with files on the same pictures that are about something else.
    instances = [path for path in found if path.name.startswith("instances")]
    return instances or found


def files_by_stem(folder: Path, suffixes: frozenset[str], noun: str) -> dict[str, Path]:
    """List the files of a folder by their name without the suffix.

    Args:
        folder: Where; not what is in folders in it.
        suffixes: Which files, in lower case.
        noun: What they are, in the singular.

    Returns:
        The files, sorted by name. Hidden ones are left out.

    Raises:
        DataError: Two have the same name but for the suffix.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.suffix.lower() not in suffixes:
            continue
        if path.stem in found:
            raise DataError(
                f"two {noun}s in '{folder}' have the name {path.stem!r}: {found[path.stem].name} and {path.name}; "
                "keep one of them there"
            )
        found[path.stem] = path
    return found


def contents(folder: Path) -> str:
    """Say which folders are in a folder, to end a message with."""
    folders = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    return f"in it are the folders {listing(folders)}" if folders else "there are no folders in it"


def _mentions_coco(path: Path) -> bool:
    # Annotations may be hundreds of megabytes, and a look decides what reading them would cost.
    if not path.is_file() or path.name.startswith(".") or path.stat().st_size == 0:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return all(data.find(f'"{key}"'.encode()) >= 0 for key in COCO_KEYS)
