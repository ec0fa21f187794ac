"""Markers of the method tests."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make `-m "not slow"` possible."""
    config.addinivalue_line("markers", "slow: runs a network of real size; several seconds each")
