"""Reading `--set key=value` and `--target`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
import yaml

from explainer.selection import ConfigError, select
from explainer_registry import Selected, registry
from explainer_registry.errors import did_you_mean, listed
from explainer_registry.manager import Kind
from explainer_registry.schema import setting_names


def settings_by_owner(given: Sequence[str], owners: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the values of `--set`.

    Args:
        given: Each "key=value"; the value is YAML, such as 7, false, null or [336, 448].
        owners: What keys may begin with, with a dot behind it.

    Returns:
        For each owner its settings; those without an owner under "".

    Raises:
        click.BadParameter: One of them is not of this form, or a key is given twice.
    """
    settings: dict[str, dict[str, Any]] = {owner: {} for owner in (*owners, "")}
    for text in given:
        key, equals, value = text.partition("=")
        head, dot, rest = key.partition(".")
        owner, name = (head, rest) if dot and head in owners else ("", key)
        if not equals or not name:
            raise _bad(f"'{text}' is not of the form key=value, such as depth=7 or model.size=[336,448]")
        if name in settings[owner]:
            raise _bad(f"'{key}' is given twice")
        try:
            settings[owner][name] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise _bad(f"the value in '{text}' is not valid YAML; put it in quotes: {key}=\"'...'\"") from None
    return settings


def choose_methods(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[Selected, ...] | None:
    """Choose methods by name, and give each the settings that it has.

    Args:
        names: Names of methods.
        settings: By key. One that only some of the methods have is given to those.

    Returns:
        The methods with their validated settings; None where none is named.

    Raises:
        ExplainerError: There is no such method or setting.
    """
    if names:
        return _choose("methods", names, settings)
    if settings:
        key = next(iter(settings))
        raise ConfigError(
            f"--set {key}: say with --method which method this is for, or write model.{key} for a setting of the model"
        )
    return None


def choose_views(names: Sequence[str], settings: Mapping[str, Any]) -> tuple[Selected, ...]:
    """Choose views by name, and give each the settings that it has.

    Args:
        names: Names of views; where there is none, maps are drawn as overlays.
        settings: By key. One that only some of the views have is given to those.

    Returns:
        The views with their validated settings.

    Raises:
        ExplainerError: There is no such view or setting.
    """
    return _choose("views", names or ("overlay",), settings, "view.")


def _choose(kind: Kind, names: Sequence[str], settings: Mapping[str, Any], prefix: str = "") -> tuple[Selected, ...]:
    schemas = {name: registry().catalogue(kind).get(name).schema for name in names}
    known = {name: {*setting_names(schema), *schema.model_fields} for name, schema in schemas.items()}
    for key in settings:
        if not any(key in spellings for spellings in known.values()):
            have = list(dict.fromkeys(f"{prefix}{k}" for schema in schemas.values() for k in setting_names(schema)))
            owners = " or ".join(f"'{name}'" for name in known)
            raise ConfigError(
                f"--set {prefix}{key}: no such setting of {owners}{did_you_mean(f'{prefix}{key}', have)} "
                f"(settings: {listed(have)})"
            )
    return tuple(
        select(kind, name, {key: value for key, value in settings.items() if key in known[name]}) for name in names
    )


def read_target(text: str) -> int | str:
    """Read a target as it is written in a shell: digits are the index of a class."""
    return int(text) if text.isascii() and text.isdigit() else text


def _bad(message: str) -> click.BadParameter:
    return click.BadParameter(message, param_hint="'--set'")
