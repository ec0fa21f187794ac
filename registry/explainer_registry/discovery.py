"""Discovery: which plugins are installed, and which of them the user has switched off."""

from __future__ import annotations

import importlib.metadata
import re
from typing import TYPE_CHECKING, Final

from explainer_registry.errors import RegistryError, did_you_mean, listed
from explainer_registry.hookspecs import PROJECT
from explainer_registry.plugin import PluginInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.metadata import Distribution, EntryPoint

OWN_DISTRIBUTION: Final = "vision-explainer"
"""The distribution whose plugins are loaded first."""


def normal_name(distribution: str) -> str:
    """Write the name of a distribution in its one normal form.

    Source: PyPA specification "Names and normalization" (PEP 503).
    """
    return re.sub(r"[-_.]+", "-", distribution).lower()


def find_plugins(entry_points: Iterable[EntryPoint] | None = None) -> list[tuple[PluginInfo, EntryPoint]]:
    """Find the plugins without importing them.

    Args:
        entry_points: Where to look; None looks at everything that is installed.

    Returns:
        Pairs in the order of loading: our own distribution, then the others by name, each by entry point.
    """
    if entry_points is None:
        entry_points = importlib.metadata.entry_points(group=PROJECT)
    first: dict[str, Distribution | None] = {}
    found: list[tuple[PluginInfo, EntryPoint]] = []
    for entry_point in entry_points:
        info = _info(entry_point)
        # An editable install leaves a second set of metadata on the path; Python imports from the first,
        # so the first counts.
        if first.setdefault(info.distribution, entry_point.dist) is entry_point.dist:
            found.append((info, entry_point))
    return sorted(found, key=lambda pair: _rank(pair[0]))


def switched_off(names: Iterable[str], plugins: Sequence[PluginInfo]) -> frozenset[str]:
    """Resolve the names of plugins that the user wants off.

    Args:
        names: Each is ``"distribution:entry_point"``, the name of a distribution (all its plugins) or the
            name of an entry point where only one plugin has it.
        plugins: The plugins that were found.

    Returns:
        The ids of the plugins to leave out.

    Raises:
        RegistryError: A name fits no plugin, or could mean more than one thing.
    """
    off: set[str] = set()
    for name in names:
        off |= _meant(name, plugins)
    return frozenset(off)


def _info(entry_point: EntryPoint) -> PluginInfo:
    name, version = _metadata(entry_point.dist)
    package = re.split(r"[.:\s]", entry_point.value, maxsplit=1)[0]
    return PluginInfo(normal_name(name or package), version or "(no version)", entry_point.name)


def _metadata(distribution: Distribution | None) -> tuple[str | None, str | None]:
    # There is no distribution where a plugin author tries a module that is not packaged yet, and no metadata
    # where an uninstall was interrupted; what is raised then differs between versions of Python.
    try:
        return (distribution.name, distribution.version) if distribution else (None, None)
    except Exception:
        return None, None


def _rank(info: PluginInfo) -> tuple[bool, str, str]:
    return info.distribution != OWN_DISTRIBUTION, info.distribution, info.entry_point


def _meant(name: str, plugins: Sequence[PluginInfo]) -> set[str]:
    distribution, _, entry_point = name.partition(":")
    exact = f"{normal_name(distribution)}:{entry_point}"
    if entry_point:
        by_distribution, by_entry_point = {p.id for p in plugins if p.id == exact}, set[str]()
    else:
        by_distribution = {p.id for p in plugins if p.distribution == normal_name(name)}
        by_entry_point = {p.id for p in plugins if p.entry_point == name}
    meant = by_distribution | by_entry_point
    if not meant:
        spellings = [s for p in plugins for s in (p.id, p.entry_point, p.distribution)]
        raise RegistryError(
            f"cannot switch off '{name}': no such plugin{did_you_mean(name, spellings)} "
            f"(plugins: {listed(p.id for p in plugins)})"
        )
    if len(by_entry_point) > 1 or (by_distribution and by_entry_point - by_distribution):
        raise RegistryError(f"cannot switch off '{name}': it could mean {' or '.join(sorted(meant))}; say which")
    return meant
