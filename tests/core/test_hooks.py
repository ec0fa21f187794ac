"""Taps of the hook manager: what modules pass on or receive, call by call, and gradients there.

Networks are made for the test and hold a handful of numbers, so that every expected value can be written down.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from core.nets import InPlace, Shared, Twice, X, line
from explainer.hooks import HookManager, LayerError

Pair = namedtuple("Pair", ["first", "second"])


class Gives(nn.Module):
    """Gives something else than a tensor."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Tensor) -> Any:
        return self.make(x)


class Reads(nn.Module):
    """A module that gives parts, and the sum of the first two of them."""

    def __init__(self, make: Any, keys: tuple[Any, Any]) -> None:
        super().__init__()
        self.parts = Gives(make)
        self.keys = keys

    def forward(self, x: Tensor) -> Tensor:
        found = self.parts(x)
        return found[self.keys[0]] + 10 * found[self.keys[1]]


@pytest.mark.parametrize("by", ["name", "module"])
def test_tap_records_the_output(by: str) -> None:
    model = line()
    with HookManager(model) as hooks:
        tap = hooks.tap("0" if by == "name" else model[0])
        output = model(X)
    assert tap.name == "0"
    torch.testing.assert_close(tap.value, model[0](X))
    torch.testing.assert_close(output, model(X))


def test_tap_of_the_whole_model() -> None:
    model = line()
    with HookManager(model) as hooks:
        taps = hooks.tap(""), hooks.tap("", of="input")
        model(X)
    torch.testing.assert_close(taps[0].value, model(X))
    torch.testing.assert_close(taps[1].value, X)


def test_tap_of_an_input() -> None:
    model = line()
    with HookManager(model) as hooks:
        tap = hooks.tap("2", of="input")
        model(X)
    torch.testing.assert_close(tap.value, model[1](model[0](X)))


def test_tap_of_an_input_given_by_keyword() -> None:
    model = Shared()
    with HookManager(model) as hooks:
        tap = hooks.tap("inner", of="input", differentiable=True)
        gradient_at(tap, model(X, keyword=True))
    torch.testing.assert_close(tap.value.detach(), X)


def gradient_at(tap: Any, output: Tensor) -> Tensor:
    return tap.gradients(output)


def test_taps_of_a_pattern() -> None:
    model = nn.ModuleDict({"blocks": nn.ModuleList([line(), line()]), "head": nn.Linear(2, 2)})
    with HookManager(model) as hooks:
        found = hooks.taps("blocks.*.0", of="input")
        model["blocks"][1](X)
    assert list(found) == ["blocks.0.0", "blocks.1.0"]
    assert [len(tap.records) for tap in found.values()] == [0, 1]


@pytest.mark.parametrize(
    ("make", "select", "keys"),
    [
        (lambda x: (x, x + 1), 0, (0, 1)),
        (lambda x: (x, x + 1), -2, (0, 1)),
        (lambda x: [x, x + 1], 0, (0, 1)),
        (lambda x: {"a": x, "b": x + 1}, "a", ("a", "b")),
        (lambda x: OrderedDict(a=x, b=x + 1), "a", ("a", "b")),
        (lambda x: Pair(x, x + 1), 0, (0, 1)),
    ],
    ids=["tuple", "from the end", "list", "dict", "ordered dict", "named tuple"],
)
@pytest.mark.parametrize("differentiable", [False, True])
def test_tap_of_a_part(make: Any, select: Any, keys: Any, differentiable: bool) -> None:
    model = Reads(make, keys)
    kind = type(make(X))
    seen: list[Any] = []
    with HookManager(model) as hooks:
        tap = hooks.tap("parts", select=select, differentiable=differentiable)
        hooks.on_call(model.parts, lambda *_: None, lambda _m, _a, output: seen.append(output))
        output = model(X)
    torch.testing.assert_close(tap.value.detach(), X)
    torch.testing.assert_close(output.detach(), X + 10 * (X + 1))
    assert type(seen[0]) is kind
    if differentiable:
        torch.testing.assert_close(tap.gradients(output), torch.stack([column(i) for i in range(3)]))


