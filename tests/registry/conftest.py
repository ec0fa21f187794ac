"""A folder of distributions that a test fills with plugins, good and sabotaged."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from explainer_registry import Registry

FACE = """
from explainer_registry import {spec}, Schema, hookimpl

class {schema}(Schema):
    depth: int = 7

@hookimpl
def explainer_{noun}s():
    return [{spec}(name="{name}", schema={schema}, factory="{factory}", summary="A {noun}."{rest})]
"""


class Site:
    """Distributions as an installer leaves them: modules beside ``*.dist-info`` folders."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def install(self, distribution: str, version: str = "1.0", files: dict[str, str] | None = None, **plugins: str):
        """Install a distribution with one module per plugin, ``<distribution>_<entry point>``.

        Args:
            distribution: Its name.
            version: Its version.
            files: Further modules by name.
            plugins: Source of the module by name of the entry point.
        """
        stem = distribution.lower().replace("-", "_").replace(".", "_")
        modules = {f"{stem}_{entry_point}": source for entry_point, source in plugins.items()}
        for name, source in {**modules, **(files or {})}.items():
            (self.path / f"{name}.py").write_text(dedent(source))
        lines = [f"{entry_point} = {stem}_{entry_point}" for entry_point in plugins]
        self.declare(distribution, version, *lines)

    def declare(self, distribution: str, version: str, *lines: str) -> Path:
        """Write the metadata of a distribution with these lines in its entry-point group."""
        stem = distribution.replace("-", "_")
        folder = self.path / f"{stem}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (folder / "entry_points.txt").write_text("\n".join(["[explainer]", *lines, ""]))
        importlib.invalidate_caches()
        return folder

    def entry_points(self) -> list[importlib.metadata.EntryPoint]:
        """The entry points of the distributions in this folder and of no others."""
        found = importlib.metadata.distributions(path=[str(self.path)])
        return [point for one in found for point in one.entry_points.select(group="explainer")]

    def discover(self, **options) -> Registry:
        """Discover the plugins of this folder and no others."""
        return Registry.discover(entry_points=self.entry_points(), **options)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """An empty site on the path; what was imported from it is forgotten after the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield Site(folder)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def face():
    """Writes the source of a plugin that offers one thing."""

    def write(name: str, noun: str = "method", factory: str = "plugin_code:run", schema: str = "Settings") -> str:
        rest = ', needs=frozenset({"features"}), reference="Nobody 2020"' if noun == "method" else ""
        spec = f"{noun.capitalize()}Spec"
        return FACE.format(name=name, noun=noun, factory=factory, schema=schema, spec=spec, rest=rest)

    return write
