"""Writes docs/api.txt: every public name with its signature, every hook, every command, every setting.

python docs/api.py

What stands there is what users may rely on. A change of it shows in the diff, and belongs in CHANGELOG.md.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel

from explainer.cli import main as command_line
from explainer_registry import hookspecs, registry
from explainer_registry.specs import SPECS

HERE = Path(__file__).parent
MODULES = ("explainer", "explainer.bench", "explainer.testing", "explainer_registry")
_OWN = ("explainer", "explainer_plugins", "explainer_registry")


def names() -> Iterator[str]:
    """Yield the public names of the modules, one a line, those of classes below them."""
    for module in map(import_module, MODULES):
        for name in sorted(module.__all__):
            yield from _described(f"{module.__name__}.{name}", getattr(module, name))


def _described(name: str, value: Any) -> Iterator[str]:
    if not isinstance(value, type):
        yield f"{name}{inspect.signature(value)}" if inspect.isfunction(value) else name
        return
    if issubclass(value, (BaseModel, Enum, Exception)) or getattr(value, "_is_protocol", False):
        yield f"{name}({', '.join(base.__name__ for base in value.__bases__)})"
    else:
        yield f"{name}{inspect.signature(value)}"
    for key in sorted({key for own in value.__mro__ if own.__module__.startswith(_OWN) for key in vars(own)}):
        if not key.startswith("_") and key != "model_config":
            member = inspect.getattr_static(value, key)
            member = getattr(member, "__func__", member)
            yield f"    {key}{inspect.signature(member) if inspect.isfunction(member) else ''}"


def hooks() -> Iterator[str]:
    """Yield the hooks with their arguments."""
    for name, hook in sorted(vars(hookspecs).items()):
        if name.startswith("explainer_"):
            yield f"{name}{inspect.signature(hook)}"


def commands() -> Iterator[str]:
    """Yield the commands with their options."""
    for name, command in sorted(command_line.commands.items()):
        options = [_option(parameter) for parameter in command.params]
        yield " ".join(["explainer", name, *options])


def _option(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return f"{parameter.name.upper()}{'...' if parameter.nargs != 1 else ''}"
    return f"[{'|'.join(parameter.opts)}]"


def settings() -> Iterator[str]:
    """Yield the settings of everything that we declare, with type and default."""
    for kind in SPECS:
        for name, spec in registry().catalogue(kind).items():
            yield f"{kind} {name}"
            for key, field in spec.schema.model_json_schema().get("properties", {}).items():
                told = {word: value for word, value in field.items() if word not in ("description", "title")}
                yield f"    {key}: {json.dumps(told, sort_keys=True)}"


def snapshot() -> str:
    """Write everything."""
    parts = {"Names": names(), "Hooks": hooks(), "Commands": commands(), "Settings": settings()}
    text = "\n".join(f"# {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items())
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # defaults that are objects


if __name__ == "__main__":
    (HERE / "api.txt").write_text(snapshot(), encoding="utf-8")
