"""Sessions of compiled models, whole or in part, before and after their first run; sessions in several threads."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch._dynamo import eval_frame

from core.nets import Outer, expected_gradients, gradients, network, pictures, snapshot
from explainer.session import session


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def shell(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")


COMPILED: dict[str, tuple[Callable[[nn.Module], nn.Module], str]] = {
    "shell": (shell, "_orig_mod.1"),
    "in place": (in_place, "1"),
    "a compiled part": (lambda model: Outer(shell(model)), "body._orig_mod.1"),
    "a part compiled in place": (lambda model: Outer(in_place(model)), "body.1"),
}


@pytest.mark.parametrize("warm", [False, True], ids=["before its first run", "after its first run"])
@pytest.mark.parametrize("how", COMPILED)
def test_compiled(how: str, warm: bool) -> None:
    plain = network()
    expected, output = expected_gradients(plain, pictures()), copy.deepcopy(plain).eval()(pictures())
    wrap, layer = COMPILED[how]
    model = wrap(plain)
    if warm:
        model.eval()(pictures())
        model.train()
    before = snapshot(plain)
    found = gradients(model, pictures(), layer)
    torch.testing.assert_close(found, expected)
    assert snapshot(plain) == before
    assert eval_frame._stance.stance == "default"
    torch.testing.assert_close(model.eval()(pictures()), output)


@pytest.mark.parametrize("warm", [False, True])
def test_a_module_inside_a_compiled_one(warm: bool) -> None:
    inner = network()
    expected = expected_gradients(inner, pictures())
    outer = shell(Outer(inner)).eval()
    if warm:
        outer(pictures())
    torch.testing.assert_close(gradients(inner, pictures()), expected)
    torch.testing.assert_close(outer(pictures()), inner(pictures()))


def test_flags_behind_a_compiled_shell_are_restored() -> None:
    inner = network()
    inner.grad_checkpointing = True
    with session(Outer(shell(inner))):
        assert inner.grad_checkpointing is False
    assert inner.grad_checkpointing is True


def test_sessions_of_two_compiled_models_overlap() -> None:
    steps = [threading.Event() for _ in range(3)]
    stances: list[str] = []

    def first() -> None:
        with session(shell(network())):
            steps[0].set()
            assert steps[1].wait(20)
        stances.append(eval_frame._stance.stance)
        steps[2].set()

    def second() -> None:
        assert steps[0].wait(20)
        with session(shell(network())):
            steps[1].set()
            assert steps[2].wait(20)

    together(first, second)
    assert stances == ["force_eager"]
    assert eval_frame._stance.stance == "default"


def together(*actions: Callable[[], None]) -> None:
    raised: list[BaseException] = []

    def guarded(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert raised == []


def test_two_threads_and_one_model() -> None:
    model = network()
    images = [pictures(), pictures().flip(3)]
    expected = [expected_gradients(model, each) for each in images]
    before, found = snapshot(model), [[], []]
    start = threading.Barrier(2)

    def explain(index: int) -> None:
        start.wait(20)
        for _ in range(20):
            found[index].append(gradients(model, images[index]))

    together(lambda: explain(0), lambda: explain(1))
    for index in (0, 1):
        assert len(found[index]) == 20
        for each in found[index]:
            torch.testing.assert_close(each, expected[index])
    assert snapshot(model) == before


def test_a_second_thread_waits() -> None:
    model, inside, order = network(), threading.Event(), []

    def first() -> None:
        with session(model):
            inside.set()
            waiting.start()
            waiting.join(0.2)
            order.append("first leaves")

    def second() -> None:
        with session(model):
            order.append("second enters")

    waiting = threading.Thread(target=second)
    together(first)
    waiting.join(20)
    assert order == ["first leaves", "second enters"]
