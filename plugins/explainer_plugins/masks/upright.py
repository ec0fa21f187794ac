"""Pictures that are stored turned: which way up the mask was drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from PIL import ExifTags, Image, UnidentifiedImageError

from explainer.pictures import open_picture
from explainer_plugins.masks.places import DataError

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

_ON_ITS_SIDE: Final = (5, 6, 7, 8)
_TURNED: Final = (2, 3, 4, *_ON_ITS_SIDE)
_TURNS_ITSELF: Final = "TIFF"
"""Of these files Pillow tells and gives nothing but what is shown."""


def open_file(path: Path, noun: str) -> Picture:
    """Open a picture without decoding it.

    Args:
        path: The file.
        noun: What it is, for messages.

    Raises:
        DataError: It cannot be opened as a picture.
    """
    try:
        return Image.open(path)
    except UnidentifiedImageError:
        raise DataError(f"the {noun} '{path}' is not a picture in a format that Pillow reads") from None
    except Exception as error:  # what a reader of broken files raises is not one kind
        raise DataError(f"the {noun} '{path}' cannot be read: {error}") from error


def is_drawn_turned(path: Path, size: tuple[int, int], truth: str) -> bool:
    """Say whether a mask lies on a picture as it is shown, or as it is stored. Reads the head of the file only.

    Some tools show pictures as their EXIF orientation says and others as they are stored, and masks are drawn on
    what is shown. The size of the mask tells which it was.

    Args:
        path: The picture.
        size: Width and height of the mask.
        truth: What has this size, for messages.

    Returns:
        True where the picture has to be turned by its EXIF orientation to lie under the mask.

    Raises:
        DataError: The picture cannot be opened, the size fits neither way, or it fits both ways and differs.
    """
    with open_file(path, "picture") as picture:
        orientation, stored = _orientation(picture), picture.size
    shown = (stored[1], stored[0]) if orientation in _ON_ITS_SIDE else stored
    if size not in (stored, shown):
        either = f", or {_sides(shown)} turned by its EXIF orientation" if shown != stored else ""
        raise DataError(
            f"{truth} is {_sides(size)} pixels, but the picture '{path}' is {_sides(stored)}{either} (width x height); "
            "a mask has the size of its picture"
        )
    if orientation in _TURNED and shown == stored:
        raise DataError(
            f"the picture '{path}' is stored turned (EXIF orientation {orientation}), and its size does not tell "
            f"whether {truth} was drawn on it as it is stored or as it is shown; run exiftool -Orientation= '{path}' "
            f"for as it is stored, or magick mogrify -auto-orient '{path}' for as it is shown"
        )
    return size != stored


def open_drawn(path: Path, turned: bool) -> Picture:
    """Read a picture in RGB the way up that its mask was drawn.

    Args:
        path: The picture.
        turned: What `is_drawn_turned` said.

    Raises:
        ExplainerError: It cannot be read.
    """
    with open_file(path, "picture") as picture:
        if turned or picture.format == _TURNS_ITSELF:
            return open_picture(path)
        try:
            # What reads pictures turns them by this, and finds nothing to do.
            picture.getexif()[ExifTags.Base.Orientation] = 1
            return open_picture(picture)
        except Exception as error:  # what a decoder of a broken file raises is not one kind
            raise DataError(f"the picture '{path}' cannot be read: {error}") from error


def _orientation(picture: Picture) -> int:
    # A PNG that does not say it at its head has to be decoded to the end to hear of it; it is read as stored.
    unheard = picture.format == "PNG" and "exif" not in picture.info
    if unheard or picture.format == _TURNS_ITSELF:
        return 1
    return picture.getexif().get(ExifTags.Base.Orientation, 1)


def _sides(size: tuple[int, int]) -> str:
    return f"{size[0]} x {size[1]}"
