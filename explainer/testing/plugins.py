"""A registry for tests: our own plugins and those that are given, whatever else is installed."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import cast

from explainer_registry import Registry, use
from explainer_registry.discovery import OWN_DISTRIBUTION, normal_name
from explainer_registry.hookspecs import PROJECT


@dataclass(frozen=True)
class _Given:
    """An entry point of a plugin that is there already."""

    name: str
    value: str
    plugin: object
    dist: None = None
    group: str = PROJECT

    def load(self) -> object:
        return self.plugin


@contextmanager
def fresh_registry(*plugins: object) -> Generator[Registry, None, None]:
    """Replace the registry of this process by one of our own plugins and those that are given.

    Other installed plugins are left out, so a test does not depend on them. The plugins need not be installed.

    Args:
        *plugins: Each a module, or an object with methods marked ``@hookimpl``.

    Yields:
        The registry. It is strict: the first plugin that cannot be loaded raises.

    Raises:
        RegistryError: A plugin cannot be loaded, or two offer the same name.
    """
    points = importlib.metadata.entry_points(group=PROJECT)
    own = [point for point in points if point.dist and normal_name(point.dist.name) == OWN_DISTRIBUTION]
    with use(Registry.discover(entry_points=[*own, *_given(plugins)], strict=True)) as registry:
        yield registry


def _given(plugins: Sequence[object]) -> list[EntryPoint]:
    found: list[EntryPoint] = []
    for number, plugin in enumerate(plugins):
        module = plugin.__name__ if isinstance(plugin, ModuleType) else type(plugin).__module__
        name = module.rpartition(".")[2] if isinstance(plugin, ModuleType) else type(plugin).__name__
        found.append(cast("EntryPoint", _Given(f"{name}-{number}" if number else name, module, plugin)))
    return found
