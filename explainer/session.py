"""The state in which a model is looked at, and the promise that it is left as it was found."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from explainer.execution import direct, eager, is_compiled
from explainer.hooks import HookManager, named_modules
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
    ``inference_mode``; compiled parts run eagerly and checkpointed parts directly, so that hooks see them;
    backward hooks of the user rest, which would be told of gradients that are not theirs, or change them.
    What the model caches in mappings of its own meanwhile is dropped at the end: it was computed in
    evaluation mode and would be wrong once a model that is being trained goes on.

    Args:
        model: The model to look at.

    Yields:
        The manager through which everything else is changed.

    Raises:
        ExplainerError: As for :func:`check`.
    """
    with lock(model), torch.inference_mode(False), torch.enable_grad(), HookManager(model) as hooks:
        modules = check(model)
        for module in modules:
            _still(module, hooks)
        hooks.freeze(model.parameters())
        if any(map(is_compiled, modules)):
            hooks.enter(eager)
        hooks.enter(direct)
        yield hooks


def check(model: nn.Module) -> list[nn.Module]:
    """Check that hooks can follow a model, and that gradients can pass through it.

    Returns:
        All its modules.

    Raises:
        ExplainerError: The weights were made inside ``torch.inference_mode``, or not made yet; or the model, or
            a part of it, is scripted or traced, or runs in several threads or processes.
    """
    kind, modules = type(model).__name__, list(model.modules())
    if any(isinstance(module, torch.jit.ScriptModule) for module in modules):
        raise ExplainerError(
            f"this {kind} is scripted or traced, wholly or in part: it runs outside Python, where no hook can "
            "follow; wrap the model that it was made from"
        )
    for module in modules:
        if reason := _elsewhere(module, whole=module is model):
            name = next(name for name, part in named_modules(model).items() if part is module)
            advice = f"put its .module in the place of '{name}'" if name else "wrap model.module instead"
            raise ExplainerError(f"a {type(module).__name__} {'part' if name else 'model'} {reason}; {advice}")
    weights = [weight for module in modules for weight in weights_of(module)]
    if any(is_lazy(weight) for weight in weights):
        raise ExplainerError(
            f"some weights of this {kind} are not made yet, because a lazy module makes them when it first runs; run "
            "the model once on pictures"
        )
    if any(weight.is_inference() for weight in weights):
        raise ExplainerError(
            f"the weights of this {kind} are inference tensors: the model was built inside torch.inference_mode(), "
            "and no gradient can pass through it; build or load it outside"
        )
    return modules


def weights_of(module: nn.Module) -> list[Tensor]:
    """List the parameters and buffers that a module itself holds."""
    own = vars(module)
    stores: tuple[dict[str, Tensor | None], ...] = (own["_parameters"], own["_buffers"])
    return [tensor for store in stores for tensor in store.values() if tensor is not None]


def _elsewhere(module: nn.Module, *, whole: bool) -> str:
    """Why hooks cannot follow a module that shares out its work; empty where it does not."""
    if isinstance(module, nn.parallel.DistributedDataParallel):
        return "waits for the other processes whenever it runs"
    # Over one device it calls its module as any other would.
    if isinstance(module, nn.DataParallel) and (whole or len(module.device_ids) > 1):
        return "runs in threads of its own, where hooks cannot follow"
    return ""


def _still(module: nn.Module, hooks: HookManager) -> None:
    # Only what the module itself holds: the shell of a compiled module passes on what lies inside.
    own = vars(module)
    if module.training:
        hooks.set(module, "training", False)
    for kind in ("_backward_hooks", "_backward_pre_hooks"):
        if own[kind]:
            hooks.set(module, kind, OrderedDict())
    if own.get("grad_checkpointing") is True:
        hooks.set(module, "grad_checkpointing", False)
    for name, value in own.items():
        if type(value) is dict and name not in _TORCH_OWN:
            hooks.keep(cast("dict[Any, Any]", value))
