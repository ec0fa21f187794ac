"""What must hold for the fields of an explanation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from explainer.heat import flat
from explainer.naming import counted
from explainer_registry.errors import ExplainerError

if TYPE_CHECKING:
    from torch import Tensor

    from explainer.explanation import Explanation


def check(explanation: Explanation) -> None:
    """Check that the fields fit each other and that the maps are numbers.

    Args:
        explanation: The fields are all set.

    Raises:
        ExplainerError: A field does not fit, or a map holds NaN or infinity.
    """
    _check_maps(explanation)
    _check_shapes(explanation)
    _check_pictures(explanation)
    _check_finite(explanation)


def constant_maps(explanation: Explanation) -> list[str]:
    """Warn of maps that are constant, which no drawing shows.

    Args:
        explanation: Any.

    Returns:
        One sentence for each such map.
    """
    return [
        f"picture {b}, {explanation.labels[b][t]!r}: the map is constant and points nowhere; the score may "
        "not depend on this layer, or the method cut everything off. Its normalised heat is zero, and it "
        "has no mask and no boxes"
        for b, t in _marked(flat(explanation.maps.detach()))
    ]


def _check_maps(explanation: Explanation) -> None:
    maps = explanation.maps
    kind, shape = str(maps.dtype).removeprefix("torch."), list(maps.shape)
    if kind != "float32" or len(shape) != 4 or 0 in shape:
        raise ExplainerError(f"maps are float32 of shape [B, T, h, w], none of them 0; got {kind} of shape {shape}")


def _check_shapes(explanation: Explanation) -> None:
    pictures, targets = explanation.maps.shape[:2]
    for name, expected in (
        ("names", targets),
        ("labels", pictures),
        ("pictures", pictures),
        ("frames", pictures),
    ):
        count = len(getattr(explanation, name))
        if count != expected:
            shape = list(explanation.maps.shape)
            raise ExplainerError(f"maps of shape {shape} need {expected} {name}; got {count}")
    for b, row in enumerate(explanation.labels):
        if len(row) != targets:
            raise ExplainerError(
                f"labels need one text for each of {counted(targets, 'target')}; picture {b} has {len(row)}"
            )
    scores = explanation.scores
    if scores is not None and tuple(scores.shape) != (pictures, targets):
        raise ExplainerError(
            f"scores need the shape [B, T] of the maps, {[pictures, targets]}; got {list(scores.shape)}"
        )


def _check_pictures(explanation: Explanation) -> None:
    for b, (picture, frame) in enumerate(zip(explanation.pictures, explanation.frames, strict=True)):
        if picture is None:
            continue
        if picture.mode != "RGB":
            raise ExplainerError(f"picture {b} has mode {picture.mode!r}; convert it first: .convert('RGB')")
        if picture.size != frame.picture:
            raise ExplainerError(
                f"picture {b} has width and height {picture.size}, but its frame was made for {frame.picture}"
            )


def _check_finite(explanation: Explanation) -> None:
    broken = (~explanation.maps.detach().isfinite()).sum((-2, -1))
    places = _marked(broken > 0)
    if not places:
        return
    b, t = places[0]
    others = f" (and {counted(len(places) - 1, 'other map')})" if len(places) > 1 else ""
    height, width = explanation.maps.shape[2:]
    raise ExplainerError(
        f"the map of picture {b} for {explanation.labels[b][t]!r}{others} is not finite: {int(broken[b, t])} "
        f"of {height * width} values are NaN or infinity; if the model runs in half precision, try float32, "
        "otherwise look for NaN in its weights or in the picture"
    )


def _marked(marks: Tensor) -> list[tuple[int, int]]:
    """List the places [b, t] where a [B, T] tensor is true."""
    return [(int(b), int(t)) for b, t in np.argwhere(marks.cpu().numpy())]
