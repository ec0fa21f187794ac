"""A command line to call in this process, photographs to call it with, and methods that misbehave."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from explainer.cli import main
from explainer_registry import Registry, use

PHOTOS = Path(__file__).parents[2] / "plugins" / "explainer_plugins" / "demo" / "photos"

Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cat(folder: Path) -> Path:
    """The cat, as cat.jpg in the working directory."""
    return Path(shutil.copy(PHOTOS / "chelsea.jpg", folder / "cat.jpg"))


@pytest.fixture
def explainer(folder: Path) -> Command:
    """Calls the command line in the working directory: `explainer("methods")`."""

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments])

    return call


@pytest.fixture
def misbehaving() -> Iterator[None]:
    """Adds the methods of `misbehaving_methods` to those that are installed."""
    extra = EntryPoint("misbehaving", "misbehaving_methods", "explainer")
    with use(Registry.discover(entry_points=[*entry_points(group="explainer"), extra])):
        yield
