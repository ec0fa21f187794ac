"""Schema: the settings of one method, encoder or score, and how wrong settings are reported."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from explainer_registry.errors import RegistryError, describe, did_you_mean, listed, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

Location: TypeAlias = tuple[int | str, ...]

OUR_ERROR: Final = "explainer"
"""Type of the pydantic errors that are in our words, and kept as they are by an outer schema."""


class Schema(BaseModel):
    """Base of every settings class: frozen, and unknown settings are refused.

    A subclass needs no field for its name; the registry adds that where one is chosen among many.

    Example:
        >>> from pydantic import Field
        >>> class GEM(Schema):
        ...     depth: int = Field(7, ge=1, description="How many last blocks are replaced.")
        >>> GEM(depth=4)
        GEM(depth=4)
    """

    # A field may carry an alias because its natural name is a Python keyword ("lambda"). Dumps use field
    # names, so both spellings must be accepted or a dump could not be read back.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def our_error(message: str) -> PydanticCustomError:
    """Make a pydantic error that says just this; a plain ValueError is announced as "Value error, ..."."""
    # pydantic fills {placeholders} of a template and knows no escape, so the text goes in as a value.
    return PydanticCustomError(OUR_ERROR, "{message}", {"message": message})


def setting_names(schema: type[Schema]) -> tuple[str, ...]:
    """Name the settings of a schema as a user writes them: by alias where a field has one.

    Returns:
        The names in the order of declaration.
    """
    return tuple(field.alias or name for name, field in schema.model_fields.items())


def read_settings(schema: type[Schema], owner: str, values: Mapping[str, object]) -> Schema:
    """Validate the settings of one named thing.

    Args:
        schema: The class that declares them.
        owner: Whose settings they are, e.g. ``"gem"``; messages name it.
        values: The settings as given.

    Returns:
        An instance of ``schema``.

    Raises:
        pydantic.ValidationError: with one error, in our words, for each wrong field. Raised from a validator
            it keeps the locations of the fields: pydantic puts the outer location in front.
        RegistryError: A validator of the schema broke down.
    """
    try:
        return schema.model_validate(dict(values))
    except ValidationError as error:
        by_field: dict[Location, list[ErrorDetails]] = {}
        for detail in error.errors(include_url=False):
            by_field.setdefault(_location(detail, values), []).append(detail)
        details = [_merged(location, found, schema, owner, values) for location, found in by_field.items()]
        raise ValidationError.from_exception_data(owner, details) from None
    except Exception as cause:  # pydantic lets through what a plugin's validator should not raise
        raise RegistryError(f"the settings of '{owner}' could not be checked: {describe(cause)}") from cause


def field_errors(error: ValidationError) -> tuple[str, ...]:
    """Turn a validation error into one line per wrong field.

    Returns:
        Lines such as ``"method.dpeth: no such setting of 'gem'; did you mean 'depth'? (settings: depth)"``.
        An error of the whole value has no location in front.
    """
    lines: list[str] = []
    for detail in error.errors(include_url=False):
        location = ".".join(str(part) for part in detail["loc"])
        lines.append(f"{location}: {detail['msg']}" if location else detail["msg"])
    return tuple(lines)


def _location(detail: ErrorDetails, values: Mapping[str, object]) -> Location:
    # A field that accepts several types fails once for each, at "temperature.float" and
    # "temperature.literal['adaptive']". What does not lead further into the given values is such a mark.
    parts = detail["loc"]
    missing = detail["type"] == "missing"
    depth, _ = _walk(parts[:-1] if missing else parts, values)
    if missing and depth == len(parts) - 1:
        return parts
    # The first part is a field whatever happens: it may have been given by its other name.
    return parts[: max(depth, 1)]


def _walk(parts: Location, values: object) -> tuple[int, Any]:
    """Follow a location into the given values; return how far it led and what is there."""
    there: Any = values
    for depth, part in enumerate(parts):
        try:
            there = there[part]
        except (KeyError, IndexError, TypeError):
            return depth, there
    return len(parts), there


def _merged(
    location: Location,
    found: Sequence[ErrorDetails],
    schema: type[Schema],
    owner: str,
    values: Mapping[str, object],
) -> InitErrorDetails:
    depth, given = _walk(location, values)
    if depth < len(location):
        given = found[0]["input"]
    message = _message(location, found, schema, owner, given)
    return InitErrorDetails(type=our_error(message), loc=location, input=given)


def _message(location: Location, found: Sequence[ErrorDetails], schema: type[Schema], owner: str, given: object) -> str:
    kind = found[0]["type"] if found[0]["loc"] == location else None
    if found[0]["type"] == OUR_ERROR:
        return found[0]["msg"]
    if kind == "extra_forbidden" and len(location) == 1:
        names = setting_names(schema)
        hint = did_you_mean(str(location[0]), names)
        return f"no such setting of '{owner}'{hint} (settings: {listed(names)})"
    if kind == "extra_forbidden":
        return f"no such setting of '{owner}'"
    if kind == "missing":
        return f"'{owner}' needs this setting and has no default for it"
    # pydantic marks errors raised by a plugin's own validator; the mark tells a user nothing.
    sentences = dict.fromkeys(
        detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ") for detail in found
    )
    return f"{'; or '.join(sentences)}{_nearest(found, given)} (given: {shown(given)})"


def _nearest(found: Sequence[ErrorDetails], given: object) -> str:
    # Of the words that a field accepts pydantic tells only a phrase: "'q', 'k' or 'v'".
    phrases = (str(detail.get("ctx", {}).get("expected", "")) for detail in found)
    words = [word for phrase in phrases for word in re.findall(r"'([^']*)'", phrase)]
    return did_you_mean(given, words) if isinstance(given, str) else ""
