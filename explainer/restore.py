"""Putting things back exactly as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from torch import nn

_ABSENT = object()


def putting_back(owner: Any, name: str) -> Callable[[], None]:
    """Remember an attribute as it is now.

    A module also keeps parameters, buffers and children, each in a mapping of its own.

    Args:
        owner: A module, a parameter, or any other object or class.
        name: The attribute. It need not exist.

    Returns:
        Puts the attribute back; where there was none, takes it away.
    """
    if isinstance(owner, type) or hasattr(getattr(owner.__class__, name, None), "__set__"):
        absent = isinstance(owner, type) and name not in vars(owner)
        value = None if absent else getattr(owner, name)
        return lambda: _set_again(owner, name, value, absent)
    own = cast("dict[str, Any]", owner.__dict__)
    kinds = ("_parameters", "_buffers", "_modules") if isinstance(owner, nn.Module) else ()
    stores: list[dict[str, Any]] = [own, *(own[kind] for kind in kinds)]
    held = [store.get(name, _ABSENT) for store in stores]

    def put_back() -> None:
        for store, value in zip(stores, held, strict=True):
            if value is not _ABSENT:
                store[name] = value
            else:
                store.pop(name, None)

    return put_back


def _set_again(owner: Any, name: str, value: Any, absent: bool) -> None:
    # Setting it may have failed, as with a property that cannot be set: then there is nothing to undo.
    if absent:
        if name in vars(owner):
            delattr(owner, name)
    elif getattr(owner, name) is not value:
        setattr(owner, name, value)


def refill(contents: dict[Any, Any], before: dict[Any, Any]) -> None:
    """Give a mapping the contents that it had before, and keep it the same object."""
    contents.clear()
    contents.update(before)
