"""What another input size changes inside a timm model, read off a twin that shares its weights."""

from __future__ import annotations

import copy
import itertools
import math
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from explainer.hooks import HookManager, named_modules
from explainer.positions import Interpolation, interpolate

# Sizes that are remembered for each model: the masks of a window transformer may fill gigabytes.
_KEPT = 2
_STORES = ("_parameters", "_buffers", "_modules")
_TORCH_OWN = frozenset(vars(nn.Module()))
_ABSENT = object()
# Warnings are switched off for the whole process: threads that did so at once could leave them off.
_quiet = threading.Lock()


class Change(NamedTuple):
    """An attribute, parameter, buffer or child of a module that has another value at another size."""

    path: str
    name: str
    value: Any


class Positions(NamedTuple):
    """A table of learned positions, which has a row for each prefix token and for each cell of a grid."""

    prefix: int
    old: tuple[int, int]
    new: tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """What a model's own ``set_input_size`` does to it.

    Attributes:
        changes: All that it sets, but for the table of positions.
        positions: How that table, ``pos_embed``, is moved; None where there is none.
    """

    changes: tuple[Change, ...]
    positions: Positions | None

    def apply(self, model: nn.Module, hooks: HookManager, how: Interpolation) -> None:
        """Set a model to the size until the hooks are undone; its own tensors are replaced, not written to."""
        for path, name, value in self.changes:
            module = model.get_submodule(path)
            if isinstance(value, Tensor) and name in vars(module)["_parameters"]:
                hooks.replace_parameter(module, name, value)
            else:
                hooks.set(module, name, value)
        if self.positions is not None:
            # From the weights as they are now, in the way that is asked for now.
            table = cast("Tensor", model.pos_embed)
            hooks.replace_parameter(model, "pos_embed", interpolate(table, *self.positions, how))


@dataclass(frozen=True)
class _Remembered:
    """A plan, and everything in the model that it was made from."""

    plan: Plan
    kind: tuple[torch.dtype, torch.device]
    origin: tuple[Change, ...]

    def holds(self, model: nn.Module) -> bool:
        if self.kind != _kind(model):
            return False
        try:
            return all(_same(value, _value(model.get_submodule(path), name)) for path, name, value in self.origin)
        except AttributeError:  # a part of the model is gone
            return False


_remembered: weakref.WeakKeyDictionary[nn.Module, OrderedDict[tuple[int, int], _Remembered]] = (
    weakref.WeakKeyDictionary()
)


def plan(model: nn.Module, size: tuple[int, int]) -> Plan:
    """Find out what a timm model sets when it is told another input size, without telling it.

    What was found is kept for the next call, and found again where anything that it came from has changed since:
    a user may load other weights, move the model, or change its size for good.

    Args:
        model: A model with ``set_input_size``; its weights may be without data.
        size: Height and width.
    """
    if not has_data(model):
        return _made(model, size)
    sizes = _remembered.setdefault(model, OrderedDict())
    found = sizes.pop(size, None)
    if found is None or not found.holds(model):
        made = _made(model, size)
        origin = (Change(path, name, _value(model.get_submodule(path), name)) for path, name, _ in made.changes)
        found = _Remembered(made, _kind(model), tuple(c._replace(value=_kept(c.value)) for c in origin))
    sizes[size] = found
    while len(sizes) > _KEPT:
        sizes.popitem(last=False)
    return found.plan


def has_data(model: nn.Module) -> bool:
    """Whether the weights of a model are numbers, not only shapes."""
    return not any(isinstance(p, FakeTensor) or p.is_meta for p in itertools.islice(model.parameters(), 1))


