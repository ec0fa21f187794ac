"""Five hundred scenes, made anew each time and always the same."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from encoders.common import message

from explainer.bench.sample import Sample
from explainer.selection import select
from explainer_plugins.stickers.dataset import photographs
from explainer_plugins.stickers.drawings import drawings
from explainer_plugins.stickers.scenes import draw
from explainer_plugins.stickers.tokenizer import nouns
from explainer_registry import registry


def dataset(**settings: object):
    return registry().datasets.load("stickers")(select("datasets", "stickers", settings).options)


def same(first: Sample, second: Sample) -> bool:
    return (
        (first.name, first.group, list(first.masks)) == (second.name, second.group, list(second.masks))
        and first.picture.tobytes() == second.picture.tobytes()
        and all(np.array_equal(first.masks[noun], second.masks[noun]) for noun in first.masks)
    )


def test_a_scene() -> None:
    scenes = dataset()
    assert (scenes.name, len(scenes), scenes.labels) == ("stickers", 500, tuple(nouns()))
    sample = scenes[3]
    assert (sample.name, sample.group, sample.valid) == ("scene-00003", "4 objects", None)
    assert (sample.picture.mode, sample.picture.size) == ("RGB", (96, 96))
    assert len(sample.masks) == 4
    assert all(mask.shape == (96, 96) and mask.dtype == np.bool_ and mask.any() for mask in sample.masks.values())
    assert set(sample.masks) <= set(scenes.labels)


def test_a_hundred_scenes_have_twenty_of_each_count() -> None:
    scenes = dataset(scenes=100)
    samples = list(scenes)
    assert len(samples) == 100
    assert Counter(len(sample.masks) for sample in samples) == dict.fromkeys(range(1, 6), 20)
    for sample in samples:
        count = len(sample.masks)
        assert sample.group == ("1 object" if count == 1 else f"{count} objects")


def test_the_group_says_what_is_really_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explainer_plugins.stickers.scenes._TRIES", 1)
    samples = list(dataset(scenes=60))
    assert any(len(sample.masks) < 1 + index % 5 for index, sample in enumerate(samples))
    for sample in samples:
        assert int(sample.group.split()[0]) == len(sample.masks)


def test_most_objects() -> None:
    assert [len(sample.masks) for sample in dataset(scenes=7, most=3)] == [1, 2, 3, 1, 2, 3, 1]


def test_any_order_and_any_length_give_the_same_scenes() -> None:
    forth, back = dataset(), dataset(scenes=100_000)
    expected = [forth[index] for index in range(12)]
    assert all(same(back[index], expected[index]) for index in (11, 3, 7, 3, 0, 5))
    back[99_999]


def test_seeds_give_scenes_of_their_own() -> None:
    assert not any(same(dataset(seed=0)[index], dataset(seed=1)[index]) for index in range(5))
    assert all(same(dataset(seed=4)[index], dataset(seed=4)[index]) for index in range(5))


def test_no_scene_is_drawn_from_a_state_of_the_training() -> None:
    for index in range(5):
        sample = dataset()[index]
        for trained in (0, 1):
            scene = draw(np.random.default_rng([trained, index]), drawings(), photographs(), 1 + index)
            assert sample.picture.tobytes() != scene.picture.tobytes()


def test_the_photographs_are_those_of_the_demo_network() -> None:
    assert [photo.size for photo in photographs()] == [(450, 450), (450, 299), (450, 300)]
    assert {photo.mode for photo in photographs()} == {"RGB"}


@pytest.mark.parametrize("index", [-1, 500])
def test_no_such_scene(index: int) -> None:
    with pytest.raises(IndexError) as caught:
        dataset()[index]
    assert str(caught.value) == f"there are 500 scenes, numbered from 0; got {index}"


@pytest.mark.parametrize("settings", [{"scenes": 0}, {"scenes": 100_001}, {"most": 6}, {"most": 0}, {"seed": -1}])
def test_settings_out_of_range(settings: dict[str, int]) -> None:
    (name,) = settings
    assert message(lambda: dataset(**settings)).startswith(f"{name}: ")
