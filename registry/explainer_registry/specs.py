"""Specs: what a plugin declares about a method, an encoder or another kind of thing, without importing its code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from explainer_registry.errors import RegistryError, did_you_mean, listed
from explainer_registry.schema import Schema, setting_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CAPABILITIES = ("features", "readout", "classes", "companion", "attention", "stream", "gradient")
"""What an encoder can offer and a method can need."""

SUBJECTS = ("explanation", "probabilities", "globe")
"""What a view can draw: the map of one picture and target, what a model gives to classes, or values over the Earth."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What every declaration says.

    Args:
        name: How users choose it: lower-case letters, digits and ``_``, starting with a letter.
        schema: Its settings. They may not hold a field called ``name``.
        factory: Where the code is, ``"package.module:attribute"``; imported on first use.
        summary: One line for tables and help.

    Raises:
        RegistryError: A field is not what it should be.
    """

    noun: ClassVar[str] = "spec"

    name: str
    schema: type[Schema]
    factory: str
    summary: str

    def __post_init__(self) -> None:
        if not _matches(_NAME, self.name):
            raise RegistryError(
                f"{self.noun} name {self.name!r} is not valid: use lower-case letters, digits and '_', "
                f"starting with a letter{_valid_name_near(self.name)}"
            )
        if not _is_schema(self.schema):
            raise RegistryError(
                f"{self._label}: schema is {self.schema!r}, expected a subclass of explainer_registry.Schema"
            )
        if "name" in setting_names(self.schema) or "name" in self.schema.model_fields:
            raise RegistryError(
                f"{self._label}: schema {self.schema.__name__} has a setting 'name', "
                f"the word that chooses the {self.noun} itself; call the setting something else"
            )
        if not _matches(_FACTORY, self.factory):
            raise RegistryError(f"{self._label}: factory is {self.factory!r}, expected 'package.module:attribute'")

    @property
    def _label(self) -> str:
        return f"{self.noun} '{self.name}'"


@dataclass(frozen=True, kw_only=True)
class MethodSpec(Spec):
    """A method of explanation.

    Args:
        name: See `Spec`.
        schema: See `Spec`.
        factory: See `Spec`.
        summary: See `Spec`.
        needs: The capabilities an encoder must have, out of `CAPABILITIES`.
        reference: The citation of the paper, e.g. ``"Zhou et al. 2016, arXiv:1512.04150"``.
        reads_score: Whether the map depends on which score is chosen, as those of gradients and of covered pictures
            do; by default whether it needs gradients.
        default_rank: The default method of an encoder is the fitting one of highest rank; None: never.
        default_with: Capabilities the encoder must have besides for the rank to count.

    Raises:
        RegistryError: A field is not what it should be.
    """

    noun: ClassVar[str] = "method"

    needs: frozenset[str]
    reference: str
    reads_score: bool | None = None
    default_rank: int | None = None
    default_with: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("needs", "default_with"):
            given: Iterable[str] = getattr(self, field)
            capabilities = _strings(given, f"{self._label}: {field}", '{"features"}')
            for capability in sorted(capabilities.difference(CAPABILITIES)):
                raise RegistryError(
                    f"{self._label}: {field} names no capability with {capability!r}"
                    f"{did_you_mean(capability, CAPABILITIES)} (capabilities: {listed(CAPABILITIES)})"
                )
            # A plain set is what authors write; the frozen kind keeps the spec hashable.
            object.__setattr__(self, field, capabilities)
        if self.reads_score is None:
            object.__setattr__(self, "reads_score", "gradient" in self.needs)


@dataclass(frozen=True, kw_only=True)
class EncoderSpec(Spec):
    """A way to make a model explainable.

    Args:
        name: See `Spec`.
        schema: See `Spec`.
        factory: See `Spec`.
        summary: See `Spec`.
        wraps: Top-level Python packages whose modules this encoder adopts, e.g. ``("timm",)``;
            ``("torch",)`` adopts what nobody else does.

    Raises:
        RegistryError: A field is not what it should be.
    """

    noun: ClassVar[str] = "encoder"

    wraps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _strings(self.wraps, f"{self._label}: wraps", '("timm",)')
        object.__setattr__(self, "wraps", tuple(self.wraps))


@dataclass(frozen=True, kw_only=True)
class ScoreSpec(Spec):
    """A scalar that gradients flow from; see `Spec` for the arguments."""

    noun: ClassVar[str] = "score"


@dataclass(frozen=True, kw_only=True)
class MetricSpec(Spec):
    """A measurement of a map against a true mask.

    Args:
        name: See `Spec`.
        schema: See `Spec`.
        factory: See `Spec`.
        summary: See `Spec`.
        reference: The citation of the definition.

    Raises:
        RegistryError: A field is not what it should be.
    """

    noun: ClassVar[str] = "metric"

    reference: str


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(Spec):
    """Pictures with true masks; see `Spec` for the arguments."""

    noun: ClassVar[str] = "dataset"


@dataclass(frozen=True, kw_only=True)
class ViewSpec(Spec):
    """A way to draw something.

    Args:
        name: See `Spec`.
        schema: See `Spec`.
        factory: See `Spec`.
        summary: See `Spec`.
        draws: What it draws, out of `SUBJECTS`.

    Raises:
        RegistryError: A field is not what it should be.
    """

    noun: ClassVar[str] = "view"

    draws: str = "explanation"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.draws not in SUBJECTS:
            raise RegistryError(
                f"{self._label}: draws is {self.draws!r}{did_you_mean(str(self.draws), SUBJECTS)} "
                f"(what can be drawn: {listed(SUBJECTS)})"
            )


SPECS: Mapping[str, type[Spec]] = MappingProxyType(
    {
        "methods": MethodSpec,
        "encoders": EncoderSpec,
        "scores": ScoreSpec,
        "metrics": MetricSpec,
        "datasets": DatasetSpec,
        "views": ViewSpec,
    }
)
"""What each kind of thing is declared with; the hook that declares it is ``explainer_`` and its name here."""


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_schema(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Schema)


def _valid_name_near(value: object) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", "_", str(value)).strip("_").lower()
    return f", e.g. '{words}'" if _NAME.fullmatch(words) else ""


def _strings(value: Iterable[object], label: str, example: str) -> frozenset[str]:
    # A bare string is an iterable of its letters, and the commonest slip of all.
    items = None if isinstance(value, str) else frozenset(value)
    strings = frozenset(item for item in items or () if isinstance(item, str))
    if items is None or len(strings) != len(items):
        raise RegistryError(f"{label} is {value!r}, expected a collection of strings, e.g. {example}")
    return strings
