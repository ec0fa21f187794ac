"""Scenes of stickers as a data set: a recipe that draws each scene when it is asked for."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from explainer.bench.sample import Sample
from explainer.naming import counted
from explainer_plugins.stickers.drawings import drawings
from explainer_plugins.stickers.scenes import draw
from explainer_plugins.stickers.tokenizer import nouns

if TYPE_CHECKING:
    from explainer_plugins.stickers import StickerScenes

_FIRST_SEED = 1000
"""Smaller ones are for training, and for watching it."""


class Scenes:
    """Scenes by number; the same number is always the same scene, whatever was asked for before.

    Args:
        config: How many scenes, and which.
    """

    name = "stickers"

    def __init__(self, config: StickerScenes) -> None:
        self.config = config
        self.labels = tuple(nouns())

    def __len__(self) -> int:
        return self.config.scenes

    def __getitem__(self, index: int, /) -> Sample:
        """Draw one scene.

        Raises:
            IndexError: There is no scene of that number.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"there are {len(self)} scenes, numbered from 0; got {index}")
        rng = np.random.default_rng([_FIRST_SEED + self.config.seed, index])
        scene = draw(rng, drawings(), photographs(), 1 + index % self.config.most)
        return Sample(
            name=f"scene-{index:05}",
            picture=Image.fromarray(scene.picture),
            masks=scene.masks,
            group=counted(len(scene.masks), "object"),
        )


def build(config: StickerScenes) -> Scenes:
    """Make the data set that a configuration describes."""
    return Scenes(config)


@cache
def photographs() -> tuple[Image.Image, ...]:
    """Read the photographs of the demo network, for blurred backgrounds; the sticker model was trained on others."""
    folder = files("explainer_plugins.demo") / "photos"
    photos: list[Image.Image] = []
    for name in sorted(path.name for path in folder.iterdir() if path.name.endswith(".jpg")):
        with (folder / name).open("rb") as file:
            photos.append(Image.open(file).convert("RGB"))
    return tuple(photos)
