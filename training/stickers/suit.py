"""Find the settings of methods that suit the model, on scenes of the hands that it is trained on.

    python training/stickers/suit.py drawings/ photos/

Prints the mean average precision of pixels for each setting; the best become ``SUITED`` of the encoder.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from PIL import Image
from torchmetrics.functional.classification import binary_average_precision
from train import HELD_OUT, HERE, read_drawings

import explainer
from explainer_plugins.stickers.scenes import draw

SCENES, SEED = 40, 2

TRIED: list[tuple[str, dict[str, Any]]] = [
    *[("gem", {"temperature": t, "iterations": i}) for t, i in product((None, 10.0, 20.0, 40.0, 80.0), (0, 1))],
    *[("gem", {"temperature": t, "depth": d}) for t, d in product((20.0, 40.0), (3, 4, 5))],
    *[("self_self", {"temperature": t, "depth": d}) for t, d in product((None, 20.0), (1, 3, 5))],
]


def main(drawings: Path, photos: Path) -> None:
    """Measure all that are tried."""
    hands = [hand for hand in yaml.safe_load((HERE / "hands.yaml").read_text()) if hand != HELD_OUT]
    own = read_drawings(drawings, hands)
    grounds = [Image.open(path).convert("RGB") for path in sorted(photos.iterdir())]
    scenes = [draw(np.random.default_rng([SEED, i]), own, grounds, 1 + i % 5) for i in range(SCENES)]
    asked = explainer.wrap("stickers")
    for method, settings in TRIED:
        values: list[float] = []
        for scene in scenes:
            heat = asked(scene.picture, list(scene.nouns), method=method, **settings).heat(normalize="minmax")[0]
            masks = (torch.from_numpy(mask).flatten().long() for mask in scene.masks.values())
            values += [float(binary_average_precision(h.flatten(), m)) for h, m in zip(heat, masks, strict=True)]
        print(f"{np.mean(values):.3f}  {method} {settings}", flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
