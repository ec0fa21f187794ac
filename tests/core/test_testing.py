"""What tests of others are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
import timm
import torch
from torch import nn

import explainer
import explainer_plugins
import explainer_registry
from core.cells import tokens, wrap
from explainer.testing import assert_layout, perturb


def test_assert_layout_gives_the_proof() -> None:
    assert assert_layout(wrap(tokens)).holds
    assert [trial.size for trial in assert_layout(wrap(tokens), (32, 48), "stem").trials] == [(32, 48)]


def test_assert_layout_wraps_what_it_is_given() -> None:
    assert assert_layout(perturb(timm.create_model("test_resnet", num_classes=3)), (64, 64)).encoder == (
        "timm:test_resnet"
    )


def test_assert_layout_raises_the_report() -> None:
    ex = wrap(lambda x: x.flip(3))
    with pytest.raises(AssertionError) as caught:
        assert_layout(ex)
    assert str(caught.value) == f"torch:Cells\n{ex.prove()}"


def test_assert_layout_is_not_content_with_what_cannot_be_told() -> None:
    with pytest.raises(AssertionError, match="cannot tell"):
        assert_layout(wrap(lambda x: x.mean(dim=(2, 3), keepdim=True).expand_as(x)))


class Fresh(nn.Module):
    """Weights as they often start."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(400)
        self.last_norm = nn.BatchNorm2d(400)
        nn.init.zeros_(self.last_norm.weight)
        self.gamma = nn.Parameter(torch.full((400, 1, 1), 1e-5))
        self.scale = nn.Parameter(torch.zeros(()))
        self.pos_embed = nn.Parameter(torch.zeros(1, 400, 3))
        self.head = nn.Linear(400, 5)
        nn.init.zeros_(self.head.weight)
        self.linear = nn.Linear(20, 30)
        self.register_parameter("index", nn.Parameter(torch.zeros(3, dtype=torch.int64), requires_grad=False))


def test_perturb_gives_weights_that_start_at_one_value_ordinary_ones() -> None:
    fresh = Fresh()
    linear, noise = fresh.linear.weight.clone(), torch.random.get_rng_state()
    assert perturb(fresh) is fresh
    near = {
        "norm.weight": (1, 0.1),
        "last_norm.weight": (0.5, 0.1),
        "gamma": (0.5, 0.1),
        "norm.bias": (0, 0.1),
        "pos_embed": (0, 0.1),
        "head.weight": (0, 0.05),
    }
    for name, (mean, spread) in near.items():
        weight = fresh.get_parameter(name)
        assert abs(weight.mean() - mean) < 0.02, name
        assert abs(weight.std() - spread) < 0.2 * spread, name
    assert fresh.scale > 0.1
    assert torch.equal(fresh.linear.weight, linear)
    assert torch.equal(torch.random.get_rng_state(), noise)


def test_nothing_of_the_package_imports_what_tests_are_made_of() -> None:
    packages = (explainer, explainer_plugins, explainer_registry)
    sources = [path for package in packages for path in Path(package.__path__[0]).rglob("*.py")]
    assert len(sources) > 50
    others = [path for path in sources if path.parent.name != "testing"]
    assert [path.name for path in others if "explainer.testing" in path.read_text("utf-8")] == []


def test_perturb_is_told_by_its_seed() -> None:
    one, same, other = (perturb(Fresh(), seed).gamma for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
