"""Where an encoder's model comes from: a name, or the model itself."""

from __future__ import annotations

from typing import Annotated, Any

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
