"""Every heading of the page of troubles is a text that the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEADINGS = re.findall(r"^## `(.+)`$", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE)


def code() -> str:
    """All sources, with texts that go on over several lines put together."""
    folders = ("explainer", "registry", "plugins")
    text = "\n".join(path.read_text(encoding="utf-8") for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return re.sub(r"\"\s*\n\s*f?\"", "", text)


@pytest.mark.parametrize("heading", HEADINGS)
def test_it_is_said(heading: str) -> None:
    said = code()
    for part in heading.split("…"):
        assert part.strip(" ';") in said


def test_there_are_headings() -> None:
    assert len(HEADINGS) > 8
