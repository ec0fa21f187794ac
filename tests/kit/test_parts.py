"""The tiny models, the assertion that a model is clean, and a registry of one's own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

import explainer
from explainer.testing import (
    assert_clean,
    assert_layout,
    fresh_registry,
    tiny_clip,
    tiny_cnn,
    tiny_tokenizer,
    tiny_vit,
)
from explainer.testing.clean import UNDO
from explainer.testing.models import noise, tiny_deep_head
from explainer_registry import RegistryError, registry
from kit import sabotage

MODELS: dict[Callable[..., nn.Module], dict[str, Any]] = {
    tiny_cnn: {"size": 32},
    tiny_deep_head: {"size": 32},
    tiny_vit: {},
    tiny_clip: {"tokenizer": tiny_tokenizer},
}


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_tiny_models(make: Callable[..., nn.Module]) -> None:
    before = torch.get_rng_state()
    one, same, other, double = make(), make(), make(seed=1), make(dtype=torch.float64)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in one.modules())
    for name, weight in one.named_parameters():
        assert torch.equal(weight, same.get_parameter(name)), name
        assert torch.equal(weight.double(), double.get_parameter(name)), name
        assert double.get_parameter(name).dtype == torch.float64, name
        assert weight.abs().max() > 2e-3, name
    assert any(not torch.equal(weight, other.get_parameter(name)) for name, weight in one.named_parameters())
    assert_layout(explainer.wrap(one, **MODELS[make]))


def test_texts_of_the_tiny_clip_differ() -> None:
    targets = explainer.wrap(tiny_clip(), tokenizer=tiny_tokenizer).encoder.resolve(["a bus", "a cat"])
    assert targets[0].direction @ targets[1].direction < 0.8


def _hook(model: nn.Module) -> None:
    model.stem[0].register_forward_hook(lambda *_: None)


CHANGES: dict[str, Callable[[Any], object]] = {
    "stem.0._forward_hooks has 1 more": _hook,
    "training was False and is True": lambda model: model.train(True),
    "head.weight.requires_grad was True and is False": lambda model: model.head.weight.requires_grad_(False),
    "stem.0.weight.grad changed": lambda model: model(noise(1)).sum().backward(),
    "head.weight, its values changed": lambda model: nn.init.ones_(model.head.weight),
    "stem.1._buffers has 2 changed": lambda model: model.stem[1].double(),
    "body._modules has 1 changed": lambda model: model.body.__setitem__(1, nn.Tanh()),
    "note was added": lambda model: setattr(model, "note", 1),
    "drop.p was removed": lambda model: delattr(model.drop, "p"),
    "head.forward was added": lambda model: setattr(model.head, "forward", model.head.forward),
}


@pytest.mark.parametrize("said", CHANGES)
def test_whatever_changes_is_named(said: str) -> None:
    model = tiny_cnn()
    with pytest.raises(AssertionError) as caught, assert_clean(model):
        CHANGES[said](model)
    text = str(caught.value)
    assert text.startswith("the TinyCNN is not as it was: ")
    assert said in text
    assert text.endswith(f"; {UNDO}")


def test_the_whole_message() -> None:
    model = tiny_cnn()
    with pytest.raises(AssertionError) as caught, assert_clean(model):
        model.note = 1
    assert str(caught.value) == f"the TinyCNN is not as it was: note was added; {UNDO}"


def test_a_clean_run_passes_and_what_is_raised_goes_on() -> None:
    model = tiny_cnn()
    with assert_clean(model):
        explainer.wrap(model, size=32)(noise(2))
    with pytest.raises(ZeroDivisionError, match="on purpose"), assert_clean(model):
        raise ZeroDivisionError("on purpose")


def test_what_is_left_by_a_failure_is_told_first() -> None:
    model = tiny_cnn()

    def fail() -> None:
        model.note = 1
        raise ZeroDivisionError

    with pytest.raises(AssertionError) as caught, assert_clean(model):
        fail()
    assert isinstance(caught.value.__context__, ZeroDivisionError)


def test_a_fresh_registry_has_our_plugins_and_those_given() -> None:
    before = registry()
    with fresh_registry(sabotage) as fresh:
        assert registry() is fresh
        assert "leaks_hook" in fresh.methods
        assert "gradcam" in fresh.methods
        assert {info.distribution for info in fresh.plugins} == {"vision-explainer", "kit"}
    assert registry() is before
    with fresh_registry() as fresh:
        assert "leaks_hook" not in fresh.methods


def test_a_fresh_registry_takes_no_broken_plugin() -> None:
    with pytest.raises(RegistryError) as caught, fresh_registry(ModuleType("empty")):
        pass
    assert str(caught.value).startswith("empty (no version) (empty): implements no hook: mark one with @hookimpl")


def test_neither_the_package_nor_the_kit_needs_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import explainer, explainer.testing"
    subprocess.run([sys.executable, "-c", program], check=True)
