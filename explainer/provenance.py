"""How an explanation came about: everything needed to make it again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from explainer_registry.errors import ExplainerError


@dataclass(frozen=True)
class Provenance:
    """What made the maps.

    Args:
        encoder: Name of the encoder, such as "timm:resnet50".
        weights: Tag or path of the weights.
        method: Whole configuration of the method, with its name under "name". Kept as plain JSON
            values: a copy, in which tuples have become lists.
        layer: Name of the layer that the maps come from; None where the method has no single one.
        score: Name of the score that was explained.
        versions: Distribution names and their versions.
        warnings: What the reader of the maps must know, one sentence each.

    Raises:
        ExplainerError: The method's configuration has no name or cannot be written as JSON.
    """

    encoder: str
    weights: str
    method: dict[str, Any]
    layer: str | None
    score: str
    versions: dict[str, str] = field(default_factory=dict[str, str])
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        try:
            method = json.loads(json.dumps(self.method))
        except (TypeError, ValueError) as error:
            raise ExplainerError(
                f"the method's configuration cannot be written as JSON: {error}; "
                'dump a schema with model_dump(mode="json")'
            ) from None
        if "name" not in method:
            raise ExplainerError(f"the method's configuration has no 'name'; it has: {sorted(method)}")
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "versions", dict(self.versions))
        object.__setattr__(self, "warnings", tuple(self.warnings))

    def to_json(self) -> str:
        """Write the provenance as one JSON object.

        Returns:
            Text that `from_json` turns into an equal provenance.
        """
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Read a provenance that `to_json` wrote.

        Args:
            text: A JSON object with the fields of this class.

        Returns:
            The provenance.

        Raises:
            ExplainerError: The text is not JSON, or its fields are not those of a provenance.
        """
        try:
            return cls(**json.loads(text))
        except (TypeError, json.JSONDecodeError) as error:
            raise ExplainerError(f"this is not a provenance written by explainer: {error}") from None