def column(index: int) -> Tensor:
    picked = torch.zeros_like(X)
    picked[:, index] = 1
    return picked


def test_records_of_a_module_that_runs_twice() -> None:
    model = Twice()
    with HookManager(model) as hooks:
        tap = hooks.tap("step", differentiable=True)
        output = model(X)
        first, second = torch.autograd.grad(output.sum(), tap.records)
    torch.testing.assert_close(tap.records[0].detach(), X * 2)
    torch.testing.assert_close(tap.records[1].detach(), (X * 2 + 1) * 2)
    # output = 3 * second, second = 2 * (first + 1)
    torch.testing.assert_close(first, torch.full_like(X, 6))
    torch.testing.assert_close(second, torch.full_like(X, 3))


def test_gradients_of_every_column() -> None:
    model = line()
    with HookManager(model) as hooks:
        tap = hooks.tap("0", differentiable=True)
        gradients = tap.gradients(model(X))
    hidden = model[0](X).detach().requires_grad_()
    output = model[2](torch.relu(hidden))
    for t in range(2):
        (expected,) = torch.autograd.grad(output[:, t].sum(), hidden, retain_graph=True)
        torch.testing.assert_close(gradients[t], expected)
    assert gradients.shape == (2, *tap.value.shape)


def test_two_taps_are_differentiated_from_one_forward_pass() -> None:
    model = line().requires_grad_(False)
    with HookManager(model) as hooks:
        first, second = (hooks.tap(name, differentiable=True) for name in ("0", "1"))
        scores = model(X)
        late, early = second.gradients(scores), first.gradients(scores)
    torch.testing.assert_close(early, late * (first.value > 0))


def test_nothing_before_a_differentiable_tap_has_a_graph() -> None:
    model = line().requires_grad_(False)
    with HookManager(model) as hooks:
        tap = hooks.tap("0", differentiable=True)
        model(X)
    assert tap.value.is_leaf
    assert tap.value.grad_fn is None


def test_a_second_tap_does_not_cut_the_first_off() -> None:
    model = line()
    with HookManager(model) as hooks:
        first, second = hooks.tap("0", differentiable=True), hooks.tap("1", differentiable=True)
        output = model(X)
        upper, lower = torch.autograd.grad(output.sum(), [second.value, first.value])
    torch.testing.assert_close(lower, upper * (first.value > 0))


@pytest.mark.parametrize("differentiable", [False, True])
def test_what_works_in_place_behind_a_tap(differentiable: bool) -> None:
    changed, plain = InPlace(inplace=True), InPlace(inplace=False)
    plain.load_state_dict(changed.state_dict())
    results = []
    for model in (changed.eval(), plain.eval()):
        with HookManager(model) as hooks:
            tap = hooks.tap("norm", differentiable=differentiable)
            output = model(torch.arange(24.0).reshape(2, 3, 2, 2) - 12)
            gradient = tap.gradients(output) if differentiable else torch.zeros(1)
        results.append((tap.value.detach(), output.detach(), gradient))
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected)
    assert results[0][0].min() < 0, "the record was changed by the ReLU behind it"


def test_a_copy_of_the_model_is_not_recorded() -> None:
    model = line()
    with HookManager(model) as hooks:
        taps = hooks.tap("0"), hooks.tap("2", of="input")
        copy.deepcopy(model)(X)
        assert [tap.records for tap in taps] == [[], []]
        model(X)
    assert [len(tap.records) for tap in taps] == [1, 1]


def run(model: nn.Module, which: Any, gradient: bool = False, **options: Any) -> None:
    with HookManager(model) as hooks:
        tap = hooks.tap(which, **options)
        output = model(X)
        if gradient:
            tap.gradients(output)
        else:
            assert tap.value is not None


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare, self.fresh = nn.Linear(3, 2), nn.Linear(3, 2), Constant()

    def forward(self, x: Tensor) -> Tensor:
        return self.used(x) + 0 * self.fresh()[0]


