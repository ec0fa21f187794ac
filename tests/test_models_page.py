"""docs/models.md says what the models really are: a sample of its rows, another one every day, is made anew."""

from __future__ import annotations

import datetime as dt
import random
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import open_clip
import pytest
import timm

ROOT = Path(__file__).parent.parent
SWEEP: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "models.py"))
ROWS: dict[str, dict[str, str]] = SWEEP["read_page"]((ROOT / "docs" / "models.md").read_text(encoding="utf-8"))
TODAY = random.Random(dt.datetime.now(tz=dt.timezone.utc).date().toordinal())  # noqa: S311  no secret
SAMPLE = TODAY.sample(sorted(ROWS), 8)


def test_every_model_is_on_the_page():
    """Of the versions that the page was made with; others have some more, or fewer."""
    if f"timm {timm.__version__}, open_clip {open_clip.__version__}" not in (ROOT / "docs" / "models.md").read_text():
        pytest.skip("the page was made with other versions of timm and open_clip")
    assert sorted(ROWS) == sorted(SWEEP["names"]())


def test_hardly_any_model_is_refused():
    kinds = Counter(row["tried"].partition(":")[0] for row in ROWS.values())
    assert not kinds.keys() & {"BROKEN", "WRONG"}
    assert kinds["refused"] <= 0.01 * len(ROWS)
    assert all(row["tried"].partition(":")[2] for row in ROWS.values() if row["tried"].startswith("refused"))


def test_no_layout_is_disproved():
    assert not [row["model"] for row in ROWS.values() if row["tried"].endswith("proof fails")]


def test_open_clip_takes_prompts():
    clips = [row for name, row in ROWS.items() if name.startswith("open_clip:")]
    answering = [row for row in clips if row["readout"] in ("exact", "approximate", "by shapes") and row["methods"]]
    assert len(answering) >= 0.95 * len(clips)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_made_anew(name: str):
    known = SWEEP["names"]()
    if name not in known:
        pytest.skip("this version of the library does not have it")
    fresh, written = SWEEP["row_of"](name), ROWS[name]
    assert {column: fresh[column] for column in fresh if column != "tried"} == {
        column: written[column] for column in written if column != "tried"
    }
    assert fresh["tried"].partition(";")[0] == written["tried"].partition(";")[0]
