"""Types of the settings that encoders share: where the model comes from, and the size of its input."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import PlainValidator, WithJsonSchema


def _check(value: Any) -> Any:
    # A torch module is recognised by what it offers, because torch is not imported here.
    if isinstance(value, str) and value.strip():
        return value
    if callable(getattr(value, "forward", None)) and callable(getattr(value, "named_modules", None)):
        return value
    raise ValueError("expected the name of a model or a torch module")


ModelSource = Annotated[Any, PlainValidator(_check), WithJsonSchema({"type": "string"})]
"""Annotation of an encoder's field ``model``: its name as a str, or a torch module. Files only hold names."""


def _size(value: Any) -> tuple[int, int]:
    pair: Any = (value, value) if type(value) is int else value
    if isinstance(pair, (list, tuple)):
        sides = cast("list[Any] | tuple[Any, ...]", pair)
        if len(sides) == 2 and all(type(side) is int and side > 0 for side in sides):
            return sides[0], sides[1]
    raise ValueError("expected (height, width) in pixels, or one number for a square")


_SIDE = {"type": "integer", "exclusiveMinimum": 0}
_SIDES = {"type": "array", "items": _SIDE, "minItems": 2, "maxItems": 2}

InputSize = Annotated[tuple[int, int], PlainValidator(_size), WithJsonSchema({"anyOf": [_SIDE, _SIDES]})]
"""Annotation of an encoder's field ``size``: height and width of the input; one number for a square."""
