"""A benchmark as a user describes it: which models, which methods, on which pictures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationError
from pydantic_core import to_json

from explainer.config import Methods, Model, a_list, a_list_or_nothing
from explainer.selection import SHORTHAND, ConfigError, find_dataset, select
from explainer_registry import Choice, Schema, Selected, field_errors
from explainer_registry.schema import our_error, read_settings

_NOT_EMPTY: dict[str, JsonValue] = {"minItems": 1}
_SOURCE = SHORTHAND["datasets"]


def label(selected: Selected) -> str:
    """Name something that was chosen, together with the settings that were given: "gem depth=3"."""
    changed: dict[str, Any] = selected.options.model_dump(mode="json", exclude_unset=True)
    words = (f"{key}={value if isinstance(value, str) else to_json(value).decode()}" for key, value in changed.items())
    return " ".join([selected.name, *words])


def dumped(selected: Selected) -> dict[str, Any]:
    """Write all settings of something that was chosen as JSON holds them."""
    return selected.options.model_dump(mode="json")


def portable(value: object) -> Any:
    """Leave out of settings where things lie on this machine: of a path that starts at its root the name remains."""
    if isinstance(value, Mapping):
        return {str(key): portable(part) for key, part in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [portable(part) for part in cast("list[object]", value)]
    if isinstance(value, str) and (os.path.isabs(value) or value.startswith("~")):
        return Path(value).name
    return value


def _found(value: object) -> object:
    try:
        return find_dataset(value)
    except ConfigError as error:
        raise our_error(str(error)) from None


def _distinct(chosen: tuple[Selected, ...] | None) -> tuple[Selected, ...] | None:
    labels = [label(one) for one in chosen or ()]
    for name in labels:
        if labels.count(name) > 1:
            raise our_error(f"'{name}' is given twice with the same settings; give it once")
    return chosen


class BenchRun(Schema):
    """A benchmark: models, methods, pictures with true masks, and what is measured."""

    encoders: Annotated[tuple[Model, ...], BeforeValidator(a_list)] = Field(
        json_schema_extra=_NOT_EMPTY, description="The models: names such as 'stickers', or mappings with settings."
    )
    methods: Annotated[Methods, AfterValidator(_distinct)] = Field(
        None, json_schema_extra=_NOT_EMPTY, description="The methods. By default all that fit a model."
    )
    data: Annotated[Selected, Choice("datasets", shorthand=_SOURCE), BeforeValidator(_found)] = Field(
        default_factory=lambda: select("datasets", "stickers"),
        description="Pictures and masks: 'stickers' (the default), 'voc:FOLDER', 'coco:FILE.json', or a path alone.",
    )
    pictures: int | None = Field(
        None, ge=1, strict=True, description="How many pictures, the first ones. By default all."
    )
    metrics: Annotated[
        tuple[Annotated[Selected, Choice("metrics")], ...] | None,
        BeforeValidator(a_list_or_nothing),
        AfterValidator(_distinct),
    ] = Field(None, json_schema_extra=_NOT_EMPTY, description="What is measured; by default everything.")
    templates: str | tuple[str, ...] | None = Field(
        None,
        description="For models that read text: the name of a set of templates, a template with {} in the place of "
        "the label, or several.",
    )
    seed: int = Field(0, ge=0, strict=True, description="Of the random control and of the intervals.")
    out: Path = Field(Path("explainer-bench"), description="Folder for the results.")


def make_bench(values: Mapping[str, object], owner: str = "bench") -> BenchRun:
    """Validate the fields of a benchmark.

    Args:
        values: The fields by name.
        owner: What they were given in, for messages.

    Returns:
        The benchmark.

    Raises:
        ConfigError: One line for each field that is wrong.
    """
    try:
        return cast("BenchRun", read_settings(BenchRun, owner, values))
    except ValidationError as error:
        raise ConfigError("\n".join(field_errors(error))) from None
