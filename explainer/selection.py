"""Choosing an encoder, a method, a dataset and so on by name, with whole error messages."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Protocol, cast, runtime_checkable

from pydantic import TypeAdapter, ValidationError

from explainer_registry import Choice, ExplainerError, RegistryError, Schema, Selected, field_errors, registry
from explainer_registry.errors import did_you_mean, listed
from explainer_registry.manager import Kind
from explainer_registry.schema import setting_names

SHORTHAND: Mapping[Kind, str] = MappingProxyType({"encoders": "model", "datasets": "source"})
"""The setting that a name may bring along behind a colon: "timm:resnet50", "voc:FOLDER"."""


class ConfigError(ExplainerError):
    """A setting that does not exist or has a value that it cannot have."""


@runtime_checkable
class PathReader(Protocol):
    """What the settings of a dataset have besides ``source`` to be chosen by a path alone.

    Attributes:
        looks_for: Which paths it is meant for, such as "a folder that holds a folder masks".
    """

    looks_for: ClassVar[str]

    @classmethod
    def reads(cls, path: Path) -> bool:
        """Say by a look whether an existing path is meant for this dataset."""
        ...


def select(kind: Kind, value: object, options: Mapping[str, Any] | None = None) -> Selected:
    """Choose something that a plugin offers, and check its settings.

    Args:
        kind: What is chosen.
        value: A name, a mapping with "name" and settings, an instance of a settings class, or a selection. For
            encoders "timm:resnet50" stands for the name timm with the setting model, for datasets "voc:FOLDER" for
            the name voc with the setting source, and a path alone for the dataset that reads what is there.
        options: More settings.

    Returns:
        The name and its validated settings.

    Raises:
        ConfigError: There is no such name or setting; one line for each thing that is wrong.
    """
    if kind == "encoders" and isinstance(value, str) and (missing := library_missing(value)):
        raise ConfigError(missing)
    if kind == "datasets":
        value = find_dataset(value)
    if options:
        value = _with_options(kind, value, options)
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ConfigError("\n".join(field_errors(error))) from None


def with_defaults(selected: Selected, defaults: Mapping[str, Any]) -> Selected:
    """Fill the settings that were not given.

    Args:
        selected: A name and its settings.
        defaults: What takes the place of the defaults of the settings class.

    Returns:
        The same name; what was given stays as it is.

    Raises:
        ConfigError: A default is no valid setting.
    """
    options = selected.options
    left = {key: value for key, value in defaults.items() if key not in options.model_fields_set}
    if not left:
        return selected
    given = {key: getattr(options, key) for key in options.model_fields_set}
    return select("methods", {"name": selected.name, **given, **left})


@cache
def _adapter(kind: Kind) -> TypeAdapter[Selected]:
    # The adapter reads the registry anew at each use, so keeping it is safe.
    return TypeAdapter(Annotated[Selected, Choice(kind, SHORTHAND.get(kind))])


def _with_options(kind: Kind, value: object, options: Mapping[str, Any]) -> object:
    if isinstance(value, str):
        name, colon, rest = value.partition(":")
        if colon and kind in SHORTHAND:
            return {"name": name, SHORTHAND[kind]: rest, **options}
        return {"name": value, **options}
    if isinstance(value, Mapping):
        return {**cast("Mapping[str, Any]", value), **options}
    given = ", ".join(options)
    what = type(value.options).__name__ if isinstance(value, Selected) else type(value).__name__
    if isinstance(value, (Schema, Selected)):
        raise ConfigError(f"{what} already holds all settings, so {given} cannot be given beside it; set it there")
    return value


def find_dataset(given: object) -> object:
    """Say which dataset reads a path; leave every other spelling of a dataset as it is.

    Args:
        given: What stands for a dataset: "stickers", "voc:FOLDER", or a path of pictures and masks.

    Returns:
        A mapping with name and source in the place of a path.

    Raises:
        ConfigError: There is nothing at the path, or no dataset, or more than one, reads what is there.
    """
    datasets = registry().datasets
    if not isinstance(given, (str, os.PathLike)):
        return given
    text = os.fspath(cast("str | os.PathLike[str]", given))
    if isinstance(given, str) and (text in datasets or text.partition(":")[0] in datasets):
        return given
    path = Path(text).expanduser()
    if not path.exists():
        raise ConfigError(_not_there(text, isinstance(given, str)))
    readers = {name: spec.schema for name, spec in datasets.items() if isinstance(spec.schema, PathReader)}
    found = [name for name, reader in readers.items() if reader.reads(path)]
    if len(found) == 1:
        return {"name": found[0], SHORTHAND["datasets"]: text}
    if found:
        ways = " or ".join(f"'{name}:{text}'" for name in found)
        raise ConfigError(f"'{text}' can be read as more than one kind of data; say {ways}")
    wanted = "; ".join(f"{name} takes {reader.looks_for}" for name, reader in readers.items())
    raise ConfigError(f"no dataset reads '{text}' ({wanted or 'none takes a path'})")


def _not_there(text: str, may_be_name: bool) -> str:
    head, colon, _ = text.partition(":")
    if may_be_name and (colon or not any(mark in text for mark in (os.sep, "/", "."))):
        try:
            registry().datasets.get(head)
        except RegistryError as error:
            return str(error) if colon else f"{error}; nor is there a file or folder of this name"
    return f"there is no file or folder '{text}'"


def library_missing(name: str) -> str:
    """Say what is missing in "resnet50"; nothing where an encoder is named, or nearly so.

    Args:
        name: What was given as a model.
    """
    encoders = registry().encoders
    if ":" in name or name in encoders or name in encoders.unavailable or did_you_mean(name, encoders):
        return ""
    heads = [head for head, spec in encoders.items() if "model" in setting_names(spec.schema)]
    examples = " or ".join(f"'{head}:{name}'" for head in heads if head != "torch")
    return (
        f"'{name}' does not say which library the model comes from; put its encoder in front, such as "
        f"{examples} (encoders: {listed(encoders)})"
    )
