"""Choosing an encoder, a method or a score by name, with whole error messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, cast

from pydantic import TypeAdapter, ValidationError

from explainer_registry import Choice, ExplainerError, Schema, Selected, field_errors, registry
from explainer_registry.errors import did_you_mean, listed
from explainer_registry.schema import setting_names

Kind = Literal["encoders", "methods", "scores"]


class ConfigError(ExplainerError):
    """A setting that does not exist or has a value that it cannot have."""


def select(kind: Kind, value: object, options: Mapping[str, Any] | None = None) -> Selected:
    """Choose something that a plugin offers, and check its settings.

    Args:
        kind: What is chosen.
        value: A name, a mapping with "name" and settings, an instance of a settings class, or a selection. For
            encoders "timm:resnet50" stands for the name timm with the setting model.
        options: More settings.

    Returns:
        The name and its validated settings.

    Raises:
        ConfigError: There is no such name or setting; one line for each thing that is wrong.
    """
    if kind == "encoders" and isinstance(value, str) and (missing := library_missing(value)):
        raise ConfigError(missing)
    if options:
        value = _with_options(kind, value, options)
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ConfigError("\n".join(field_errors(error))) from None


@cache
def _adapter(kind: Kind) -> TypeAdapter[Selected]:
    # The adapter reads the registry anew at each use, so keeping it is safe.
    return TypeAdapter(Annotated[Selected, Choice(kind, "model" if kind == "encoders" else None)])


def _with_options(kind: Kind, value: object, options: Mapping[str, Any]) -> object:
    if isinstance(value, str):
        name, colon, rest = value.partition(":")
        if kind == "encoders" and colon:
            return {"name": name, "model": rest, **options}
        return {"name": value, **options}
    if isinstance(value, Mapping):
        return {**cast("Mapping[str, Any]", value), **options}
    given = ", ".join(options)
    what = type(value.options).__name__ if isinstance(value, Selected) else type(value).__name__
    if isinstance(value, (Schema, Selected)):
        raise ConfigError(f"{what} already holds all settings, so {given} cannot be given beside it; set it there")
    return value


def library_missing(name: str) -> str:
    """Say what is missing in "resnet50"; nothing where an encoder is named, or nearly so.

    Args:
        name: What was given as a model.
    """
    encoders = registry().encoders
    if ":" in name or name in encoders or did_you_mean(name, encoders):
        return ""
    heads = [head for head, spec in encoders.items() if "model" in setting_names(spec.schema)]
    examples = " or ".join(f"'{head}:{name}'" for head in heads if head != "torch")
    return (
        f"'{name}' does not say which library the model comes from; put its encoder in front, such as "
        f"{examples} (encoders: {listed(encoders)})"
    )
