"""Changes that the hook manager makes to a model, and the one verb that takes everything back.

Forwards, parameters, buffers, children and attributes of modules, classes and other objects; contents of mappings.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from core.nets import X, layers, line, snapshot
from explainer.hooks import HookManager, LayerError


def test_managers_nest() -> None:
    model = line()
    before = snapshot(model)
    with HookManager(model) as outer:
        first = outer.tap("0")
        with HookManager(model) as inner:
            second = inner.tap("0")
            inner.set(model, "training", False)
            model(X)
        model(X)
        assert model.training
    assert (len(first.records), len(second.records)) == (2, 1)
    assert snapshot(model) == before


def test_a_manager_is_used_again_and_undone_twice() -> None:
    model = line()
    before = snapshot(model)
    hooks = HookManager(model)
    for _ in range(2):
        tap = hooks.tap("0")
        model(X)
        assert len(tap.records) == 1
        hooks.undo()
        assert snapshot(model) == before
    hooks.undo()
    assert snapshot(model) == before


def test_undo_goes_backwards() -> None:
    model = line()
    with HookManager(model) as hooks:
        for value in (False, 3, None):
            hooks.set(model, "training", value)
        assert model.training is None
    assert model.training is True


def test_replace_forward() -> None:
    model = line()
    with HookManager(model) as hooks:
        hooks.replace_forward("0", lambda original, x: original(x) + 1)
        changed = model(X)
        inner = model[0](X)
    torch.testing.assert_close(inner, model[0](X) + 1)
    torch.testing.assert_close(changed, model[2](torch.relu(model[0](X) + 1)))
    assert "forward" not in vars(model[0])


def test_replace_forward_where_the_user_already_had() -> None:
    model = line()

    def own(x: Tensor) -> Tensor:
        return x[:, :1] * torch.ones(4)

    model[0].forward = own  # type: ignore[method-assign]
    with HookManager(model) as hooks:
        hooks.replace_forward("0", lambda original, x: original(x) + 1)
        hooks.replace_forward(model[0], lambda original, x: original(x) * 2)
        torch.testing.assert_close(model[0](X), (own(X) + 1) * 2)
    assert vars(model[0])["forward"] is own


def test_replace_parameter() -> None:
    model = line()
    weight, before = model[0].weight, snapshot(model)
    with HookManager(model) as hooks:
        hooks.replace_parameter(model[0], "weight", torch.zeros(4, 3))
        assert torch.equal(model[0](X), model[0].bias.expand(2, 4))
        assert not model[0].weight.requires_grad
    assert model[0].weight is weight
    assert snapshot(model) == before
    assert list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


class Slotted:
    __slots__ = ("flag",)

    def __init__(self) -> None:
        self.flag = 1


class Flagged(nn.Module):
    shared = "of the class"

    def __init__(self) -> None:
        super().__init__()
        self.own = "of the instance"
        self.weight = nn.Parameter(torch.ones(2))
        self.nothing = nn.Parameter(torch.ones(1))
        self.register_buffer("buffer", torch.ones(3))
        self.child = nn.Linear(1, 1)
        self.after = nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("training", False),
        ("own", 5),
        ("shared", 5),
        ("new", 5),
        ("weight", nn.Parameter(torch.zeros(2))),
        ("weight", None),
        ("buffer", torch.zeros(3)),
        ("child", nn.Identity()),
        ("child", None),
        ("forward", lambda x: x),
    ],
)
def test_set_on_a_module(name: str, value: Any) -> None:
    module = Flagged()
    before, order = snapshot(module), layers(module)
    with HookManager(module) as hooks:
        hooks.set(module, name, value)
        assert getattr(module, name) is value
    assert snapshot(module) == before
    assert layers(module) == order


@pytest.mark.parametrize("name", ["shared", "new"])
def test_set_on_a_class(name: str) -> None:
    before = dict(vars(Flagged))
    with HookManager(nn.Identity()) as hooks:
        hooks.set(Flagged, name, 5)
        assert getattr(Flagged, name) == 5
    assert dict(vars(Flagged)) == before


def test_set_on_other_objects() -> None:
    parameter, slotted = nn.Parameter(torch.ones(2)), Slotted()
    with HookManager(nn.Identity()) as hooks:
        hooks.set(parameter, "requires_grad", False)
        hooks.set(slotted, "flag", 2)
        assert not parameter.requires_grad
        assert slotted.flag == 2
    assert parameter.requires_grad
    assert slotted.flag == 1
    assert vars(parameter) == {}


class Fixed(nn.Module):
    @property
    def constant(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [(nn.Linear(2, 2), "weight", TypeError), (Fixed(), "constant", AttributeError)],
    ids=["tensor for a parameter", "property"],
)
def test_what_cannot_be_set_is_left_as_it_is(owner: nn.Module, name: str, error: type[Exception]) -> None:
    before = snapshot(owner)
    hooks = HookManager(owner)
    with pytest.raises(error):
        hooks.set(owner, name, torch.zeros(2, 2))
    hooks.undo()
    assert snapshot(owner) == before


def test_keep_gives_a_mapping_its_contents_back() -> None:
    cache = {"kept": 1, "changed": 2, "taken": 3}
    with HookManager(nn.Identity()) as hooks:
        hooks.keep(cache)
        cache.update(changed=0, new=4)
        del cache["taken"]
    assert list(cache.items()) == [("kept", 1), ("changed", 2), ("taken", 3)]


def test_on_call_changes_nothing() -> None:
    model, events = line(), []
    with HookManager(model) as hooks:
        hooks.on_call(
            model[0],
            lambda module, args, kwargs: events.append(("before", module, args, kwargs)),
            lambda module, args, output: events.append(("after", module, args, output)),
        )
        output = model(X)
    assert torch.equal(output, model(X))
    assert [(event[0], event[1]) for event in events] == [("before", model[0]), ("after", model[0])]
    assert events[0][2][0] is X
    assert torch.equal(events[1][3], model[0](X))


def test_enter_leaves_what_it_entered() -> None:
    with HookManager(nn.Identity()) as hooks:
        hooks.enter(torch.no_grad())
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def fail_in_the_middle(model: nn.Module, error: type[BaseException]) -> None:
    def fail(*_: Any) -> None:
        raise error("in the middle")

    with HookManager(model) as hooks:
        hooks.tap("0", differentiable=True)
        hooks.set(model[1], "inplace", True)
        hooks.replace_forward("2", fail)
        model(X)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_everything_is_undone_when_the_model_raises(error: type[BaseException]) -> None:
    model = line()
    before = snapshot(model)
    with pytest.raises(error, match="in the middle"):
        fail_in_the_middle(model, error)
    assert snapshot(model) == before


def fail_to_tap(model: nn.Module) -> None:
    with HookManager(model) as hooks:
        hooks.tap("0")
        hooks.tap("1", of="input")
        hooks.tap("9")


def test_everything_is_undone_when_a_registration_raises() -> None:
    model = line()
    before = snapshot(model)
    with pytest.raises(LayerError):
        fail_to_tap(model)
    assert snapshot(model) == before
