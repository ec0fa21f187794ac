"""What views are tried on: examples of everything that can be drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor

from explainer.explain import wrap
from explainer.explanation import Explanation
from explainer.probabilities import Probabilities
from explainer.testing.models import noise, tiny_cnn
from explainer.testing.odd import odd_pictures, ordinary_picture


@dataclass(frozen=True)
class Examples:
    """Things that a view of one kind has to draw.

    Attributes:
        all: By what they are.
        differing: Two that have to look different, with what the difference is.
        remedy: What draws the difference.
    """

    all: Mapping[str, Any]
    differing: tuple[Any, Any, str]
    remedy: str


def explanations() -> Examples:
    """Give signed, positive, negative and constant maps, on pictures of any shape and on none."""
    pictures = [(what, picture) for what, picture in odd_pictures() if isinstance(picture, Image.Image)]
    made: dict[str, Explanation] = {}
    for what, picture in (("noise", ordinary_picture()), ("a tensor", noise(1, 32, 48)), *pictures):
        found = wrap(tiny_cnn())(picture, [0], method="gradcam")
        made |= {f"{kind} of {what}": replace(found, maps=maps) for kind, maps in _maps().items()}
    left = made["heat on the left of noise"]
    return Examples(
        made,
        (left, replace(left, maps=left.maps.flip(-1)), "where the heat is"),
        "draw explanation.heat(normalize=...)[0, 0], laid on the picture",
    )


def probabilities() -> Examples:
    """Give logits of few and many inputs and classes, sure and even ones, with and without labels."""
    made: dict[str, Probabilities] = {}
    for count, classes in ((1, 2), (5, 3), (40, 4), (7, 300)):
        logits = noise(1, count, classes)[0, 0] * 3
        names = tuple(f"class {place}" for place in range(classes))
        inputs = tuple(f"input {place}" for place in range(count))
        labels = torch.arange(count) % classes
        made[f"{count} inputs over {classes} classes"] = Probabilities(logits, names, inputs, labels)
    ordinary = made["40 inputs over 4 classes"]
    made["even logits"] = replace(ordinary, logits=torch.zeros(40, 4))
    made["logits of 10,000"] = replace(ordinary, logits=ordinary.logits.sign() * 1e4)
    turned = replace(ordinary, logits=ordinary.logits.roll(1, dims=1))
    return Examples(made, (ordinary, turned, "which class gets most"), "draw subject.softmax(), or subject.logits")


SUBJECTS: Mapping[str, Callable[[], Examples]] = {"explanation": explanations, "probabilities": probabilities}
"""How examples of what a view can draw are made."""


def same(one: Any, other: Any) -> bool:
    """Say whether two things that can be drawn hold the same, pictures and tensors too."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if is_dataclass(one):
        return all(same(getattr(one, field.name), getattr(other, field.name)) for field in fields(one))
    if isinstance(one, (list, tuple)):
        ones = cast("Sequence[Any]", one)
        return len(ones) == len(other) and all(same(*pair) for pair in zip(ones, other, strict=True))
    return bool(one == other)


def _maps() -> Mapping[str, Tensor]:
    signed = noise(1, 6)[:, :1]
    left = torch.zeros_like(signed)
    left[..., :2] = 1
    return {
        "a map of two signs": signed,
        "a map without negative values": signed.abs(),
        "a map of negative values": -signed.abs() - 1,
        "a map of zeros": torch.zeros_like(signed),
        "a map of ones": torch.ones_like(signed),
        "heat on the left": left,
    }