class Constant(nn.Module):
    def forward(self) -> Tensor:
        return torch.ones(2)


class Aside(nn.Module):
    """A module that runs but goes nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.aside = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.aside(x)
        return self.used(x)


NOT_REACHED = (
    "the score does not depend on layer 'aside', so it has no gradient there; "
    "choose a layer between the picture and the score (ex.inspect() lists them)"
)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: run(nn.ModuleDict({"layer1": line(), "layer2": line()}), "layer3"),
            "no layer named 'layer3' in ModuleDict (nearest: layer2, layer1, layer2.2); ex.inspect() lists the layers",
        ),
        (
            lambda: run(line(), "features"),
            "no layer named 'features' in Sequential (none is near); ex.inspect() lists the layers",
        ),
        (
            lambda: run(line(), nn.Linear(1, 1)),
            "this Linear is not part of the Sequential that was wrapped; "
            "give a module of that model, or its dotted name",
        ),
        (
            lambda: HookManager(line()).taps("blocks.*"),
            "no layer of Sequential fits the pattern 'blocks.*'; ex.inspect() lists the layers",
        ),
        (
            lambda: run(Unused(), "spare"),
            "layer 'spare' did not run in this forward pass, so there is nothing to read; "
            "choose a layer that the model calls (ex.inspect() lists them)",
        ),
        (
            lambda: run(Twice(), "step"),
            "layer 'step' ran 2 times in one forward pass; "
            "read its records, in the order of the calls, instead of its one value",
        ),
        (lambda: run(Aside(), "aside", gradient=True, differentiable=True), NOT_REACHED),
        (lambda: run(Aside().requires_grad_(False), "aside", gradient=True), NOT_REACHED),
        (
            lambda: run(Reads(lambda x: (x, x), (0, 1)), "parts"),
            "layer 'parts' gives a tuple, not one tensor; "
            "tap one part of it with select=0, select=1 or a key (select=None was given)",
        ),
        (
            lambda: run(Reads(lambda x: (x, x), (0, 1)), "parts", select=7),
            "layer 'parts' gives a tuple, not one tensor; "
            "tap one part of it with select=0, select=1 or a key (select=7 was given)",
        ),
        (
            lambda: run(Reads(lambda x: {"a": x, "b": x, "c": None}, ("a", "b")), "parts", select="c"),
            "layer 'parts' gives a dict, not one tensor; "
            "tap one part of it with select=0, select=1 or a key (select='c' was given)",
        ),
        (
            lambda: run(nn.Sequential(Gives(lambda x: [x, x]), Gives(lambda xs: xs[0])), "1", of="input"),
            "layer '1' receives a list, not one tensor; "
            "tap one part of it with select=0, select=1 or a key (select=None was given)",
        ),
        (
            lambda: run(nn.Sequential(Gives(lambda x: x.int())), "0", differentiable=True),
            "layer '0' gives int32 numbers, which have no gradient",
        ),
        (
            lambda: run(Unused(), "fresh", of="input"),
            "layer 'fresh' was called without any input; tap its output instead",
        ),
        (
            lambda: HookManager(line()).replace_parameter(nn.Linear(1, 1), "wieght", torch.zeros(1)),
            "this Linear has no parameter named 'wieght' of its own (it has: weight, bias)",
        ),
    ],
)
def test_error(call: Any, message: str) -> None:
    with pytest.raises(LayerError) as raised:
        call()
    assert str(raised.value) == message


@pytest.mark.parametrize("of", ["output", "input"])
def test_what_another_thread_runs_is_not_recorded(of: Any):
    net = line()
    with HookManager(net) as hooks:
        tap = hooks.tap("0", of=of)
        net(X)
        other = threading.Thread(target=lambda: net(X * 2))
        other.start()
        other.join()
    assert len(tap.records) == 1
