"""Runs the Python blocks of README.md and docs/ as tests, in a scratch folder that looks like a clone."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from sybil import Sybil
from sybil.integration.pytest import SybilItem
from sybil.parsers.markdown import PythonCodeBlockParser

# Tests run side by side already. Set before torch is imported anywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")

PHOTOS = Path("plugins/explainer_plugins/demo/photos")


def enter_scratch_folder(namespace: dict[str, Any]) -> None:
    """Start a document in a folder that holds the photographs where a clone holds them.

    Args:
        namespace: The names that the document's blocks share.
    """
    # "_" keeps these two apart from the names that a document's own blocks define.
    namespace["_folder"], namespace["_before"] = tempfile.mkdtemp(), os.getcwd()
    shutil.copytree(Path(__file__).parent / PHOTOS, Path(namespace["_folder"]) / PHOTOS)
    os.chdir(namespace["_folder"])


def leave_scratch_folder(namespace: dict[str, Any]) -> None:
    """Go back to where the tests were started and remove what the document wrote.

    Args:
        namespace: The names that the document's blocks share.
    """
    os.chdir(namespace["_before"])
    shutil.rmtree(namespace["_folder"])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the blocks of each document back in reading order: later ones use the names of earlier ones.

    Args:
        items: The collected tests, already shuffled by pytest-randomly; changed in place.
    """
    items.sort(key=lambda item: (str(item.path), item.example.line) if isinstance(item, SybilItem) else ("", 0))


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()],
    patterns=["README.md", "docs/*.md"],
    setup=enter_scratch_folder,
    teardown=leave_scratch_folder,
).pytest()
