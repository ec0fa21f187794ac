"""The plugin of squares beside those that are installed."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points

import pytest

from explainer_registry import Registry, use


@pytest.fixture
def squares() -> Iterator[None]:
    """Adds what `squares` offers to what is installed."""
    extra = EntryPoint("squares", "bench.squares", "explainer")
    with use(Registry.discover(entry_points=[*entry_points(group="explainer"), extra])):
        yield
