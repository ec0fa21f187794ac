"""Asking what there is must not load what runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "torchvision", "timm", "open_clip", "transformers")

# Runs in a fresh interpreter and prints one JSON line: the heavy modules it loaded and its CPU seconds.
PROBE = """
import contextlib, io, json, sys, time
with contextlib.redirect_stdout(io.StringIO()):
    {body}
heavy = [name for name in {heavy} if name in sys.modules]
print(json.dumps({{"heavy": heavy, "cpu": time.process_time()}}))
"""

COMMAND = "from explainer.cli import main; main({arguments}, standalone_mode=False)"


def heavy_modules_after(body: str, folder: Path) -> list[str]:
    """Run one line of Python and return the heavy modules it loaded; its CPU time is printed (pytest -s)."""
    program = PROBE.format(body=body, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    print(f"{report['cpu']:.2f} s CPU: {body}")
    return report["heavy"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["methods"],
        ["encoders"],
        ["scores"],
        ["metrics"],
        ["datasets"],
        ["views"],
        ["plugins"],
        ["schema"],
        ["explain", "--help"],
        ["bench", "--help"],
        ["new-plugin", "zebra", "--kind", "encoder"],
    ],
    ids=" ".join,
)
def test_a_question_about_the_installation_loads_no_model_library(arguments: list[str], tmp_path: Path) -> None:
    assert heavy_modules_after(COMMAND.format(arguments=arguments), tmp_path) == []


def test_importing_explainer_loads_no_model_library(tmp_path: Path) -> None:
    assert heavy_modules_after("import explainer", tmp_path) == []
