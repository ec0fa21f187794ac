"""Which picture belongs to which mask."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from explainer.naming import counted, listing
from explainer_plugins.masks.places import (
    IMAGE_FOLDERS,
    MASK_FOLDERS,
    MASK_SUFFIXES,
    PICTURE_SUFFIXES,
    DataError,
    contents,
    files_by_stem,
    first_folder,
    mask_folder,
)
from explainer_registry.errors import did_you_mean, listed

if TYPE_CHECKING:
    from explainer_plugins.masks import Voc

_SPLITS: Final = Path("ImageSets", "Segmentation")
_LOSSY: Final = frozenset({".jpeg", ".jpg", ".webp"})


@dataclass(frozen=True)
class Pair:
    """A picture and its mask."""

    picture: Path
    mask: Path


@dataclass(frozen=True)
class Folder:
    """What is found in the folder of a data set.

    Attributes:
        source: The folder.
        is_voc: It has the layout of PASCAL VOC.
        pairs: At least one, in the order of the list, or of their names.
    """

    source: Path
    is_voc: bool
    pairs: tuple[Pair, ...]


def find_pairs(config: Voc) -> Folder:
    """Find the pictures and masks of a folder.

    Raises:
        DataError: A folder or a file is missing, or a name is there without its counterpart.
    """
    source = _checked(config.source.expanduser())
    images = _part(source, config.images, "images", IMAGE_FOLDERS)
    masks = _part(source, config.masks, "masks", MASK_FOLDERS)
    if images.samefile(masks):
        raise DataError(
            f"pictures and masks are both looked for in '{images}'; put the masks into a folder of their own"
        )
    pictures = files_by_stem(images, PICTURE_SUFFIXES, "picture")
    drawn = files_by_stem(masks, MASK_SUFFIXES, "mask")
    if not drawn:
        raise DataError(_without_masks(masks))
    is_voc = images.name == IMAGE_FOLDERS[0] and masks.name.startswith(MASK_FOLDERS[0])
    if config.split is None:
        names = list(drawn)
        # VOC has many more pictures than masks; elsewhere a missing mask is a slip.
        if not is_voc:
            _check_all([path for stem, path in pictures.items() if stem not in drawn], images, masks)
    else:
        names = _split(source, config.split)
        _check_named(names, drawn, "mask", masks, config.split)
    _check_named(names, pictures, "picture", images, config.split)
    return Folder(source, is_voc, tuple(Pair(pictures[name], drawn[name]) for name in names))


def _checked(source: Path) -> Path:
    if source.is_dir():
        return source
    if source.is_file():
        hint = f"; for COCO annotations say 'coco:{source}'" if source.suffix.lower() == ".json" else ""
        raise DataError(f"'{source}' is a file; voc reads a folder with pictures and masks{hint}")
    raise DataError(f"there is no folder '{source}'")


def _part(source: Path, given: Path | None, setting: str, names: tuple[str, ...]) -> Path:
    if given is not None:
        folder = source / given.expanduser()
        if not folder.is_dir():
            raise DataError(f"there is no folder '{folder}', where the setting {setting} looks; {contents(source)}")
        return folder
    folder = first_folder(source, names)
    if folder is None:
        inner = sorted(str(path) for path in source.iterdir() if path.is_dir() and mask_folder(path))
        hint = f" (did you mean '{inner[0]}'?)" if inner else ""
        raise DataError(
            f"'{source}' holds neither {names[0]} nor {names[1]}{hint}; say with the setting {setting} where the "
            f"{'masks' if names is MASK_FOLDERS else 'pictures'} are; {contents(source)}"
        )
    return folder


def _without_masks(folder: Path) -> str:
    lossy = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in _LOSSY)
    if lossy:
        return (
            f"the masks in '{folder}' are of a kind that does not keep numbers exactly: {listing(lossy)}; save them "
            "anew, from where they were drawn, as PNG"
        )
    return f"there are no masks in '{folder}'; a mask is a file of one of the kinds {listed(sorted(MASK_SUFFIXES))}"


def _check_all(without: list[Path], images: Path, masks: Path) -> None:
    if without:
        raise DataError(
            f"{counted(len(without), 'picture')} in '{images}' without a mask of the same name in '{masks}': "
            f"{listing([path.name for path in without])}; give each a mask, which is 0 all over where there is "
            f"nothing to find, or write the names to take, without suffix, one on each line, to {_SPLITS / 'some.txt'} "
            "in the folder, and take them with --set data.split=some"
        )


def _check_named(names: list[str], found: Collection[str], noun: str, folder: Path, split: str | None) -> None:
    without = [name for name in names if name not in found]
    if not without:
        return
    if split is None:
        raise DataError(
            f"{counted(len(without), 'mask')} without a {noun} of the same name in '{folder}': {listing(without)}; "
            "a mask is named as its picture is, such as dog.png for dog.jpg"
        )
    raise DataError(
        f"{counted(len(without), 'name')} of split {split!r} without a {noun} in '{folder}': {listing(without)}"
    )


def _split(source: Path, split: str) -> list[str]:
    path = source / _SPLITS / f"{split}.txt"
    if not path.is_file():
        splits = sorted(other.stem for other in path.parent.glob("*.txt"))
        raise DataError(
            f"there is no split {split!r} in '{path.parent}'{did_you_mean(split, splits)} (splits: {listed(splits)})"
        )
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    names = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not names:
        raise DataError(f"'{path}' is empty; it holds the names of pictures, without suffix, one on each line")
    return names
