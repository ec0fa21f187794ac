"""How the parts of a model run while it is looked at: in Python, each once, so that hooks are told of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FunctionType, SimpleNamespace
from typing import Any, cast

import torch
import torch.utils.checkpoint
from torch import nn

from explainer.restore import putting_back


class Shared:
    """Holds a change of the whole process while at least one session wants it.

    Sessions of different models overlap in any order.

    Args:
        change: Makes the change until it is left.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[Any]]) -> None:
        self._change = change
        self._wanted = 0
        self._guard = threading.Lock()
        self._switch = ExitStack()
        self._here = threading.local()

    @property
    def wanted_here(self) -> bool:
        """Whether it is this thread that wants it."""
        return getattr(self._here, "wanted", 0) > 0

    def __enter__(self) -> None:
        with self._guard:
            if not self._wanted:
                self._switch.enter_context(self._change())
            self._wanted += 1
        self._here.wanted = getattr(self._here, "wanted", 0) + 1

    def __exit__(self, *raised: object) -> None:
        self._here.wanted -= 1
        with self._guard:
            self._wanted -= 1
            if not self._wanted:
                self._switch.close()


def is_compiled(module: nn.Module) -> bool:
    """Whether a module, or one of its methods, is compiled by ``torch.compile``; its children aside."""
    # Looked up where they lie: a missing attribute of a module is slow to miss. This runs for every module of every
    # session.
    own = vars(module)
    if own.get("_compiled_call_impl") is not None or "_orig_mod" in own["_modules"]:
        return True
    for value in (getattr(type(module), "forward", None), *own.values()):
        if type(value) is FunctionType and "_torchdynamo_orig_callable" in vars(value):
            return True
    return False


@contextmanager
def _without_checkpoints() -> Generator[None, None, None]:
    # Models call ``checkpoint`` under flags of every name and import it by its own; what it calls in turn is looked
    # up each time.
    module = cast("Any", torch.utils.checkpoint)
    reentrant, recomputing = module.CheckpointFunction, module._checkpoint_hook

    def apply(run: Callable[..., Any], preserve: bool, *args: Any) -> Any:
        return run(*args) if direct.wanted_here else reentrant.apply(run, preserve, *args)

    def hook(frame: Any) -> AbstractContextManager[Any]:
        return nullcontext() if direct.wanted_here else recomputing(frame)

    with ExitStack() as undo:
        for name, stand_in in (("CheckpointFunction", SimpleNamespace(apply=apply)), ("_checkpoint_hook", hook)):
            undo.callback(putting_back(module, name))
            setattr(module, name, stand_in)
        yield


eager = Shared(lambda: torch.compiler.set_stance("force_eager"))
"""Compiled modules run as they were written."""

direct = Shared(_without_checkpoints)
"""What is checkpointed runs directly in the threads that want it: neither without gradients nor a second time."""
