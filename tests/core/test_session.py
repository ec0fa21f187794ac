"""A session: the state that a model is held in while it is looked at, and that it is left as it was found.

Small convolutional networks; a ViT and a ResNet of timm and a CLIP of open_clip with checkpointing switched on;
LeViT, which keeps a table of its weights.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import CLIPS, built
from torch import Tensor, nn

from core.nets import Outer, expected_gradients, gradients, layers, network, pictures, snapshot
from explainer.session import session
from explainer_registry import ExplainerError


def test_modes_are_restored_module_by_module() -> None:
    model = network().train()
    model[1].eval()
    model[3].eval()
    before = [module.training for module in model.modules()]
    with session(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
    assert True in before
    assert False in before


def test_statistics_and_dropout_are_those_of_evaluation() -> None:
    model = network().train()
    expected = copy.deepcopy(model).eval()(pictures())
    before = snapshot(model)
    with session(model):
        assert torch.equal(model(pictures()), expected)
    assert snapshot(model) == before


def test_parameters_are_frozen_and_thawed() -> None:
    model = network()
    model[0].weight.requires_grad_(False)
    before = [parameter.requires_grad for parameter in model.parameters()]
    with session(model):
        assert not any(parameter.requires_grad for parameter in model.parameters())
    assert [parameter.requires_grad for parameter in model.parameters()] == before


def test_gradients_of_the_user_stay() -> None:
    model = network()
    model(pictures()).sum().backward()
    kept = [(parameter.grad, parameter.grad.clone()) for parameter in model.parameters()]
    gradients(model, pictures())
    for parameter, (gradient, value) in zip(model.parameters(), kept, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, value)


def test_a_graph_of_the_user_can_still_be_differentiated() -> None:
    model = network().eval()
    loss = model(pictures()).square().sum()
    expected = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
    gradients(model, pictures())
    for ours, theirs in zip(torch.autograd.grad(loss, list(model.parameters())), expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("frozen", [False, True], ids=["trainable", "frozen"])
@pytest.mark.parametrize(
    "mode", [nullcontext, torch.enable_grad, torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__
)
def test_gradients_wherever_the_caller_is(mode: Callable[[], AbstractContextManager], frozen: bool) -> None:
    model = network().requires_grad_(not frozen)
    expected, before = expected_gradients(model, pictures()), snapshot(model)
    with mode():
        images = pictures()
        state = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        found = gradients(model, images)
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == state
    torch.testing.assert_close(found, expected)
    assert snapshot(model) == before


class Reshaped(nn.Module):
    """Its first module passes on a view of the pictures themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Flatten(), nn.Linear(192, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x))


@pytest.mark.parametrize("of", ["output", "input"])
def test_a_view_of_pictures_made_in_inference_mode(of: Any) -> None:
    model = Reshaped()
    with torch.inference_mode():
        images = pictures()
        with session(model) as hooks:
            tap = hooks.tap("first", of=of, differentiable=True)
            found = tap.gradients(model(images))
    torch.testing.assert_close(found.flatten(2), model.last.weight[:, None].expand(2, 2, 192))


INFERENCE = (
    "the weights of this {} are inference tensors: the model was built inside torch.inference_mode(), "
    "and no gradient can pass through it; build or load it outside"
)


@pytest.mark.parametrize("build", [network, lambda: nn.BatchNorm2d(3, affine=False)], ids=["weights", "buffers"])
def test_a_model_built_in_inference_mode_is_refused(build: Callable[[], nn.Module]) -> None:
    with torch.inference_mode():
        model = build()
    before = snapshot_of_inference(model)
    with pytest.raises(ExplainerError) as raised, session(model):
        pass
    assert str(raised.value) == INFERENCE.format(type(model).__name__)
    assert snapshot_of_inference(model) == before


def snapshot_of_inference(model: nn.Module) -> list[Any]:
    return [layers(model), [module.training for module in model.modules()], [*map(id, model.parameters())]]


@pytest.mark.parametrize("name", ["vit", "resnet", "clip"])
def test_checkpointing_does_not_hide_layers(name: str) -> None:
    model, images, layer = checkpointed(name)
    expected = model(images).detach()
    model.set_grad_checkpointing(True)
    before = snapshot(model)
    with session(model) as hooks:
        tap = hooks.tap(layer, differentiable=True)
        output = model(images)
        tap.gradients(output[:, :2])
    assert len(tap.records) == 1
    torch.testing.assert_close(output.detach(), expected)
    assert snapshot(model) == before
    assert any(getattr(module, "grad_checkpointing", False) for module in model.modules())


