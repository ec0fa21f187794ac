"""The tables of the README say what the plugins declare."""

from __future__ import annotations

import runpy
from pathlib import Path

from explainer_registry import Registry

ROOT = Path(__file__).parent.parent


def test_the_tables_of_the_readme_are_up_to_date():
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    filled = runpy.run_path(str(ROOT / "docs" / "tables.py"))["filled"]
    assert filled(written, Registry.discover()) == written, "run python docs/tables.py"


def test_both_tables_are_there():
    written = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "| `gem` |" in written
    assert "| `open_clip` |" in written
