"""Models that are compiled or checkpointed, wholly or in part: the maps are those of the plain model, and afterwards
everything is compiled and checkpointed as before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from core.nets import snapshot
from oracles.helpers import random_images
from torch import Tensor, nn
from torch._dynamo import eval_frame
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

import explainer
from explainer.session import session

from .common import fresh
from .kinds import KINDS, assert_all_expected, images, model

every = pytest.mark.parametrize("kind", KINDS)
SIZE = (32, 32)


# Compiled


def shell(module: nn.Module) -> nn.Module:
    return torch.compile(module, backend="eager")


def in_place(module: nn.Module) -> nn.Module:
    module.compile(backend="eager")
    return module


def parts(module: nn.Module) -> nn.Module:
    """Block by block, as is advised for large models."""
    container = deepest(module)
    for name, block in container.named_children():
        setattr(container, name, torch.compile(block, backend="eager"))
    return module


def parts_in_place(module: nn.Module) -> nn.Module:
    for block in deepest(module).children():
        block.compile(backend="eager")
    return module


def deepest(module: nn.Module) -> nn.Module:
    """What holds the last blocks."""
    if hasattr(module, "visual"):
        return module.visual.transformer.resblocks
    return module.blocks if hasattr(module, "blocks") else module.layer4


def run(kind: str, module: nn.Module) -> Tensor:
    with torch.no_grad():
        return (module.encode_image if kind == "clip" else module)(images(kind))


@pytest.mark.parametrize("how", [shell, in_place, parts, parts_in_place], ids=lambda how: how.__name__)
@every
def test_compiled(kind: str, how: Callable[[nn.Module], nn.Module]) -> None:
    """After its first run, when torch has taken the compiled code up; the tests of the session also look before it."""
    plain = model(kind)
    expected = run(kind, plain)
    compiled = how(plain)
    run(kind, compiled)
    before = snapshot(compiled)
    assert_all_expected(kind, compiled)
    assert snapshot(compiled) == before
    assert eval_frame._stance.stance == "default"
    torch.testing.assert_close(run(kind, compiled), expected)


@pytest.mark.parametrize("warm", [False, True], ids=["before its first run", "after its first run"])
@pytest.mark.parametrize("kind", ["cnn", "vit"])
def test_a_compiled_method(kind: str, warm: bool) -> None:
    module = model(kind)
    module.forward = torch.compile(module.forward, backend="eager")
    if warm:
        run(kind, module)
    assert_all_expected(kind, module)


def test_a_compiled_picture_tower() -> None:
    module = model("clip")
    module.visual = torch.compile(module.visual, backend="eager")
    assert_all_expected("clip", module)


def test_a_class_whose_method_is_compiled() -> None:
    class Compiled(Checkpointed):
        forward = torch.compile(Checkpointed.forward, backend="eager")

    pictures = random_images(2, 32)
    module = fresh(lambda: Compiled(None))
    found = explainer.wrap(module, size=SIZE)(pictures, [1, 2], method="gradcam", layer="first.0", relu=False).maps
    assert torch.equal(found, gradcam(fresh(lambda: Checkpointed(None)), "first.0"))


# Checkpointed


@pytest.mark.parametrize("training", [False, True], ids=["evaluation", "training"])
@every
def test_checkpointing_by_the_librarys_switch(kind: str, training: bool) -> None:
    """Then blocks are called past the container that holds them, or twice."""
    module = model(kind)
    module.set_grad_checkpointing(True)
    module.train(training)
    before = snapshot(module)
    assert_all_expected(kind, module)
    assert snapshot(module) == before
    assert any(getattr(each, "grad_checkpointing", False) for each in module.modules())


class Checkpointed(nn.Module):
    """Runs two of its parts under ``checkpoint``, behind a flag of its own."""

    def __init__(self, reentrant: bool | None, use_checkpoint: bool = True) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.use_checkpoint = use_checkpoint and reentrant is not None
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.first = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1), nn.ReLU())
        self.last, self.head = nn.Conv2d(8, 8, 1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for part in (self.first, self.second):
            if self.use_checkpoint:
                x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=self.reentrant)
            else:
                x = part(x)
        return self.head(self.last(x).mean(dim=(2, 3)))


def gradcam(module: nn.Module, layer: str) -> Tensor:
    return explainer.wrap(module, size=SIZE)(
        random_images(2, 32), [1, 2], method="gradcam", layer=layer, relu=False
    ).maps


LAYERS = ["stem", "first", "first.0", "second.0", "second", "last"]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("layer", LAYERS)
def test_checkpointing_under_any_flag(layer: str, reentrant: bool) -> None:
    """Before, inside, between and behind what is checkpointed."""
    module = fresh(lambda: Checkpointed(reentrant))
    kept = torch.utils.checkpoint.CheckpointFunction, torch.utils.checkpoint._checkpoint_hook
    assert torch.equal(gradcam(module, layer), gradcam(fresh(lambda: Checkpointed(None)), layer))
    assert (torch.utils.checkpoint.CheckpointFunction, torch.utils.checkpoint._checkpoint_hook) == kept
    assert module.use_checkpoint


def test_checkpointing_by_a_wrapper() -> None:
    module = fresh(lambda: Checkpointed(None))
    expected = gradcam(module, "first.0")
    module.first = checkpoint_wrapper(module.first)
    assert torch.equal(gradcam(module, "first._checkpoint_wrapped_module.0"), expected)


@pytest.mark.parametrize("reentrant", [True, False])
def test_other_threads_go_on_checkpointing(reentrant: bool) -> None:
    """A model that is trained meanwhile: its parts run forward twice, as they should."""
    trained, calls = fresh(lambda: Checkpointed(reentrant)).train(), []
    trained.first.register_forward_pre_hook(lambda *_: calls.append(threading.current_thread().name))
    pictures = random_images(2, 32).requires_grad_()
    steps: list[Any] = []

    def train() -> None:
        trained(pictures).square().sum().backward()
        steps.append([parameter.grad.clone() for parameter in trained.parameters()])
        trained.zero_grad()

    train()
    alone = len(calls)
    assert alone == 2
    with session(fresh(lambda: Checkpointed(reentrant))):
        thread = threading.Thread(target=train)
        thread.start()
        thread.join(60)
    assert len(calls) == 2 * alone
    assert all(map(torch.equal, *steps))