def hollow(model: nn.Module) -> nn.Module:
    """Copy a model with weights that have shapes but no data, on the meta device, and without hooks."""

    def empty(tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")

    with unset_fake_temporarily():
        return _copy(model, lambda parameter: nn.Parameter(empty(parameter), requires_grad=False), empty)


def _made(model: nn.Module, size: tuple[int, int]) -> Plan:
    with _quiet, unset_fake_temporarily(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has something to say on how timm interpolates
        # Buffers are copied because some are filled anew in place.
        twin = _copy(model, lambda parameter: parameter, torch.clone) if has_data(model) else hollow(model)
        before = {path: (module, _contents(module)) for path, module in named_modules(twin).items()}
        grid = _grid(twin)
        cast("Any", twin).set_input_size(img_size=size)
        changes = [
            Change(path, name, held.value)
            for path, (module, contents) in before.items()
            for name, held in _contents(module).items()
            if not held.is_still(contents.get(name))
        ]
    positions = _positions(model, changes, grid, _grid(twin))
    if positions is not None:
        changes = [change for change in changes if change[:2] != ("", "pos_embed")]
    return Plan(tuple(change._replace(value=_at_home(change.value, model)) for change in changes), positions)


def _copy(
    model: nn.Module, parameter: Callable[[nn.Parameter], nn.Parameter], other: Callable[[Tensor], Tensor]
) -> nn.Module:
    """Copy a model; functions say what stands for its parameters, and for its buffers and other tensors."""
    memo: dict[int, Any] = {id(own): parameter(own) for own in model.parameters()}
    for module in model.modules():
        for tensor in (*vars(module)["_buffers"].values(), *vars(module).values()):
            if isinstance(tensor, Tensor) and id(tensor) not in memo:
                memo[id(tensor)] = other(tensor.detach())
    copied = copy.deepcopy(model, memo)
    for module in copied.modules():
        # What hangs on the model is not to see its copy run.
        vars(module)["_forward_hooks"].clear()
        vars(module)["_forward_pre_hooks"].clear()
        vars(module).pop("forward", None)
    return copied


class _Held(NamedTuple):
    """A value that a module holds, and how often it was written to, where it is a tensor."""

    value: Any
    version: int

    def is_still(self, before: _Held | None) -> bool:
        return before is not None and before.value is self.value and before.version == self.version


def _contents(module: nn.Module) -> dict[str, _Held]:
    own = vars(module)
    held = {name: value for name, value in own.items() if name not in _TORCH_OWN}
    for store in _STORES:
        held.update(own[store])
    return {name: _Held(value, value._version if isinstance(value, Tensor) else 0) for name, value in held.items()}


def _grid(model: nn.Module) -> tuple[int, int] | None:
    grid = getattr(getattr(model, "patch_embed", None), "grid_size", None)
    return None if grid is None else (int(grid[0]), int(grid[1]))


def _positions(
    model: nn.Module, changes: list[Change], old: tuple[int, int] | None, new: tuple[int, int] | None
) -> Positions | None:
    moved = next((change.value for change in changes if change[:2] == ("", "pos_embed")), None)
    if moved is None or old is None or new is None:
        return None
    prefix = cast("Tensor", model.pos_embed).shape[-2] - math.prod(old)
    return Positions(prefix, old, new) if prefix == moved.shape[-2] - math.prod(new) else None


def _at_home(value: Any, model: nn.Module) -> Any:
    """Give a tensor of a copy without data the place of the model's own tensors."""
    if has_data(model) or not isinstance(value, Tensor):
        return value
    return torch.empty(value.shape, dtype=value.dtype, device=_kind(model)[1])


def _kind(model: nn.Module) -> tuple[torch.dtype, torch.device]:
    first = next(model.parameters())
    return first.dtype, first.device


def _value(module: nn.Module, name: str) -> Any:
    return getattr(module, name, _ABSENT)


def _kept(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same(before: Any, now: Any) -> bool:
    if not isinstance(before, Tensor):
        return before is now or before == now
    if not isinstance(now, Tensor) or (before.dtype, before.device) != (now.dtype, now.device):
        return False
    return torch.equal(before, now)
