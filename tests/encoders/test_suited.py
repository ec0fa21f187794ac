"""Settings that suit a model take the place of a method's own defaults, and of nothing that was given."""

import pytest
import torch

import explainer
from explainer.bench import dataset, make_bench, run
from explainer.selection import ConfigError, select, with_defaults

PICTURE = torch.rand(1, 3, 96, 96, generator=torch.Generator().manual_seed(0)) * 2 - 1


@pytest.fixture(scope="module")
def stickers() -> explainer.Explainer:
    ex = explainer.wrap("stickers")
    ex.encoder.suited = {"gem": {"temperature": 15.0, "depth": 4}}
    return ex


@pytest.mark.parametrize(
    ("method", "temperature", "depth"),
    [
        ("gem", 15, 4),
        ("vision-explainer/gem", 15, 4),
        (None, 15, 4),
        ({"name": "gem", "depth": 3}, 15, 3),
        (select("methods", "gem", {"temperature": 7}), 7, 4),
        (select("methods", "gem", {"temperature": None}), None, 4),
    ],
)
def test_what_is_given_wins(stickers: explainer.Explainer, method: object, temperature: object, depth: int) -> None:
    used = stickers(PICTURE, ["a cat"], method=method).provenance.method
    assert (used["temperature"], used["depth"]) == (temperature, depth)
    assert used["iterations"] == 1


def test_the_maps_are_those_of_the_settings(stickers: explainer.Explainer) -> None:
    by_default = stickers(PICTURE, ["a cat"], method="gem")
    assert by_default.maps.equal(stickers(PICTURE, ["a cat"], method="gem", temperature=15.0, depth=4).maps)
    assert not by_default.maps.equal(stickers(PICTURE, ["a cat"], method="gem", temperature=None, depth=None).maps)


def test_inspect_shows_them(stickers: explainer.Explainer) -> None:
    lines = str(stickers.inspect()).splitlines()
    (line,) = [line for line in lines if line.startswith("  gem ")]
    assert line.endswith(" [temperature=15.0] [depth=4]")
    assert sum("[" in line for line in lines) == 1


def test_an_encoder_that_suits_a_setting_that_does_not_exist() -> None:
    with pytest.raises(ConfigError) as caught:
        with_defaults(select("methods", "gem"), {"warmth": 3})
    assert "warmth" in str(caught.value)


def test_a_setting_equal_to_its_default_counts_as_given() -> None:
    given = select("methods", "gem", {"iterations": 1})
    assert with_defaults(given, {"iterations": 2}) is given


def test_a_benchmark_uses_them_and_tells() -> None:
    suits = explainer.wrap("stickers").encoder.suited["gem"]["temperature"]
    fields = {"encoders": ["stickers"], "methods": ["gem", {"name": "gem", "temperature": None}], "pictures": 1}
    (result,) = run(make_bench(fields)).encoders
    told = {method.name: method.settings["temperature"] for method in result.methods if method.settings}
    assert told == {"gem": suits, "gem temperature=null": None}


def test_a_dataset_by_name() -> None:
    scenes = dataset("stickers", scenes=3, most=1)
    assert (len(scenes), len(scenes[2].masks)) == (3, 1)
    with pytest.raises(ConfigError) as caught:
        dataset("stickers", scenes=0)
    assert "scenes" in str(caught.value)
