"""What the contracts of all kinds of plugins share: whose fault it is, and settings that survive a file."""

from __future__ import annotations

import json
import warnings
from typing import Annotated, Any, ClassVar

from pydantic import TypeAdapter

from explainer.selection import SHORTHAND, ConfigError, select
from explainer_registry import Choice, ExplainerError, Schema, Selected, Spec, registry
from explainer_registry.errors import describe
from explainer_registry.manager import Kind

_NO_SUCH = "no_such_setting_0"


class Contract:
    """Base of the contracts. A subclass whose name begins with ``Test`` is collected by pytest."""

    kind: ClassVar[Kind]
    noun: ClassVar[str]

    def given(self) -> Any:
        """Give what a user types for it: a name, or a mapping with "name" and settings."""
        given = getattr(self, self.noun, None)
        if given is None:
            raise AssertionError(f'{type(self).__name__} tests no {self.noun}: set {self.noun} = "NAME" in the class')
        return given

    @property
    def selected(self) -> Selected:
        """Its name and validated settings."""
        try:
            return select(self.kind, self.given())
        except ConfigError as error:
            raise AssertionError(
                f"{error}; install the plugin first (pip install -e .), or give it to fresh_registry(...)"
            ) from error

    @property
    def name(self) -> str:
        """Its name."""
        return self.selected.name

    @property
    def spec(self) -> Spec:
        """Its declaration."""
        return registry().catalogue(self.kind).get(self.name)

    def fault(self, what: str, remedy: str) -> AssertionError:
        """Make the error of a contract that is not kept.

        Args:
            what: What is wrong, as the rest of a sentence about the thing.
            remedy: What its author can do.

        Returns:
            An error whose message also names the thing and the release of its plugin.
        """
        source = registry().catalogue(self.kind).source(self.name)
        return AssertionError(f"{self.noun} '{self.name}' ({source}) {what}; {remedy}")

    def test_code_can_be_loaded(self) -> None:
        """The factory of the declaration leads to something that can be called."""
        try:
            loaded: object = registry().catalogue(self.kind).load(self.name)
        except ExplainerError as error:
            raise AssertionError(str(error)) from error
        if not callable(loaded):
            raise self.fault(
                f"is a {type(loaded).__name__}, which cannot be called",
                f"let factory='{self.spec.factory}' be a function",
            )

    def test_settings_survive_a_file(self) -> None:
        """Every spelling means the same, and what is written to a file is read back."""
        selected, adapter = self.selected, TypeAdapter[Selected](Annotated[Selected, Choice(self.kind, self._short())])
        try:
            text = json.dumps(adapter.dump_python(selected, mode="json"))
        except Exception as error:  # what serialising a foreign type raises is not one kind
            raise self.fault(
                f"has settings that no file can hold ({describe(error)})",
                "use numbers, strings and lists of them, or give the type a pydantic serialiser",
            ) from error
        read: dict[str, Any] = json.loads(text)
        options = {key: value for key, value in read.items() if key != "name"}
        spellings: dict[str, Any] = {"a mapping": read, "its settings": selected, "the name with options": self.name}
        for spelling, value in spellings.items():
            try:
                again = select(self.kind, value, options if value is self.name else None)
            except ConfigError as error:
                raise self.fault(f"cannot read back what it wrote, {text}: {error}", _REVERSIBLE) from error
            if again != selected:
                raise self.fault(f"reads {text} back as {again.options!r} when given as {spelling}", _REVERSIBLE)

    def test_settings_are_described(self) -> None:
        """Each setting has a description, from which help, docs and editors' hints are made."""
        for setting, field in self.spec.schema.model_fields.items():
            if not field.description:
                raise self.fault(
                    f"has a setting '{setting}' without a description",
                    f'write {setting}: ... = Field(..., description="...")',
                )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of defaults that no file can hold, which another test tells
            schema = TypeAdapter[Selected](Annotated[Selected, Choice(self.kind, self._short())]).json_schema()
        if f'"{self.name}"' not in json.dumps(schema):
            raise self.fault("is missing in the JSON schema", "declare it in the hook of its kind")

    def test_unknown_settings_are_refused(self) -> None:
        """A misspelt setting is an error, not a setting that does nothing."""
        mapping = {"name": self.name, **_set(self.selected.options), _NO_SUCH: 1}
        try:
            select(self.kind, mapping)
        except ConfigError:
            return
        raise self.fault(
            f"accepts a setting that it does not have ({_NO_SUCH})",
            f"leave extra='forbid' in the model_config of {self.spec.schema.__name__}",
        )

    def _short(self) -> str | None:
        return SHORTHAND.get(self.kind)


_REVERSIBLE = "let what the schema's validators and serialisers do be undone when it is read again"


def _set(options: Schema) -> dict[str, Any]:
    return {key: getattr(options, key) for key in options.model_fields_set}
