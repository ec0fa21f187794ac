"""PluginInfo: one entry point of one distribution, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a plugin, or between two of them.

    Args:
        source: Who is at fault, ``"distribution version (entry point)"``.
        reason: What is wrong, whole, on as many lines as it needs.
    """

    source: str
    reason: str

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


@dataclass(frozen=True)
class PluginInfo:
    """A plugin as it was found, and what it offers.

    Args:
        distribution: Name of the distribution in its normal form (lower case, ``-``).
        version: Version of the distribution.
        entry_point: Name of the entry point.
        enabled: False where the user has switched the plugin off; its code is not imported then.
        offers: What it declares, e.g. ``("encoder timm", "method gem")``; empty where it failed.
        problem: Why the plugin could not be used, or None.
    """

    distribution: str
    version: str
    entry_point: str
    enabled: bool = True
    offers: tuple[str, ...] = ()
    problem: Problem | None = None

    @property
    def id(self) -> str:
        """The name of the plugin, ``"distribution:entry_point"``."""
        return f"{self.distribution}:{self.entry_point}"

    @property
    def release(self) -> str:
        """The distribution and its version, ``"explainer-gem 1.0"``."""
        return f"{self.distribution} {self.version}"

    @property
    def source(self) -> str:
        """The release and the entry point, ``"explainer-gem 1.0 (gem)"``."""
        return f"{self.release} ({self.entry_point})"
