"""The drawings of the held-out hand, Twemoji, which the sticker model was not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import count
from types import MappingProxyType

from PIL import Image

from explainer_plugins.stickers.tokenizer import nouns

_CELL = 64
_COLUMNS = 12
_FAINT = 16
"""Up to this opacity, a pixel does not count for where a drawing ends."""


@cache
def drawings() -> Mapping[str, tuple[Image.Image, ...]]:
    """Read the drawings of all nouns, each RGBA and cut out tightly.

    They lie in the cells of one picture, in the order of the nouns and of their code points.
    """
    with (files("explainer_plugins.stickers") / "data" / "drawings.png").open("rb") as file:
        atlas = Image.open(file).convert("RGBA")
    cells = map(divmod, count(), [_COLUMNS] * (atlas.width * atlas.height // _CELL**2))
    return MappingProxyType(
        {noun: tuple(_cut_out(atlas, *next(cells)) for _ in codes) for noun, codes in nouns().items()}
    )


def _cut_out(atlas: Image.Image, row: int, column: int) -> Image.Image:
    cell = atlas.crop((column * _CELL, row * _CELL, (column + 1) * _CELL, (row + 1) * _CELL))
    return cell.crop(cell.getchannel("A").point([255 * (opacity > _FAINT) for opacity in range(256)]).getbbox())
