"""The documentation builds without a warning, and asks nobody else for anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FETCHED = re.compile(r"<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=[\"'](?:https?:)?//([^\"']+)")


def test_the_site_builds_without_warnings_and_without_outside_requests(tmp_path: Path) -> None:
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) >= len(list((ROOT / "docs").rglob("*.md")))
    assert {page.name: found for page in pages if (found := FETCHED.findall(page.read_text(encoding="utf-8")))} == {}
    styles = "".join(style.read_text(encoding="utf-8") for style in tmp_path.rglob("*.css"))
    assert re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//[^\"')]+", styles) == []
