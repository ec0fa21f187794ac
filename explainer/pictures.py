"""Reading what the user gives as pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from explainer.frame import Frame
from explainer_registry import ExplainerError
from explainer_registry.errors import shown

if TYPE_CHECKING:
    from explainer.encoder import Encoder


class PictureError(ExplainerError):
    """A picture that cannot be read, or a tensor that is no batch of pictures."""


@dataclass(frozen=True)
class Batch:
    """Pictures as a model takes them.

    Attributes:
        images: [B, 3, H, W], preprocessed, on the model's device and in its dtype.
        pictures: The B originals in RGB; None for each where a tensor was given.
        frames: Where each input lies on its picture.
    """

    images: Tensor
    pictures: tuple[Image.Image | None, ...]
    frames: tuple[Frame, ...]


def read(given: Any, encoder: Encoder) -> Batch:
    """Read pictures in any of their spellings.

    Args:
        given: A path, a PIL picture, an array [H, W, 3] of uint8, or several of these in any iterable; or a
            tensor [B, 3, H, W] or [3, H, W], which is taken as preprocessed.
        encoder: Whose preprocessing applies.

    Raises:
        PictureError: Something cannot be read as a picture.
    """
    if isinstance(given, Tensor):
        images = _checked(given).to(encoder.device, encoder.dtype)
        width, height = images.shape[-1], images.shape[-2]
        frames = (Frame.whole((width, height)),) * len(images)
        return Batch(images, (None,) * len(images), frames)
    entries = _entries(given)
    if not entries:
        raise PictureError("the list of pictures is empty; give at least one")
    pictures = tuple(open_picture(entry) for entry in entries)
    images = torch.stack([encoder.preprocess(picture) for picture in pictures])
    frames = tuple(encoder.frame(picture) for picture in pictures)
    return Batch(images.to(encoder.device, encoder.dtype), pictures, frames)


def open_picture(given: Any) -> Image.Image:
    """Read one picture as RGB, turned the way it was taken.

    Args:
        given: A path, a PIL picture, or an array [H, W, 3] or [H, W] of uint8.

    Raises:
        PictureError: It cannot be read as a picture.
    """
    if isinstance(given, str) and "://" in given:
        raise PictureError(f"'{given}' is an address, not a file; download the picture and give its path")
    if isinstance(given, (str, PathLike)):
        return _from_file(Path(cast("str | PathLike[str]", given)))
    if isinstance(given, np.ndarray):
        return _from_array(cast("np.ndarray[Any, Any]", given))
    if isinstance(given, Image.Image):
        if 0 in given.size:
            raise PictureError(f"a picture has at least 1 x 1 pixels; got width and height {given.size}")
        return _as_rgb(ImageOps.exif_transpose(given))
    if isinstance(given, Tensor):
        raise PictureError(
            "tensors are preprocessed pictures and are given as one batch: torch.stack(tensors), not in a list"
        )
    raise PictureError(
        "a picture is a path, a PIL picture, a uint8 array [H, W, 3] or a preprocessed tensor; got "
        f"{shown(given)} ({type(given).__name__})"
    )


def _entries(given: Any) -> list[Any]:
    single = (str, bytes, PathLike, Image.Image, np.ndarray, Mapping)
    if isinstance(given, Iterable) and not isinstance(given, single):
        return list(cast("Iterable[Any]", given))
    return [given]


def _from_array(array: np.ndarray[Any, Any]) -> Image.Image:
    shape = array.shape
    if array.dtype != np.uint8 or array.ndim not in (2, 3) or shape[2:] not in ((), (3,)) or 0 in shape:
        several = "; give several pictures as a list: list(array)" if array.ndim == 4 else ""
        raise PictureError(
            f"an array picture is uint8 of shape [H, W, 3] in RGB, or [H, W] in grey; got {array.dtype} of shape "
            f"{list(shape)}{several}"
        )
    return Image.fromarray(array).convert("RGB")


def _from_file(path: Path) -> Image.Image:
    try:
        opened: Image.Image = Image.open(path)
        with opened:
            return _as_rgb(ImageOps.exif_transpose(opened))
    except PictureError as error:
        raise PictureError(f"the picture '{path}' cannot be read: {error}") from None
    except FileNotFoundError:
        raise PictureError(f"there is no picture at '{path}'") from None
    except IsADirectoryError:
        raise PictureError(
            f"'{path}' is a folder; give the pictures in it, such as Path('{path}').glob('*.jpg')"
        ) from None
    except UnidentifiedImageError:
        raise PictureError(f"'{path}' is not a picture in a format that Pillow reads") from None
    except Exception as error:  # what a decoder of a broken file raises is not one kind
        raise PictureError(f"the picture '{path}' cannot be read: {error}") from error


def _as_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I;16"):
        # Pillow's own conversion cuts off at 255 of 65535.
        grey = np.rint(np.asarray(picture, dtype=np.float32) / 257)
        return Image.fromarray(grey.astype(np.uint8)).convert("RGB")
    if picture.mode in ("I", "F"):
        raise PictureError(
            f"a picture of mode '{picture.mode}' says nothing about its range; scale it to 0..255 and give it as a "
            "uint8 array"
        )
    if picture.mode == "P":
        # Straight to RGB, Pillow warns of transparent colours, and drops them all the same.
        picture = picture.convert("RGBA")
    try:
        return picture.convert("RGB")
    except ValueError as error:
        raise PictureError(f"a picture of mode '{picture.mode}' cannot be turned into RGB: {error}") from None


def _checked(images: Tensor) -> Tensor:
    images = images.unsqueeze(0) if images.dim() == 3 else images
    if images.dim() != 4 or images.shape[1] != 3 or 0 in images.shape:
        raise PictureError(
            f"a tensor of pictures is [B, 3, H, W] or [3, H, W], preprocessed; got shape {list(images.shape)}"
        )
    if not images.is_floating_point():
        raise PictureError(
            f"a tensor of pictures is preprocessed floating point; got {str(images.dtype).removeprefix('torch.')}; "
            "give a PIL picture or a uint8 array to have it preprocessed"
        )
    if not bool(images.isfinite().all()):
        raise PictureError("a tensor of pictures holds NaN or infinity")
    # A tensor made inside inference_mode can take no part in a gradient; its copy can.
    return images.detach().clone() if images.is_inference() else images.detach()
