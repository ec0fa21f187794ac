"""The assertion that a model is as it was before."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack  # pyright: ignore[reportPrivateUsage]
from torch.utils._python_dispatch import (
    _get_current_dispatch_mode_stack,  # pyright: ignore[reportPrivateUsage, reportUnknownVariableType]
)

_SHOWN = 6  # changes named in a message
_MISSING = object()

UNDO = (
    "change a model only inside `with encoder.session() as hooks:` and through these hooks (hooks.tap, hooks.set, "
    "hooks.on_call, hooks.enter), which put everything back, also where something is raised"
)
"""What to do about a model that is left changed."""


@contextmanager
def assert_clean(model: nn.Module) -> Generator[None, None, None]:
    """Assert that a model leaves a ``with`` block as it entered it, also where the block raises.

    Looked at are hooks, modes, flags and other attributes of every module; identity, version, type, freezing and
    gradient of every parameter and buffer; and the contents of every mapping that the model keeps.

    Args:
        model: Any module.

    Raises:
        AssertionError: Something changed; the message names it. What the block itself raised is its context.

    Example:
        >>> with assert_clean(torch.nn.Linear(2, 3)):
        ...     pass
    """
    before = snapshot(model)
    try:
        yield
    finally:
        if changed := differences(before, snapshot(model)):
            raise AssertionError(f"the {type(model).__name__} is not as it was: {told(changed)}; {UNDO}")


def snapshot(model: nn.Module) -> dict[str, Any]:
    """List everything of a model that an explanation must leave as it was.

    Args:
        model: Any module.

    Returns:
        By path, something to compare: two snapshots are equal where nothing changed between them.
    """
    seen: dict[str, Any] = {}
    named = cast("Iterable[tuple[str, nn.Module]]", model.named_modules(remove_duplicate=False))
    for name, module in named:
        for key, value in vars(module).items():
            seen[f"{name}.{key}".lstrip(".")] = _fixed(value)
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in tensors:
        seen[f"{name}, the tensor"] = (id(tensor), tensor.data_ptr() if tensor.device.type == "cpu" else 0)
        seen[f"{name}, its values"] = (tensor._version,)
        seen[f"{name}.dtype"] = str(tensor.dtype)
        seen[f"{name}.requires_grad"] = tensor.requires_grad
        seen[f"{name}.grad"] = None if tensor.grad is None else (id(tensor.grad), tensor.grad._version)
        seen[f"{name}, its attributes"] = tuple(vars(tensor))
    return seen


def surroundings() -> dict[str, Any]:
    """List what a process or thread has only one of, and code that runs a model may be tempted to set."""
    return {
        "torch.is_grad_enabled()": torch.is_grad_enabled(),
        "torch.is_inference_mode_enabled()": torch.is_inference_mode_enabled(),
        "torch.get_default_dtype()": str(torch.get_default_dtype()),
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled(),
        "autocast on the CPU": torch.is_autocast_enabled("cpu"),
        "function modes": _fixed(_get_current_function_mode_stack()),
        "dispatch modes": _fixed(cast("list[Any]", _get_current_dispatch_mode_stack())),
        "torch's random numbers": torch.get_rng_state().numpy().tobytes(),
    }


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Say what differs between two snapshots, one phrase for each thing."""
    found: list[str] = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, _MISSING), after.get(key, _MISSING)
        if old is not new and old != new:
            found.append(f"{key} {_difference(old, new)}")
    return found


def told(changes: list[str]) -> str:
    """Join phrases, leaving out the end of a long list."""
    more = len(changes) - _SHOWN
    return ", ".join(changes[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _fixed(value: Any) -> Any:
    """What a value is now, in a form that later changes do not reach."""
    if isinstance(value, dict):
        return {key: _fixed(part) for key, part in cast("dict[Any, Any]", value).items()}
    if isinstance(value, (set, list, tuple)):
        parts = cast("list[Any]", value)
        return [type(parts).__name__, *map(id, parts)]
    return value if isinstance(value, (bool, int, float, str, type(None))) else (id(value),)


def _difference(old: Any, new: Any) -> str:
    if old is _MISSING:
        return "was added"
    if new is _MISSING:
        return "was removed"
    if isinstance(old, dict) and isinstance(new, dict):
        return _of_mappings(cast("dict[Any, Any]", old), cast("dict[Any, Any]", new))
    if isinstance(old, (list, tuple, dict, bytes)) or isinstance(new, (list, tuple, dict, bytes)):
        return "changed"
    return f"was {old!r} and is {new!r}"


def _of_mappings(old: dict[Any, Any], new: dict[Any, Any]) -> str:
    counts = {
        "more": len(new.keys() - old.keys()),
        "fewer": len(old.keys() - new.keys()),
        "changed": sum(old[key] != new[key] for key in old.keys() & new.keys()),
    }
    if not any(counts.values()):
        return "changed its order"
    return "has " + " and ".join(f"{count} {what}" for what, count in counts.items() if count)
