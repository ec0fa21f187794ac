"""Views: from the explanation of one picture and target to a drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageColor, ImageFilter

from explainer import views
from explainer.explanation import Explanation
from explainer_registry import ExplainerError

if TYPE_CHECKING:
    from explainer_plugins.views import Heat, Outline, Overlay, Spotlight


def overlay(config: Overlay, explanation: Explanation) -> Image.Image:
    """Draw the map in colours over its picture; see `explainer.views.overlay`."""
    return views.overlay(explanation, alpha=config.alpha, colormap=config.colormap, normalize=config.normalize)


def heat(config: Heat, explanation: Explanation) -> Image.Image:
    """Draw the map alone: red for, blue against and white between where it has two signs, else dark to bright."""
    signed = bool((explanation.maps < 0).any())
    values = explanation.heat(normalize="symmetric" if signed else "minmax")[0, 0]
    return views.coloured((values + 1) / 2, "matplotlib:bwr") if signed else views.coloured(values, "bids:inferno")


def spotlight(config: Spotlight, explanation: Explanation) -> Image.Image:
    """Draw the picture, its brightness falling from 1 at the hottest pixel to the floor at the coldest.

    Where the map has two signs, everything that does not speak for the target is as dark as the coldest.
    """
    signed = bool((explanation.maps < 0).any())
    values = explanation.heat(normalize="symmetric" if signed else "minmax")[0, 0].clamp(min=0).cpu().numpy()
    plain = np.asarray(views.plain(explanation), dtype=np.float32)
    light = config.floor + (1 - config.floor) * values[..., None]
    return Image.fromarray(np.rint(plain * light).astype(np.uint8))


def outline(config: Outline, explanation: Explanation) -> Image.Image:
    """Draw the picture with a line, a hundredth of its shorter edge wide, around the pixels that are hot enough."""
    try:
        colour = ImageColor.getrgb(config.colour)[:3]
    except ValueError:
        raise ExplainerError(f"colour is a name of CSS such as 'red', or '#ff0000'; got {config.colour!r}") from None
    drawn = views.plain(explanation).copy()
    width = max(1, min(drawn.size) // 100)
    hot = Image.fromarray(explanation.mask(config.threshold)[0, 0].cpu().numpy().astype(np.uint8) * 255)
    within = hot.filter(ImageFilter.MinFilter(2 * width + 1))
    line = np.asarray(hot, dtype=np.int16) - np.asarray(within, dtype=np.int16)
    drawn.paste(colour, mask=Image.fromarray(line.astype(np.uint8)))
    return drawn
