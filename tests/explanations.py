"""Small explanations for the tests of everything that is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from explainer.explanation import Explanation
from explainer.frame import Frame
from explainer.provenance import Provenance
from explainer_registry import ExplainerError

PROVENANCE = Provenance("timm:resnet50", "a1_in1k", {"name": "gradcam"}, "layer4", "logit", {"torch": "2.6"})


def explanation(maps: Tensor | Sequence[Any], names: Sequence[str] | None = None, **fields: Any) -> Explanation:
    """Build an explanation of [B, T, h, w] maps, of tensors seen whole unless fields say otherwise."""
    maps = torch.as_tensor(maps, dtype=torch.float32)
    b, t, h, w = maps.shape
    names = tuple(names or [f"target {i}" for i in range(t)])
    plain = {
        "maps": maps,
        "names": names,
        "labels": (names,) * b,
        "scores": None,
        "pictures": (None,) * b,
        "inputs_size": (h, w),
        "frames": (Frame.whole((w, h)),) * b,
        "method": "gradcam",
        "provenance": PROVENANCE,
    }
    return Explanation(**(plain | fields))


def on_picture(maps: Any, picture: Image.Image, box: Sequence[float] | None = None, **fields: Any) -> Explanation:
    """Build an explanation of maps [T, h, w] of one picture."""
    frame = Frame.whole(picture.size) if box is None else Frame(picture.size, tuple(box))
    maps = torch.as_tensor(maps, dtype=torch.float32)[None]
    return explanation(maps, pictures=(picture,), frames=(frame,), **fields)


def values(*shape: int, smallest: float = -100.0, largest: float = 100.0) -> st.SearchStrategy[Tensor]:
    """Draw tensors of a shape."""
    numbers = st.floats(smallest, largest, width=32)
    count = torch.Size(shape).numel()
    return st.lists(numbers, min_size=count, max_size=count).map(lambda drawn: torch.tensor(drawn).view(shape))


@st.composite
def frames(draw: st.DrawFn, largest: int = 24) -> Frame:
    """Draw frames of small pictures: crops, paddings and both."""
    picture = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    edges: list[tuple[float, float]] = []
    for length in picture:
        start = draw(st.floats(-length, length - 0.5))
        edges.append((start, draw(st.floats(max(start, 0) + 0.25, 2 * length))))
    (left, right), (top, bottom) = edges
    return Frame(picture, (left, top, right, bottom))


def said(error: Any) -> str:
    """Give the message of a caught `ExplainerError`."""
    assert isinstance(error.value, ExplainerError)
    return str(error.value)
