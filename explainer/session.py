"""The state in which a model is looked at, and the promise that it is left as it was found."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import torch
from torch import nn

from explainer.hooks import HookManager
from explainer_registry import ExplainerError

_locks: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_guard = threading.Lock()


# What torch itself keeps in a module; everything else there belongs to the model.
_TORCH_OWN = frozenset(vars(nn.Module()))


def lock(model: nn.Module) -> threading.RLock:
    """The lock that whoever looks at a model, or copies it, holds; the same thread may take it again."""
    with _guard:
        return _locks.setdefault(model, threading.RLock())


@contextmanager
def session(model: nn.Module) -> Generator[HookManager, None, None]:
    """Hold a model still while it is explained, then put everything back.

    Inside: one thread at a time; every module in evaluation mode; all parameters frozen, so that only a
    tapped activation starts a graph; gradients on, also where the caller is inside ``no_grad`` or
    ``inference_mode``; compiled parts run eagerly and checkpointed parts directly, so that hooks see them.
    What the model caches in mappings of its own meanwhile is dropped at the end: it was computed in
    evaluation mode and would be wrong once a model that is being trained goes on.

    Args:
        model: The model to look at.

    Yields:
        The manager through which everything else is changed.

    Raises:
        ExplainerError: The weights were made inside ``torch.inference_mode``, so nothing can be
            differentiated through them; or a part of the model is scripted or traced.
    """
    with lock(model), torch.inference_mode(False), torch.enable_grad(), HookManager(model) as hooks:
        modules, parameters = list(model.modules()), list(model.parameters())
        if any(t.is_inference() for t in itertools.chain(parameters, model.buffers())):
            raise ExplainerError(
                f"the weights of this {type(model).__name__} are inference tensors: the model was built inside "
                "torch.inference_mode(), and no gradient can pass through it; build or load it outside"
            )
        if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
            raise ExplainerError(
                f"this {type(model).__name__} is scripted or traced, wholly or in part: it runs outside Python, "
                "where no hook can follow; wrap the model that it was made from"
            )
        for module in modules:
            _still(module, hooks)
        hooks.freeze(parameters)
        if any(map(_is_compiled, modules)):
            hooks.enter(_eager)
        yield hooks


def _still(module: nn.Module, hooks: HookManager) -> None:
    # Only what the module itself holds: the shell of a compiled module passes on what lies inside.
    own = vars(module)
    if module.training:
        hooks.set(module, "training", False)
    if own.get("grad_checkpointing") is True:
        hooks.set(module, "grad_checkpointing", False)
    for name, value in own.items():
        if type(value) is dict and name not in _TORCH_OWN:
            hooks.keep(cast("dict[Any, Any]", value))


def _is_compiled(module: nn.Module) -> bool:
    # Looked up where they lie: a missing attribute of a module is slow to miss.
    own = vars(module)
    return own.get("_compiled_call_impl") is not None or "_orig_mod" in own["_modules"]


class _Eager:
    """Lets compiled modules run eagerly while at least one session wants it.

    The switch is one for the whole process, and sessions of different models overlap in any order.
    """

    def __init__(self) -> None:
        self._wanted = 0
        self._switch = ExitStack()

    def __enter__(self) -> None:
        with _guard:
            if not self._wanted:
                self._switch.enter_context(torch.compiler.set_stance("force_eager"))
            self._wanted += 1

    def __exit__(self, *raised: object) -> None:
        with _guard:
            self._wanted -= 1
            if not self._wanted:
                self._switch.close()


_eager = _Eager()
