"""A plugin to begin with: a copy of the smallest built-in of its kind. Importing this imports no torch."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import EntryPoint
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from types import MappingProxyType

from explainer.newplugin.copying import identifiers, only_declaration, part, renamed
from explainer_registry import ExplainerError, Registry, Spec, registry
from explainer_registry.errors import did_you_mean, listed
from explainer_registry.manager import Kind
from explainer_registry.specs import SPECS

BUILT_INS: Mapping[Kind, tuple[str, str]] = MappingProxyType(
    {
        "methods": ("similarity", "similarity"),
        "encoders": ("torch", "torch"),
        "scores": ("scores", "logit"),
        "metrics": ("metrics", "pointing"),
        "datasets": ("stickers", "stickers"),
        "views": ("views", "heat"),
    }
)
"""What a new plugin is copied from: entry point and name of the smallest built-in of each kind that stands alone."""

KINDS: Mapping[str, Kind] = MappingProxyType({SPECS[kind].noun: kind for kind in BUILT_INS})
"""The kinds as an author says them ("method"), with what they are called in the registry ("methods")."""


_TRY_ENCODER = "import explainer, timm; print(explainer.wrap(timm.create_model('resnet18'), encoder='{}').inspect())"


class NewPluginError(ExplainerError):
    """A plugin that cannot be written: its name, its kind or its folder is not free or not valid."""


@dataclass(frozen=True)
class NewPlugin:
    """A plugin to be written.

    Args:
        kind: As in `SPECS`: "methods".
        name: What it will be chosen by.
        built_in: The declaration that it copies.
    """

    kind: Kind
    name: str
    built_in: Spec

    @property
    def package(self) -> str:
        """Its Python package."""
        return f"explainer_{self.name}"

    @property
    def distribution(self) -> str:
        """What it is installed as."""
        return f"explainer-{'-'.join(self.name.replace('_', ' ').split())}"

    @property
    def settings(self) -> str:
        """The class of its settings."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @cached_property
    def sources(self) -> tuple[str, str]:
        """What the built-in consists of: its face, and its code."""
        hook = f"explainer_{self.kind}"
        module, _, factory = self.built_in.factory.partition(":")
        package, _, name = module.rpartition(".")
        face = only_declaration(_read(package, "__init__"), hook, self.built_in.name)
        kept = part(face, hook)
        if kept != face:  # the package holds other things too, and says so at its top
            kept = re.sub(r'\A""".*?"""', f'"""{self.built_in.summary}"""', kept, flags=re.DOTALL)
        return kept, part(_read(package, name), factory)

    @property
    def patterns(self) -> Mapping[str, str]:
        """How the names of the built-in become those of the plugin; see `renamed`."""
        old, schema, module = self.built_in.name, self.built_in.schema, self.built_in.factory.partition(":")[0]
        return {
            rf"\b{re.escape(module)}\b": f"{self.package}.{self.name}",
            rf"\b{re.escape(schema.__module__)}\b(?!\.)": self.package,
            rf"\b{schema.__name__}(?=\b|[A-Z])": self.settings,
            rf'(?<=[":]){old}(?=[":])|(?<=\bdef ){old}\b': self.name,
            rf"\bthe {old} {self.built_in.noun}\b": f"the {self.name} {self.built_in.noun}",
        }

    @cached_property
    def files(self) -> Mapping[str, str]:
        """What is written: texts by path within the folder."""
        face, code = (renamed(source, self.patterns) for source in self.sources)
        return {
            "pyproject.toml": self._filled("pyproject.toml"),
            f"{self.package}/__init__.py": face,
            f"{self.package}/{self.name}.py": code,
            f"tests/test_{self.name}.py": self._filled(f"test_{self.built_in.noun}.py"),
            "README.md": self._filled("README.md"),
            ".github/workflows/test.yml": self._filled("test.yml"),
        }

    @property
    def usage(self) -> str:
        """How it is used for the first time, once it is installed."""
        ways = {
            "methods": f"explainer explain PICTURE --model demo --method {self.name}",
            "encoders": f'python -c "{_TRY_ENCODER.format(self.name)}"',
            "scores": f"explainer explain PICTURE --model demo --method gradcam --score {self.name}",
            "metrics": f"explainer bench --model stickers --pictures 20 --metrics {self.name}",
            "datasets": f"explainer bench --model stickers --pictures 20 --data {self.name}",
            "views": f"explainer explain PICTURE --model demo --view {self.name}",
        }
        return ways[self.kind]

    def write(self, folder: Path) -> list[Path]:
        """Write the plugin.

        Args:
            folder: Must not exist yet.

        Returns:
            The files, as they were written.

        Raises:
            NewPluginError: The folder exists, or cannot be written.
        """
        try:
            folder.mkdir(parents=True)
            for name, text in self.files.items():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(text, encoding="utf-8", newline="\n")
        except FileExistsError:
            raise NewPluginError(
                f"'{folder}' is there already, and nothing in it was changed; choose another folder with --out"
            ) from None
        except OSError as error:
            raise NewPluginError(f"cannot write to '{folder}': {error.strerror or error}") from error
        return [folder / name for name in self.files]

    def _filled(self, template: str) -> str:
        text = (files("explainer.newplugin") / "templates" / f"{template}.txt").read_text(encoding="utf-8")
        return Template(text).substitute(
            name=self.name,
            noun=self.built_in.noun,
            kind=self.kind,
            package=self.package,
            distribution=self.distribution,
            settings=self.settings,
            original=self.built_in.name,
            usage=self.usage,
        )


