"""The registry of this process."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from explainer_registry.errors import RegistryError
from explainer_registry.manager import Registry

if TYPE_CHECKING:
    from collections.abc import Generator


class _Current:
    """The registry of the process. The lock keeps two threads from discovering at the same time."""

    def __init__(self) -> None:
        self.lock: Final = threading.RLock()
        self.registry: Registry | None = None
        self.discovering = False


_current = _Current()


def registry() -> Registry:
    """Get the registry of this process, discovering the plugins at the first call.

    The environment has two switches: ``EXPLAINER_DISABLE_PLUGINS``, a comma-separated list of plugins to
    leave out, and ``EXPLAINER_STRICT_PLUGINS=1``, which raises the first problem.

    Raises:
        RegistryError: A switch holds something wrong, strict mode met a problem, or a plugin called this
            while it was being loaded.
    """
    with _current.lock:
        if _current.discovering:
            raise RegistryError(
                "registry() was called while the plugins are being loaded; call it when the method runs"
            )
        if _current.registry is None:
            _current.discovering = True
            try:
                _current.registry = Registry.discover(disabled=_disabled(), strict=_strict())
            finally:
                _current.discovering = False
        return _current.registry


@contextmanager
def use(replacement: Registry) -> Generator[Registry]:
    """Replace the registry of this process for a while.

    Args:
        replacement: The registry that `registry` is to return inside the ``with`` block.
    """
    with _current.lock:
        before, _current.registry = _current.registry, replacement
    try:
        yield replacement
    finally:
        with _current.lock:
            _current.registry = before


def _disabled() -> list[str]:
    names = os.environ.get("EXPLAINER_DISABLE_PLUGINS", "").split(",")
    return [name.strip() for name in names if name.strip()]


def _strict() -> bool:
    value = os.environ.get("EXPLAINER_STRICT_PLUGINS", "0")
    if value not in ("", "0", "1"):
        raise RegistryError(f"EXPLAINER_STRICT_PLUGINS is '{value}', expected 1 (on) or 0 (off)")
    return value == "1"
