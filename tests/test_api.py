"""What users may rely on changes on purpose only."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_list_of_what_users_may_rely_on_is_up_to_date() -> None:
    now = runpy.run_path(str(DOCS / "api.py"))["snapshot"]()
    assert now == (DOCS / "api.txt").read_text(encoding="utf-8"), "say so in CHANGELOG.md, and run python docs/api.py"
