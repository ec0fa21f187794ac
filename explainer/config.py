"""A run as a user describes it: which pictures, which model, what is asked of it."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast

from pydantic import BeforeValidator, Field, JsonValue, ValidationError

from explainer.runfile import parse
from explainer.selection import ConfigError, library_missing, select
from explainer_registry import Choice, Schema, Selected, field_errors
from explainer_registry.errors import shown
from explainer_registry.schema import our_error, read_settings

_NOT_EMPTY: dict[str, JsonValue] = {"minItems": 1}


def a_list(value: object) -> object:
    """Take a list or tuple that is not empty, before pydantic looks at its entries.

    Raises:
        PydanticCustomError: It is something else.
    """
    # Not left to min_length, which pydantic also reports where the only entry is wrong.
    if isinstance(value, (list, tuple)) and value:
        return cast("object", value)
    raise our_error(
        f"expected a list of at least one entry (given: {shown(cast('object', value))}); "
        "begin each entry on a line of its own with '- '"
    )


def a_list_or_nothing(value: object) -> object:
    """Take what `a_list` takes, or None.

    Raises:
        PydanticCustomError: It is something else.
    """
    return None if value is None else a_list(value)


def _a_target(value: object) -> object:
    if type(value) is int or _is_text(value):  # a bool is an int too, but no index
        return value
    if isinstance(value, (list, tuple)):
        return _some_texts(cast("Sequence[object]", value))
    raise our_error(_no_target(value))


def _some_texts(values: Sequence[object]) -> object:
    if values and all(map(_is_text, values)):
        return values
    raise our_error(_no_target(values))


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _no_target(given: object) -> str:
    # Unquoted, YAML reads no, yes, on, 1.5 and 2024-01-01 as something else than text.
    return (
        "a target is a class index, a class name or text, or a list of texts that are averaged "
        f"(given: {shown(given)}); put text in quotes where YAML takes it for something else"
    )


def _with_library(value: object) -> object:
    missing = library_missing(value) if isinstance(value, str) else ""
    if missing:
        raise our_error(missing)
    return value


Model = Annotated[Selected, Choice("encoders", shorthand="model"), BeforeValidator(_with_library)]
"""A model: a name such as "timm:resnet50", or a mapping with name and settings."""

Methods = Annotated[tuple[Annotated[Selected, Choice("methods")], ...] | None, BeforeValidator(a_list_or_nothing)]
"""Methods by name, or as mappings with name and settings."""

Target = Annotated[int | str | tuple[str, ...], BeforeValidator(_a_target)]


Views = Annotated[tuple[Annotated[Selected, Choice("views")], ...], BeforeValidator(a_list)]
"""Views by name, or as mappings with name and settings."""


class Run(Schema):
    """A run: pictures, a model, and what to explain."""

    pictures: Annotated[tuple[str, ...], BeforeValidator(a_list)] = Field(
        json_schema_extra=_NOT_EMPTY,
        description="Paths or patterns (street/*.jpg, street/**/*.png), relative to the folder of this file.",
    )
    model: Model = Field(
        description="The model: 'timm:resnet50', 'open_clip:ViT-B-16/laion2b_s34b_b88k', or a mapping with "
        "name and settings. Paths in the settings are relative to where the command is run.",
    )
    targets: Annotated[tuple[Target, ...] | None, BeforeValidator(a_list_or_nothing)] = Field(
        None,
        json_schema_extra=_NOT_EMPTY,
        description="What is asked of every picture: class indices, class names, texts, or lists of texts "
        "that are averaged. A number in quotes is text. By default the top class, or the whole embedding of a "
        "model without classes.",
    )
    methods: Methods = Field(
        None,
        json_schema_extra=_NOT_EMPTY,
        description="Names of methods, or mappings with name and settings. By default the best that fits the model.",
    )
    score: Annotated[Selected, Choice("scores")] = Field(
        default_factory=lambda: select("scores", "logit"),
        description="The number that is explained; logit by default.",
    )
    views: Views = Field(
        default_factory=lambda: (select("views", "overlay"),),
        json_schema_extra=_NOT_EMPTY,
        description="How each map is drawn: names of views, or mappings with name and settings; overlay by default.",
    )
    templates: str | tuple[str, ...] | None = Field(
        None,
        description="For models that read text: the name of a set of templates, a template with {} in the "
        "place of the text, or several.",
    )
    out: Path = Field(
        Path("explanations"),
        description="Folder for what is written, relative to the folder of this file.",
    )
    batch: int = Field(8, ge=1, strict=True, description="How many pictures go through the model at a time.")


def make_run(values: Mapping[str, object], owner: str = "run") -> Run:
    """Validate the fields of a run.

    Args:
        values: The fields by name.
        owner: What they were given in, for messages.

    Returns:
        The run.

    Raises:
        ConfigError: One line for each field that is wrong.
    """
    try:
        return _validated(values, owner)
    except ValidationError as error:
        raise ConfigError("\n".join(field_errors(error))) from None


def read_run(path: Path) -> Run:
    """Read a run from a YAML file.

    Args:
        path: The file.

    Returns:
        The run. Its pictures and folder are still relative to the folder of the file.

    Raises:
        ConfigError: The file cannot be read, or is no run: one line for each thing that is wrong, each with
            its line in the file.
    """
    document = parse(path)
    try:
        return _validated(document.values, path.name)
    except ValidationError as error:
        lines = [document.line(detail["loc"]) for detail in error.errors(include_url=False)]
        found = zip(lines, field_errors(error), strict=True)
        raise ConfigError("\n".join(f"{path}:{line}: {text}" for line, text in found)) from None


def run_schema() -> str:
    """Write the JSON schema of run files, with everything that the installed plugins offer.

    Returns:
        JSON (draft 2020-12), without a line break at the end.
    """
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps({**dialect, **Run.model_json_schema()}, indent=2, ensure_ascii=False)


def find_pictures(pictures: tuple[str, ...], folder: Path) -> tuple[Path, ...]:
    """Find the files that paths and patterns stand for.

    Args:
        pictures: Paths and patterns. What exists under exactly this name is no pattern. ``~`` is the home
            folder.
        folder: What they are relative to.

    Returns:
        The paths in the given order, those of a pattern sorted; each file once. A path without a pattern is
        returned whether or not it exists.

    Raises:
        ConfigError: A pattern matches no file.
    """
    found: dict[str, Path] = {}
    for text in pictures:
        given = os.path.expanduser(text)
        literal = os.path.lexists(folder / given) or not glob.has_magic(given)
        paths = [folder / given] if literal else _matches(given, folder)
        if not paths:
            raise ConfigError(f"no file matches '{text}' (looked in {folder.resolve()})")
        for path in paths:
            found.setdefault(os.path.realpath(path), path)
    return tuple(found.values())


def _validated(values: Mapping[str, object], owner: str) -> Run:
    return cast("Run", read_settings(Run, owner, values))


def _matches(pattern: str, folder: Path) -> list[Path]:
    names = glob.glob(pattern, root_dir=folder, recursive=True)
    return sorted(path for path in (folder / name for name in names) if not path.is_dir())
