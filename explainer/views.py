"""Drawing: heat over pictures, and pictures of many. PIL in, PIL out, always RGB."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image

from explainer.heat import Normalisation, lay, seen
from explainer.naming import listing, place, target_place
from explainer.sheet import sheet
from explainer_registry.errors import ExplainerError

if TYPE_CHECKING:
    from torch import Tensor

    from explainer.explanation import Explanation

_COLORMAPS: dict[Normalisation, str] = {"minmax": "bids:inferno", "symmetric": "matplotlib:bwr"}
_GREY = (128, 128, 128)  # stands for the picture where only a tensor was explained
_LEVELS = 257  # an odd number, so that zero has a colour of its own in the middle


def overlay(
    explanation: Explanation,
    target: int | str | None = None,
    picture: int = 0,
    *,
    alpha: float = 0.5,
    colormap: str | None = None,
    normalize: Normalisation | None = None,
) -> Image.Image:
    """Draw one map over its picture.

    A map without negative values is drawn from its minimum to its maximum in "bids:inferno", whose
    lightness rises with the heat. A map with negative values is drawn symmetrically in
    "matplotlib:bwr": red speaks for the target, blue against it, and the picture stays plain where
    neither does, for the colour's share grows with the strength of the heat. `normalize` and
    `colormap` overrule either choice. What the model did not see stays plain too. Where there is no
    picture, because a tensor was explained or the explanation was loaded, the heat lies on grey.

    Args:
        explanation: The maps and their pictures.
        target: Name or number of the target; None is the first.
        picture: Number of the picture.
        alpha: Share of the colour in the blend, 0 to 1; where the heat is strongest if drawn symmetrically.
        colormap: Name of a colour map of the `cmap` library.
        normalize: "minmax" or "symmetric".

    Returns:
        An RGB picture of the original's size.

    Raises:
        ExplainerError: There is no such target, picture, colour map or normalisation, or alpha is
            outside 0 to 1.
    """
    t, b = target_place(explanation.names, target, explanation.labels), place("picture", picture, len(explanation))
    return _drawn(explanation, t, plain(explanation, b), b, alpha, colormap, normalize)


def grid(explanations: Explanation | Sequence[Explanation], *, picture: int = 0, width: int = 224) -> Image.Image:
    """Draw one picture and its overlays side by side: a row per explanation, a column per target.

    Args:
        explanations: One or more, of the same pictures and targets, such as by several methods.
        picture: Number of the picture.
        width: Width of each drawing in pixels; the height follows from the picture.

    Returns:
        An RGB picture with the plain picture in the first column, targets written above the columns
        and methods beside the rows, in Pillow's built-in font: letters outside Latin show as boxes.

    Raises:
        ExplainerError: There is nothing to draw, the explanations differ in their targets or in the
            size of the picture, or the width is not positive.
    """
    rows = [explanations] if not isinstance(explanations, Sequence) else list(explanations)
    b = _check_grid(rows, picture, width)
    base = plain(rows[0], b)
    base = base.resize((width, max(1, round(width * base.height / base.width))), Image.Resampling.LANCZOS)
    cells = [[base, *(_drawn(row, t, base, b, 0.5, None, None) for t in range(len(row.names)))] for row in rows]
    agreed = len({row.labels[b] for row in rows}) == 1
    headings = ["picture", *(rows[0].labels[b] if agreed else rows[0].names)]
    return sheet(cells, headings, [row.method for row in rows])


def plain(explanation: Explanation, picture: int = 0) -> Image.Image:
    """Give the picture to draw on, grey where only a tensor was explained.

    Args:
        explanation: The maps and their pictures.
        picture: Number of the picture.
    """
    original = explanation.pictures[picture]
    return Image.new("RGB", explanation.frames[picture].picture, _GREY) if original is None else original


def coloured(values: Tensor, colormap: str) -> Image.Image:
    """Draw values in colours.

    Args:
        values: [H, W], 0 to 1.
        colormap: Name of a colour map of the `cmap` library.

    Returns:
        An RGB picture of as many pixels.

    Raises:
        ExplainerError: There is no such colour map.
    """
    return Image.fromarray(np.rint(_colours(colormap)[_levels(values.cpu().numpy())]).astype(np.uint8))


def _drawn(
    explanation: Explanation,
    t: int,
    base: Image.Image,
    b: int,
    alpha: float,
    colormap: str | None,
    normalize: Normalisation | None,
) -> Image.Image:
    """Blend one map into a picture, at the size of that picture."""
    if not 0 <= alpha <= 1:
        raise ExplainerError(f"alpha is the share of the colour, a number from 0 to 1; got {alpha}")
    maps, frames = explanation.maps[b, t].detach()[None, None], [explanation.frames[b]]
    how = normalize or ("symmetric" if bool((maps < 0).any()) else "minmax")
    size = (base.height, base.width)
    values = lay(maps, frames, size, how)[0, 0].cpu().numpy()
    visible = seen(frames, size, maps.device)[0, 0].cpu().numpy()
    share = visible * np.float32(alpha)
    if how == "symmetric":
        share, values = share * np.abs(values), (values + 1) / 2
    colours = _colours(colormap or _COLORMAPS[how])[_levels(values)]
    below = np.asarray(base, dtype=np.float32)
    return Image.fromarray(np.rint(below + share[..., None] * (colours - below)).astype(np.uint8))


def _levels(values: npt.NDArray[np.floating]) -> npt.NDArray[np.uint16]:
    return np.rint(values * (_LEVELS - 1)).astype(np.uint16)


@lru_cache(maxsize=8)
def _colours(name: str) -> npt.NDArray[np.float32]:
    """Tabulate a colour map, [_LEVELS, 3], 0 to 255."""
    import cmap  # only drawing needs it

    try:
        table = cmap.Colormap(name).lut(_LEVELS)
    except ValueError:
        near = get_close_matches(name, list(cmap.Catalog()), n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise ExplainerError(
            f"no colour map named {name!r}{hint} (all of them: https://cmap-docs.readthedocs.io)"
        ) from None
    return np.asarray(table[:, :3] * 255, dtype=np.float32)


def _check_grid(rows: Sequence[Explanation], picture: int, width: int) -> int:
    """Check that explanations can be drawn below each other; give the picture's place."""
    if not rows:
        raise ExplainerError("a grid needs at least one explanation; got none")
    if width < 1:
        raise ExplainerError(f"width is that of one drawing in pixels, at least 1; got {width}")
    first = rows[0]
    b = place("picture", picture, len(first))
    for number, row in enumerate(rows):
        if row.names != first.names:
            raise ExplainerError(
                f"the explanations of a grid need the same targets; number 0 has {listing(first.names)}, "
                f"number {number} has {listing(row.names)}"
            )
        if len(row) != len(first) or row.frames[b].picture != first.frames[b].picture:
            raise ExplainerError(
                f"the explanations of a grid need the same pictures; number 0 and number {number} differ"
            )
    return b