def new_plugin(name: str, noun: str) -> NewPlugin:
    """Make a plugin of this name.

    Args:
        name: What it will be chosen by.
        noun: Its kind, such as "method".

    Raises:
        RegistryError: The name is not a valid one.
        NewPluginError: There is no such kind, or the name is taken, or would break the code that is copied.
    """
    if noun not in KINDS:
        raise NewPluginError(f"no kind of plugin named '{noun}'{did_you_mean(noun, KINDS)} (kinds: {listed(KINDS)})")
    kind = KINDS[noun]
    built_in = _built_in(kind)
    plugin = NewPlugin(kind, replace(built_in, name=name).name, built_in)  # which checks the name
    _check_free(plugin)
    _check_fits(plugin)
    return plugin


def _built_in(kind: Kind) -> Spec:
    # Neither what a user has switched off nor another plugin of the same name matters here.
    entry_point, name = BUILT_INS[kind]
    alone = Registry.discover(
        entry_points=[EntryPoint(entry_point, f"explainer_plugins.{entry_point}", "explainer")], strict=True
    )
    return alone.catalogue(kind).get(name)


def _check_free(plugin: NewPlugin) -> None:
    there = registry()
    for label, source in ((label, info.source) for info in there.plugins for label in info.offers):
        if label == f"{plugin.built_in.noun} {plugin.name}":
            raise NewPluginError(f"there is a {label} already, by {source}; {_another(plugin)}")
    found = find_spec(plugin.package)
    if found is not None:
        where = found.origin or listed(found.submodule_search_locations or ())
        raise NewPluginError(
            f"a plugin named '{plugin.name}' is kept in the package '{plugin.package}', and there is one already, "
            f"'{where}'; {_another(plugin)}"
        )


def _check_fits(plugin: NewPlugin) -> None:
    if keyword.iskeyword(plugin.name):
        raise NewPluginError(f"'{plugin.name}' is a word of Python, so no module can have it; {_another(plugin)}")
    before, after = (
        {name for source in sources for name in identifiers(source)}
        for sources in (plugin.sources, [renamed(source, plugin.patterns) for source in plugin.sources])
    )
    if len(after) < len(before):
        twice = sorted(before & {plugin.name, plugin.settings, f"{plugin.settings}Encoder"})
        raise NewPluginError(
            f"the code of a {plugin.built_in.noun} named '{plugin.name}' would use the name '{twice[0]}' for two "
            f"things; {_another(plugin)}"
        )


def _another(plugin: NewPlugin) -> str:
    return f"choose another name, such as 'my_{plugin.name}'"


def _read(package: str, module: str) -> str:
    # Read, not imported: the code of a plugin imports torch.
    return files(package).joinpath(f"{module}.py").read_text(encoding="utf-8")
