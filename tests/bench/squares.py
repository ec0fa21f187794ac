"""A plugin with all that a benchmark needs, small: squares of three colours, a CLIP that knows nothing, odd methods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import open_clip
import torch
from PIL import Image
from torch import Tensor

from explainer.bench import Sample
from explainer.target import TargetError
from explainer_plugins.open_clip import OpenClip
from explainer_plugins.open_clip.encoder import build as build_open_clip
from explainer_registry import DatasetSpec, EncoderSpec, ExplainerError, MethodSpec, MetricSpec, Schema, hookimpl

COLOURS = ("red", "green", "blue")
SIZE = 32


class Nothing(Schema):
    """No settings."""


class Tiny(Schema):
    """A CLIP with random weights."""

    seed: int = 0
    reads: tuple[str, ...] | None = None


class SquaresConfig(Schema):
    """How many pictures, how wide, and what is wrong with them."""

    count: int = 6
    width: int = SIZE
    labels: tuple[str, ...] = COLOURS
    thin: int | None = None


class Needy(Schema):
    """A setting without a default."""

    needed: int


class Squares:
    """Grey noise with one to three squares, red, green and blue; the first picture has one, the second two, ..."""

    name = "squares"

    def __init__(self, config: SquaresConfig | None = None) -> None:
        self.config = config or SquaresConfig()
        self.labels = self.config.labels

    def __len__(self) -> int:
        return self.config.count

    def __getitem__(self, index: int, /) -> Sample:
        if index >= len(self):
            raise IndexError(index)
        rng = np.random.default_rng(index)
        width = self.config.width
        if index == self.config.thin:
            return Sample("thin", Image.new("RGB", (1, 300_000)), {"red": np.arange(300_000)[:, None] < 9})
        pixels = rng.integers(100, 140, (SIZE, width, 3), dtype=np.uint8)
        masks: dict[str, np.ndarray] = {}
        for place, colour in enumerate(COLOURS[: 1 + index % 3]):
            top, left = int(rng.integers(0, 22)), place * width // 3
            masks[colour] = np.zeros((SIZE, width), dtype=bool)
            masks[colour][top : top + 9, left : left + 9] = True
            pixels[masks[colour]] = [250 * (place == channel) for channel in range(3)]
        return Sample(f"square-{index}", Image.fromarray(pixels), masks, group=f"{len(masks)} of 3")


def tiny(config: Tiny):
    """Make the model; it refuses words that it is not said to read."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        clip = open_clip.CLIP(
            embed_dim=16,
            vision_cfg={"image_size": SIZE, "patch_size": 8, "width": 32, "head_width": 16, "layers": 3},
            text_cfg={"width": 32, "heads": 2, "layers": 1, "vocab_size": 100, "context_length": 12},
        )

    def tokenize(texts: Sequence[str]) -> Tensor:
        rows = torch.zeros(len(texts), 12, dtype=torch.long)
        for row, text in zip(rows, texts, strict=True):
            if config.reads is not None and text not in config.reads:
                raise TargetError(f"'{text}' is no word that this model reads")
            row[: len(text) + 1] = torch.tensor([*(1 + ord(letter) % 90 for letter in text), 99])
        return rows

    encoder = build_open_clip(OpenClip.model_validate({"model": clip.eval(), "tokenizer": tokenize}))
    encoder.name = "tiny"
    return encoder


def _colours(images: Tensor, names: Sequence[str]) -> Tensor:
    """How much more of its own colour a pixel has than of the others: [B, T, H, W]."""
    channels = [COLOURS.index(name) for name in names]
    return torch.stack([2 * images[:, c] - images.sum(dim=1) / 1.5 for c in channels], dim=1)


def finds(config, encoder, images, targets):
    """Finds the squares."""
    return _colours(images, targets.names)


def constant(config, encoder, images, targets):
    """Gives maps that differ by rounding alone."""
    return 5 + 1e-6 * torch.rand(len(images), len(targets), 4, 4)


def draws(config, encoder, images, targets):
    """Draws random numbers."""
    return torch.rand(len(images), len(targets), 4, 4)


def dislikes_two(config, encoder, images, targets):
    """Refuses pictures of two squares."""
    if len(targets) == 2:
        raise ExplainerError("two squares are too many")
    return finds(config, encoder, images, targets)


def refuses(config, encoder, images, targets):
    """Refuses every picture."""
    raise ExplainerError("this cannot work")


def breaks(config, encoder, images, targets):
    """Has a bug."""
    raise ZeroDivisionError("a bug")


def stopped(config, encoder, images, targets):
    """Is interrupted."""
    raise KeyboardInterrupt


def two_maps(config, encoder, images, targets):
    """Gives two maps for each target."""
    maps = finds(config, encoder, images, targets)
    targets.split(["left", "right"])
    return maps.repeat_interleave(2, dim=1)


def two(config, heat, truth):
    """Is more than all."""
    return torch.tensor(2.0)


def square(config, heat, truth):
    """Is no row."""
    return torch.zeros(2, 2)


def nan(config, heat, truth):
    """Is no number."""
    return torch.tensor([0.5, torch.nan])


def grows(config, heat, truth):
    """Gives as many values as the object has columns on its left."""
    return torch.full((1 + int(truth.mask.any(dim=0).int().argmax()),), 0.5)


@hookimpl
def explainer_encoders():
    return [EncoderSpec(name="tiny", schema=Tiny, factory=f"{__name__}:tiny", summary="Tiny.")]


@hookimpl
def explainer_datasets():
    return [DatasetSpec(name="squares", schema=SquaresConfig, factory=f"{__name__}:Squares", summary="Squares.")]


@hookimpl
def explainer_methods():
    functions = (finds, constant, draws, dislikes_two, refuses, two_maps)
    return [
        MethodSpec(
            name=name or function.__name__,
            schema=schema,
            factory=f"{__name__}:{function.__name__}",
            summary=function.__doc__,
            needs=frozenset({need}),
            reference="none",
        )
        for function, schema, need, name in [
            *((function, Nothing, "features", "") for function in functions),
            (breaks, Needy, "features", ""),
            (stopped, Needy, "features", ""),
            (finds, Nothing, "classes", "classy"),
        ]
    ]


@hookimpl
def explainer_metrics():
    return [
        MetricSpec(
            name=function.__name__,
            schema=Nothing,
            factory=f"{__name__}:{function.__name__}",
            summary=function.__doc__,
            reference="none",
        )
        for function in (two, square, nan, grows)
    ]
