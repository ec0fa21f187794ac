"""Scenes hold what they say they hold, to the pixel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from explainer_plugins.stickers import backgrounds, scenes
from explainer_plugins.stickers.dataset import photographs
from explainer_plugins.stickers.drawings import drawings
from explainer_plugins.stickers.scenes import MOST, SIZE, Scene, draw

seeds = st.integers(0, 2**32 - 1)
counts = st.integers(1, MOST)


def drawn(seed: int, count: int, size: int = SIZE) -> Scene:
    return draw(np.random.default_rng(seed), drawings(), photographs(), count, size)


@settings(max_examples=60, deadline=None)
@given(seeds, counts, st.sampled_from([64, SIZE, 128]))
def test_masks_are_exclusive_and_inside_the_picture(seed: int, count: int, size: int) -> None:
    scene = drawn(seed, count, size)

    assert (scene.picture.dtype, scene.picture.shape) == (np.uint8, (size, size, 3))
    assert 1 <= len(scene.masks) <= count
    assert scene.nouns == tuple(scene.masks)
    assert set(scene.masks) <= set(drawings())
    masks = np.stack(list(scene.masks.values()))
    assert (masks.dtype, masks.shape) == (np.bool_, (len(scene.masks), size, size))
    assert masks.any(axis=(1, 2)).all()
    assert masks.sum(axis=0).max() == 1


@settings(max_examples=30, deadline=None)
@given(seeds, counts)
def test_the_same_state_draws_the_same_scene(seed: int, count: int) -> None:
    first, second = drawn(seed, count), drawn(seed, count)

    assert np.array_equal(first.picture, second.picture)
    assert first.nouns == second.nouns
    assert all(np.array_equal(first.masks[noun], second.masks[noun]) for noun in first.nouns)


class Tries:
    """What was tried while a scene was drawn: the ground, and each noun with its sticker and layer."""

    def __init__(self) -> None:
        self.ground: Any = None
        self.nouns: list[str] = []
        self.stickers: list[Any] = []
        self.layers: list[Any] = []

    def keep(self, function: Callable[..., Any], into: list[Any]) -> Callable[..., Any]:
        def kept(*args: Any) -> Any:
            into.append(function(*args))
            return into[-1]

        return kept


class Asked(Mapping[str, Any]):
    """Drawings that note which noun is looked up."""

    def __init__(self, nouns: list[str]) -> None:
        self._nouns = nouns

    def __getitem__(self, noun: str) -> Any:
        self._nouns.append(noun)
        return drawings()[noun]

    def __iter__(self) -> Iterator[str]:
        return iter(drawings())

    def __len__(self) -> int:
        return len(drawings())


@contextmanager
def watched() -> Iterator[Tries]:
    tries, grounds, placed = Tries(), list[Any](), list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenes, "background", tries.keep(scenes.background, grounds))
        patch.setattr(scenes, "_vary", tries.keep(scenes._vary, tries.stickers))
        patch.setattr(scenes, "_place", tries.keep(scenes._place, placed))
        yield tries
    (tries.ground,) = grounds
    tries.layers = [layer for layer, _ in placed]


def composed(tries: Tries) -> tuple[list[list[list[float]]], dict[str, set[tuple[int, int]]]]:
    """Lay the layers over each other one pixel at a time, and note whose each pixel is."""
    picture = [[list(map(float, pixel)) for pixel in row] for row in tries.ground.tolist()]
    owned: dict[str, set[tuple[int, int]]] = {}
    areas: dict[str, int] = {}
    for noun, sticker, layer in zip(tries.nouns, tries.stickers, tries.layers, strict=True):
        assert noun not in owned, "a noun is not tried again once it has its place"
        pixels = {(r, c): pixel for r, row in enumerate(layer.tolist()) for c, pixel in enumerate(row) if pixel[3]}
        solid = {place for place, pixel in pixels.items() if pixel[3] >= 128}
        area = sum(alpha >= 128 for alpha in sticker.getchannel("A").tobytes())
        left = {other: place - solid for other, place in owned.items()}
        if len(solid) < 0.6 * area or any(len(left[other]) < 0.6 * areas[other] for other in left):
            continue
        for (r, c), (*colour, alpha) in pixels.items():
            picture[r][c] = [
                (255 - alpha) / 255 * old + alpha / 255 * new for old, new in zip(picture[r][c], colour, strict=True)
            ]
        owned, areas[noun] = {**left, noun: solid}, area
    for noun, place in owned.items():
        assert len(place) >= 0.6 * areas[noun]
    return picture, owned


@settings(max_examples=12, deadline=None)
@given(seeds, counts)
def test_picture_and_masks_against_a_literal_compositor(seed: int, count: int) -> None:
    with watched() as tries:
        scene = draw(np.random.default_rng(seed), Asked(tries.nouns), photographs(), count)

    picture, owned = composed(tries)

    assert list(owned) == list(scene.nouns)
    for noun, mask in scene.masks.items():
        assert {(int(r), int(c)) for r, c in np.argwhere(mask)} == owned[noun]
    assert np.abs(scene.picture - np.array(picture)).max() <= 0.51  # rounded, from single precision


@settings(max_examples=40, deadline=None)
@given(seeds, st.tuples(st.integers(8, 70), st.integers(8, 70)))
def test_a_sticker_is_laid_as_it_is_and_at_most_a_sixth_of_it_outside(seed: int, lengths: tuple[int, int]) -> None:
    pixels = np.random.default_rng(seed).integers(1, 256, (*lengths, 4), dtype=np.uint8)

    layer, area = scenes._place(np.random.default_rng(seed), Image.fromarray(pixels), SIZE)

    assert area == int((pixels[..., 3] >= 128).sum())
    rows, columns = (np.flatnonzero(layer[..., 3].any(axis=axis)) for axis in (1, 0))
    top, left = (
        places[0] - (length - len(places) if places[0] == 0 else 0)
        for places, length in zip((rows, columns), lengths, strict=True)
    )
    expected = np.zeros((3 * SIZE, 3 * SIZE, 4), dtype=np.uint8)
    expected[SIZE + top : SIZE + top + lengths[0], SIZE + left : SIZE + left + lengths[1]] = pixels
    assert np.array_equal(layer, expected[SIZE : 2 * SIZE, SIZE : 2 * SIZE])
    for places, length in zip((rows, columns), lengths, strict=True):
        assert length - len(places) <= 0.15 * length + 1


@pytest.mark.parametrize(
    ("area", "covered", "count"),
    [(1600, 38, 1), (1600, 25, 2), (1600, 26, 1), (2000, 19, 2), (2000, 20, 2), (2000, 21, 1)],
)
def test_a_sticker_that_would_hide_another_finds_no_place(
    monkeypatch: pytest.MonkeyPatch, area: int, covered: int, count: int
) -> None:
    """The first shows 40 x 40 pixels of its area; of those the second covers a square."""
    layers = iter([(40, area), *[(covered, covered**2)] * 20])

    def place(*_: Any) -> tuple[Any, int]:
        edge, area = next(layers)
        layer = np.zeros((SIZE, SIZE, 4), dtype=np.uint8)
        layer[:edge, :edge] = 255
        return layer, area

    monkeypatch.setattr(scenes, "_place", place)

    scene = drawn(0, 2)

    assert len(scene.masks) == count
    assert scene.masks[scene.nouns[0]].sum() == 1600 - (covered**2 if count == 2 else 0)
    assert len(list(layers)) == (19 if count == 2 else 0)


def test_a_caption_names_all_from_the_back_to_the_front() -> None:
    nothing = np.zeros((1, 1), dtype=np.bool_)
    assert Scene(np.zeros((1, 1, 3), np.uint8), {"cat": nothing, "palm tree": nothing}).caption == (
        "a cat and a palm tree"
    )


@settings(max_examples=80, deadline=None)
@given(seeds, st.sampled_from([32, SIZE, 131]), st.booleans())
def test_backgrounds_of_any_size(seed: int, size: int, with_photos: bool) -> None:
    photos = photographs() if with_photos else ()
    ground = backgrounds.background(np.random.default_rng(seed), size, photos)
    again = backgrounds.background(np.random.default_rng(seed), size, photos)

    assert (ground.dtype, ground.shape) == (np.uint8, (size, size, 3))
    assert np.array_equal(ground, again)


def test_every_kind_of_background_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: set[str] = set()

    def noted(kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            kinds.add(kind)
            return function(*args)

        return call

    for kind in ("plain", "gradient", "noise", "texture", "photo"):
        monkeypatch.setattr(backgrounds, f"_{kind}", noted(kind, getattr(backgrounds, f"_{kind}")))
    for seed in range(40):
        backgrounds.background(np.random.default_rng(seed), 16, ())
    assert kinds == {"plain", "gradient", "noise", "texture"}
    for seed in range(40):
        backgrounds.background(np.random.default_rng(seed), 16, photographs())
    assert kinds == {"plain", "gradient", "noise", "texture", "photo"}
