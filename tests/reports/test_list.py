"""The list of reports names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
NAMED = re.compile(r"`((?:\w+/)?test_\w+)?(?:::(test_\w+))?`")


def test_every_test_that_the_list_names_exists() -> None:
    text, file, missing, count = (TESTS / "reports" / "README.md").read_text(), "", [], 0
    for module, name in NAMED.findall(text):
        file = module or file
        paths = [path for path in (TESTS / "reports" / f"{file}.py", TESTS / f"{file}.py") if path.is_file()]
        count += bool(name)
        if not paths or f"def {name}(" not in paths[0].read_text() + "def (":
            missing.append((file, name))
    assert missing == []
    assert count > 60
