"""Choice: a pydantic field that is chosen among what the plugins offer."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, cast, get_args

from pydantic import create_model
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import core_schema

from explainer_registry.current import registry
from explainer_registry.errors import RegistryError, did_you_mean, listed, shown
from explainer_registry.manager import Kind
from explainer_registry.schema import Schema, our_error, read_settings, setting_names

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core.core_schema import CoreSchema, SerializationInfo, SerSchema

    from explainer_registry.catalogue import Catalogue
    from explainer_registry.specs import Spec

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# The kinds whose JSON schema is being written. Settings may hold a Choice themselves, even of the kind they
# belong to, and the schema would never end.
_open_kinds: ContextVar[frozenset[str]] = ContextVar("_open_kinds", default=frozenset())


@dataclass(frozen=True)
class Selected:
    """What a `Choice` becomes: a name and its validated settings.

    A dump is ``{"name": ..., **settings}`` and validates to an equal value.

    Args:
        name: As the user gave it, ``"gem"`` or ``"distribution/gem"``.
        options: An instance of the schema that the name declares.
    """

    name: str
    options: Schema

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        # As an ordinary dataclass it would dump the fields of the base Schema, which has none.
        return core_schema.is_instance_schema(cls, serialization=_serialization())


@dataclass(frozen=True)
class Choice:
    """Makes a pydantic field accept anything of one kind that the plugins offer.

    The registry is read when a value is validated and when a JSON schema is written, so plugins may come
    after the class. Accepted are a name, a mapping with ``name`` and settings, an instance of the settings
    class where only one name declares it, and `Selected`.

    Args:
        kind: ``"methods"``, ``"encoders"``, ``"scores"``, ``"metrics"``, ``"datasets"`` or ``"views"``.
        shorthand: The setting that ``"name:value"`` sets; None: no such spelling. The first ``:`` counts.

    Raises:
        RegistryError: There is no such kind.

    Example:
        ``Annotated[Selected, Choice("encoders", shorthand="model")]`` reads ``"timm:resnet50"`` as
        ``{"name": "timm", "model": "resnet50"}``.
    """

    kind: Kind
    shorthand: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            near = did_you_mean(str(self.kind), KINDS)
            raise RegistryError(f"no kind named '{self.kind}'{near} (kinds: {listed(KINDS)})")

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate, serialization=_serialization())

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        items = registry().catalogue(self.kind).items()
        if not items:
            return {"not": {}}
        ways: list[JsonSchemaValue] = [{"enum": [name for name, _ in items]}]
        heads = [name for name, spec in items if self._takes_shorthand(spec)]
        if heads:
            ways.append({"type": "string", "pattern": f"^({'|'.join(heads)}):.+$"})
        if self.kind in _open_kinds.get():
            return {"anyOf": [*ways, _open_arm([name for name, _ in items])]}
        token = _open_kinds.set(_open_kinds.get() | {self.kind})
        try:
            return {"anyOf": [*ways, *(_arm(name, spec, handler) for name, spec in items)]}
        finally:
            _open_kinds.reset(token)

    def _validate(self, value: object) -> Selected:
        try:
            return self._select(value, registry().catalogue(self.kind))
        except RegistryError as error:
            raise our_error(str(error)) from error

    def _select(self, value: object, catalogue: Catalogue[Spec]) -> Selected:
        if isinstance(value, str):
            return self._from_text(value, catalogue)
        if isinstance(value, Mapping):
            return self._from_mapping(cast("Mapping[object, object]", value), catalogue)
        if isinstance(value, Schema):
            return Selected(_owner(type(value), catalogue), value)
        if isinstance(value, Selected):
            return _checked(value, catalogue)
        raise RegistryError(
            f"{shown(value)} chooses no {catalogue.noun}: give a name, a mapping with 'name: ...' "
            f"or a settings object (names: {listed(catalogue)})"
        )

    def _from_text(self, text: str, catalogue: Catalogue[Spec]) -> Selected:
        name, colon, rest = text.partition(":")
        if self.shorthand is None or not colon:
            return _read(text, {}, catalogue)
        if not self._takes_shorthand(catalogue.get(name)):
            raise RegistryError(f"{catalogue.noun} '{name}' takes nothing after ':' (given: '{text}'); say '{name}'")
        if not rest:
            raise RegistryError(f"'{text}' lacks the {self.shorthand} after ':'; say '{name}:<{self.shorthand}>'")
        return _read(name, {self.shorthand: rest}, catalogue)

    def _from_mapping(self, mapping: Mapping[object, object], catalogue: Catalogue[Spec]) -> Selected:
        settings = {str(key): setting for key, setting in mapping.items()}
        name = settings.pop("name", None)
        if name is None:
            raise RegistryError(f"which {catalogue.noun}? add 'name: ...' (one of: {listed(catalogue)})")
        if not isinstance(name, str):
            raise RegistryError(f"'name: {name!r}' is no string (one of: {listed(catalogue)})")
        head, colon, rest = name.partition(":")
        if self.shorthand is not None and colon and head in catalogue:
            raise RegistryError(
                f"'name: {name}' holds two settings; write 'name: {head}' and '{self.shorthand}: {rest}'"
            )
        return _read(name, settings, catalogue)

    def _takes_shorthand(self, spec: Spec) -> bool:
        return self.shorthand is not None and self.shorthand in setting_names(spec.schema)


def _read(name: str, settings: Mapping[str, object], catalogue: Catalogue[Spec]) -> Selected:
    return Selected(name, read_settings(catalogue.get(name).schema, name, settings))


def _owner(schema: type[Schema], catalogue: Catalogue[Spec]) -> str:
    names = [name for name, spec in catalogue.items() if spec.schema is schema]
    if not names:
        raise RegistryError(f"{schema.__name__} holds the settings of no {catalogue.noun} (names: {listed(catalogue)})")
    if len(names) > 1:
        raise RegistryError(
            f"{schema.__name__} holds the settings of {listed(names)}; say which with a mapping: "
            f"{{name: {names[0]}, ...}}"
        )
    return names[0]


def _checked(selected: Selected, catalogue: Catalogue[Spec]) -> Selected:
    schema = catalogue.get(selected.name).schema
    if type(selected.options) is not schema:
        raise RegistryError(
            f"{catalogue.noun} '{selected.name}' takes settings of class {schema.__name__}, "
            f"not {type(selected.options).__name__}"
        )
    return selected


def _serialization() -> SerSchema:
    return core_schema.plain_serializer_function_ser_schema(_dump, info_arg=True)


def _dump(selected: Selected, info: SerializationInfo) -> dict[str, Any]:
    settings = selected.options.model_dump(
        mode=info.mode,
        by_alias=info.by_alias,
        exclude_unset=info.exclude_unset,
        exclude_defaults=info.exclude_defaults,
        exclude_none=info.exclude_none,
        round_trip=info.round_trip,
    )
    return {"name": selected.name, **settings}


def _arm(name: str, spec: Spec, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
    try:
        arm = handler(_named(name, spec.schema).__pydantic_core_schema__)
    except PydanticInvalidForJsonSchema:
        # A setting that JSON cannot hold, such as a callable, can be given in Python only.
        arm = _open_arm([name])
    return {**arm, "title": name, "description": spec.summary}


@cache
def _named(name: str, schema: type[Schema]) -> type[Schema]:
    # The name is no field of the plugin's class, so that there is one place where it is said; the JSON schema
    # needs it, required, or editors would accept a mapping that names nothing. Cached because fields that
    # offer the same choice share one definition only where the class is the same.
    field: Any = (Literal[name], ...)
    return create_model(name, __base__=schema, __module__=schema.__module__, name=field)


def _open_arm(names: list[str]) -> JsonSchemaValue:
    return {"type": "object", "properties": {"name": {"enum": names}}, "required": ["name"]}
