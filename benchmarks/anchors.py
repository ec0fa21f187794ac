"""Why similarity and the attention maps come out as they do on the sticker scenes.

    python benchmarks/anchors.py [SCENES]

Prints the average precision of similarity with either sign, how often the hottest pixel of similarity and of GEM lies
on the object, and the average precision of each attention map from three anchors: by similarity, by GEM, on the object.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import torch
from torch import Tensor
from torchmetrics.functional.classification import binary_average_precision

import explainer
from explainer.bench import dataset

ATTENTION = ("query_query", "key_key", "value_value", "query_key")


def middle(mask: Tensor) -> tuple[float, float]:
    """Find the pixel of a mask that is nearest to its centre of mass, as (x, y) in [0, 1]."""
    inside = mask.nonzero().double()
    y, x = inside[(inside - inside.mean(dim=0)).norm(dim=1).argmin()].tolist()
    return (x + 0.5) / mask.shape[1], (y + 0.5) / mask.shape[0]


def precision(heat: Tensor, mask: Tensor) -> float:
    """Order the pixels by heat, and average how pure the hottest are."""
    unit = (heat - heat.min()) / (heat.max() - heat.min())
    return float(binary_average_precision(unit.flatten().double(), mask.flatten().long()))


def measure(scenes: int) -> dict[str, list[float]]:
    """Measure every object of the first scenes; nouns that the model mistakes count as well."""
    asked, found = explainer.wrap("stickers"), defaultdict[str, list[float]](list)
    for _, scene in zip(range(scenes), dataset("stickers", scenes=scenes), strict=False):
        masks = [torch.tensor(mask) for mask in scene.masks.values()]
        names = [f"a {noun}" for noun in scene.masks]
        for name in ("similarity", "gem"):
            for heat, mask in zip(asked(scene.picture, names, method=name).heat()[0], masks, strict=True):
                found[f"{name}, hottest pixel on the object"].append(float(mask.flatten()[heat.argmax()]))
                found[name].append(precision(heat, mask))
                found[f"{name}, negated"].append(precision(-heat, mask))
        for name in ATTENTION:
            for anchor in ("similarity", "gem"):
                heats = asked(scene.picture, names, method=name, anchor=anchor).heat()[0]
                found[f"{name}, anchor by {anchor}"] += map(precision, heats, masks)
            for noun, mask in zip(names, masks, strict=True):
                heat = asked(scene.picture, noun, method=name, point=middle(mask)).heat()[0, 0]
                found[f"{name}, anchor on the object"].append(precision(heat, mask))
    return found


if __name__ == "__main__":
    for what, values in measure(int(sys.argv[1]) if len(sys.argv) > 1 else 120).items():
        print(f"{sum(values) / len(values):.3f}  {what}")
