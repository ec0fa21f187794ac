"""The tables of README.md and docs/methods.md say what the plugins declare."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from explainer_registry import Registry

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("page", ["README.md", "docs/methods.md"])
def test_the_tables_are_up_to_date(page: str) -> None:
    written = (ROOT / page).read_text(encoding="utf-8")
    filled = runpy.run_path(str(ROOT / "docs" / "tables.py"))["filled"]
    assert filled(written, Registry.discover()) == written, "run python docs/tables.py"


def test_the_tables_are_there() -> None:
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "| `gem` |" in written
    assert "| `open_clip` |" in written


def test_every_method_has_its_section() -> None:
    written = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## (\w+)$", written, re.MULTILINE)) == list(Registry.discover().methods.names())
    assert all(f"<!-- method {name}: end -->" in written for name in Registry.discover().methods)