def checkpointed(name: str) -> tuple[nn.Module, Tensor, str]:
    if name == "clip":
        tower = built(CLIPS["small"]).visual
        return tower, torch.randn(2, 3, 32, 32), "transformer.resblocks.2"
    if name == "vit":
        options = {"img_size": 32, "embed_dim": 16, "depth": 2, "num_heads": 2}
        return timm.create_model("vit_tiny_patch16_224", **options), torch.randn(2, 3, 32, 32), "blocks"
    return timm.create_model("resnet18", num_classes=3).eval(), torch.randn(2, 3, 32, 32), "layer4"


class Cached(nn.Module):
    """Keeps a table of its weights in evaluation mode, as LeViT and TinyViT do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.tables: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return x * self.weight
        if "table" not in self.tables:
            self.tables["table"] = self.weight * 1
        return x * self.tables["table"]

    def train(self, mode: bool = True) -> Cached:
        if mode:
            self.tables = {}
        return super().train(mode)


def test_what_a_model_caches_meanwhile_is_dropped() -> None:
    model = Cached().train()
    tables = model.tables
    with session(model):
        model(torch.ones(1, 3))
        assert list(tables) == ["table"]
    assert model.tables is tables
    assert tables == {}
    with torch.no_grad():
        model.weight.mul_(2)
    assert torch.equal(model.eval()(torch.ones(1, 3)), torch.full((1, 3), 2.0))


def test_what_a_model_had_cached_stays() -> None:
    model = Cached().eval()
    model(torch.ones(1, 3))
    table = model.tables["table"]
    with session(model):
        model(torch.ones(1, 3))
    assert model.tables["table"] is table


def test_levit_in_training_is_not_left_with_a_stale_cache() -> None:
    model = timm.create_model("levit_128s", num_classes=3, img_size=64).train()
    images = torch.randn(2, 3, 64, 64)
    before = snapshot(model)
    with session(model):
        model(images)
    assert snapshot(model) == before


def test_sessions_nest_in_one_thread() -> None:
    model = network().train()
    before = snapshot(model)
    with session(model) as outer:
        tap = outer.tap("1")
        with session(model) as inner:
            second = inner.tap("1")
            model(pictures())
        model(pictures())
        assert not model.training
        assert (len(tap.records), len(second.records)) == (2, 1)
    assert snapshot(model) == before


class Interrupted(nn.Module):
    def __init__(self, error: type[BaseException]) -> None:
        super().__init__()
        self.error = error

    def forward(self, x: Tensor) -> Tensor:
        raise self.error("stop")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interruption_in_mid_forward(error: type[BaseException]) -> None:
    model = network().train()
    model.insert(4, Interrupted(error))
    before = snapshot(model)
    with pytest.raises(error, match="stop"):
        gradients(model, pictures())
    assert snapshot(model) == before
    assert torch.is_grad_enabled()
    with session(model):  # the lock was given back
        pass


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda module: torch.jit.trace(module, pictures())], ids=["scripted", "traced"]
)
def test_a_scripted_model_is_refused(make: Callable[[nn.Module], nn.Module], part: bool) -> None:
    scripted = make(network().eval())
    model = Outer(scripted) if part else scripted
    with pytest.raises(ExplainerError) as raised, session(model):
        pass
    assert str(raised.value) == (
        f"this {type(model).__name__} is scripted or traced, wholly or in part: it runs outside Python, "
        "where no hook can follow; wrap the model that it was made from"
    )
    assert torch.equal(model(pictures()), scripted(pictures()))


def test_autocast() -> None:
    model = network()
    expected = expected_gradients(model, pictures())
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(model, pictures())
        assert torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=2e-3)


def test_bfloat16() -> None:
    model = network().to(torch.bfloat16)
    found = gradients(model, pictures().to(torch.bfloat16))
    assert found.dtype == torch.bfloat16
    expected = expected_gradients(model.float(), pictures())
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=2e-3)


def test_a_model_can_be_forgotten() -> None:
    model = network()
    gradients(model, pictures())
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
