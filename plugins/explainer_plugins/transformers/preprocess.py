"""From an image processor of transformers to our own preprocessing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from explainer.encoder import EncoderError
from explainer.pictures import PictureError
from explainer.preprocess import Preprocess

_TOLERANCE = 0.04  # of the range from black to white; resampling differs between implementations
_SIDES = (240, 180)  # of the pictures that are tried


@dataclass(frozen=True)
class BlueFirst(Preprocess):
    """Preprocessing for a model that takes its channels as blue, green, red."""

    def __call__(self, picture: Image.Image) -> Tensor:
        """Turn a picture into a model input; see :class:`Preprocess`."""
        return super().__call__(picture).flip(0)


@dataclass(frozen=True)
class Unprepared(Preprocess):
    """Stands where it is not known how pictures are prepared: the model takes tensors only.

    Attributes:
        reason: Why, and what to do.
    """

    reason: str = ""

    def __call__(self, picture: Image.Image) -> Tensor:
        """Refuse a picture.

        Raises:
            PictureError: Always.
        """
        raise PictureError(self.reason)


def preprocess_of(processor: Any, size: tuple[int, int] | None, name: str) -> Preprocess:
    """Say in our words what an image processor does.

    How values are scaled is measured on a black and a white picture, how pictures are fitted is read from the
    processor's settings, and both are tried on two smooth pictures, one wide and one tall.

    Args:
        processor: An image processor of transformers.
        size: Height and width wanted instead of the processor's own.
        name: Name of the encoder, for messages.

    Returns:
        The preprocessing; one that refuses pictures where the processor does something else.

    Raises:
        EncoderError: It does something else, and no size was given.
    """
    black, white, wide, tall = (_run(processor, picture) for picture in (_flat(0), _flat(255), *_smooth()))
    known = [given for given in (black, white, wide, tall) if given is not None]
    if black is not None and white is not None and wide is not None and tall is not None:
        for candidate in _candidates(processor, black, white):
            span = torch.tensor(candidate.std)[:, None, None]
            pairs = zip(_smooth(), (wide, tall), strict=True)
            if all(_alike(candidate(picture), given, span) for picture, given in pairs):
                return candidate if size is None else at_size(candidate, size)
    kind = type(processor).__name__
    if size is None and not known:
        raise EncoderError(
            f"the image processor of {name}, a {kind}, gives no pixel_values [1, 3, H, W]; say the size of the input, "
            "wrap(model, size=(height, width)), and give prepared tensors"
        )
    return Unprepared(
        size=size or (known[-1].shape[1], known[-1].shape[2]),
        reason=f"the image processor of {name}, a {kind}, prepares pictures in a way that is not understood here; run "
        "it yourself and give the tensor: processor(images=picture, return_tensors='pt')['pixel_values']",
    )


def at_size(preprocess: Preprocess, size: tuple[int, int]) -> Preprocess:
    """Change the size of the input, and keep the share of the picture that is cut out."""
    scaled = preprocess.scaled or preprocess.size
    shares = zip(size, scaled, preprocess.size, strict=True)
    height, width = (round(new * outer / inner) for new, outer, inner in shares)
    return dataclasses.replace(preprocess, size=size, scaled=(height, width))


def default_processor(model: Any) -> Any:
    """Make the image processor of a model's family with its default settings; None where there is no such thing."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING

    found: Any = IMAGE_PROCESSOR_MAPPING.get(type(model.config), None) or {}
    # In older versions a pair: that for Pillow, and that for torchvision.
    kinds = found if isinstance(found, dict) else dict(zip(("pil", "torchvision"), found, strict=True))
    kind = kinds.get("torchvision") or kinds.get("pil")
    try:
        return None if kind is None else kind()
    except TypeError:  # it has no defaults (that of timm's models)
        return None


def _run(processor: Any, picture: Image.Image) -> Tensor | None:
    try:
        given = processor(images=picture, return_tensors="pt")["pixel_values"]
    except Exception:  # what a processor of another kind raises is not one kind
        return None
    return given[0].float() if isinstance(given, Tensor) and given.dim() == 4 and given.shape[1] == 3 else None


def _flat(value: int) -> Image.Image:
    return Image.new("RGB", _SIDES, (value, value, value))


def _smooth() -> tuple[Image.Image, Image.Image]:
    """A wide and a tall picture without edges, of which no part and no mirror image looks like another."""
    y, x = np.mgrid[0 : 1 : _SIDES[1] * 1j, 0 : 1 : _SIDES[0] * 1j]
    waves = np.stack([np.sin(3 * x + y), np.cos(4 * y + x), np.sin(2 * x - 3 * y + 1)], axis=-1)
    wide = Image.fromarray(np.uint8(127 + 120 * waves))
    return wide, wide.transpose(Image.Transpose.ROTATE_90)


def _candidates(processor: Any, black: Tensor, white: Tensor) -> Iterator[Preprocess]:
    """Everything that the settings of a processor can mean, the plainest first."""
    height, width = black.shape[1:]
    low, high = black[:, height // 2, width // 2], white[:, height // 2, width // 2]
    if bool((high <= low).any()):
        return
    std = [round(1 / float(span), 6) for span in high - low]
    mean = [round(-float(value) * scale, 6) for value, scale in zip(low, std, strict=True)]
    given = getattr(processor, "resample", None)
    resampling = Image.Resampling.BILINEAR if given is None else Image.Resampling(int(given))
    # Where channels are turned round, these are those of blue, green and red.
    kind = BlueFirst if getattr(processor, "do_flip_channel_order", False) else Preprocess
    order = slice(None, None, -1) if kind is BlueFirst else slice(None)
    plain = kind((height, width), tuple(mean[order]), tuple(std[order]), resampling.name.lower())
    yield dataclasses.replace(plain, fit="squash")
    edges = _edges(processor)
    for edge in dict.fromkeys([*edges, *_enlarged(edges, getattr(processor, "crop_pct", None))]):
        if edge >= max(height, width):
            yield dataclasses.replace(plain, scaled=(edge, edge))
            yield dataclasses.replace(plain, scaled=(edge, edge), fit="squash")


def _edges(processor: Any) -> list[int]:
    given = [getattr(processor, name, None) or {} for name in ("size", "crop_size")]
    found = [dict(sizes).get(side) for sizes in given for side in ("shortest_edge", "height", "width")]
    return [edge for edge in found if edge]


def _enlarged(edges: list[int], share: float | None) -> list[int]:
    """Edges from which a share is cut out. LeViT's processor has its share of 224 in 256 in its code."""
    return [int(edge / part) for edge in edges for part in (share or 1, 224 / 256)]


def _alike(ours: Tensor, given: Tensor, span: Tensor) -> bool:
    return ours.shape == given.shape and float(((ours - given) * span).abs().max()) <= _TOLERANCE
