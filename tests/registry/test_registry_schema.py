from __future__ import annotations

from enum import Enum
from typing import Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator

from explainer_registry import ExplainerError, RegistryError, Schema, field_errors
from explainer_registry.errors import describe, did_you_mean, listed, shown
from explainer_registry.schema import read_settings, setting_names


class Part(Enum):
    QUERY = "query"
    KEY = "key"


class Point(BaseModel, extra="forbid"):
    x: int
    y: int


class Settings(Schema):
    depth: int = Field(7, ge=1)
    parts: tuple[Literal["q", "k", "v"], ...] = ("q",)
    temperature: float | Literal["adaptive"] = "adaptive"
    part: Part = Part.QUERY
    point: Point | None = None
    points: tuple[Point | int, ...] = ()
    odd: int = 1
    lambda_: float = Field(0.5, alias="lambda")

    @field_validator("odd")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value == 0:
            raise TypeError("a bug of the plugin")
        if value % 2 == 0:
            raise ValueError("must be odd")
        if value >= 100:
            raise AssertionError("must be small")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Settings:
        if self.depth == 99 and self.odd == 99:
            raise ValueError("depth and odd cannot both be 99")
        return self


class Model(Schema):
    model: str


class Lines:
    def __repr__(self) -> str:
        return "Net(\n  (0): Linear()\n)"


def errors_of(schema: type[Schema] = Settings, **values: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        read_settings(schema, "gem", values)
    return list(field_errors(caught.value))


def test_good_settings():
    assert read_settings(Settings, "gem", {"depth": 4}) == Settings(depth=4)


def test_settings_are_frozen_and_closed():
    with pytest.raises(ValidationError):
        Settings().depth = 3
    with pytest.raises(ValidationError):
        Settings(dpeth=3)


def test_a_dump_can_be_read_back_though_a_field_has_an_alias():
    settings = read_settings(Settings, "gem", {"lambda": 0.1})
    assert read_settings(Settings, "gem", settings.model_dump()) == settings
    assert setting_names(Settings)[-1] == "lambda"


NAMES = "depth, parts, temperature, part, point, points, odd, lambda"


@pytest.mark.parametrize(
    ("values", "messages"),
    [
        pytest.param(
            {"dpeth": 7},
            [f"dpeth: no such setting of 'gem'; did you mean 'depth'? (settings: {NAMES})"],
            id="misspelt",
        ),
        pytest.param({"zzz": 7}, [f"zzz: no such setting of 'gem' (settings: {NAMES})"], id="unknown"),
        pytest.param({"depth": 0}, ["depth: Input should be greater than or equal to 1 (given: 0)"], id="out of range"),
        pytest.param(
            {"depth": "deep", "odd": 2},
            [
                "depth: Input should be a valid integer, unable to parse string as an integer (given: 'deep')",
                "odd: must be odd (given: 2)",
            ],
            id="two wrong fields",
        ),
        pytest.param({"odd": 101}, ["odd: must be small (given: 101)"], id="assertion in a validator"),
        pytest.param(
            {"temperature": "adaptve"},
            [
                "temperature: Input should be a valid number, unable to parse string as a number; "
                "or Input should be 'adaptive'; did you mean 'adaptive'? (given: 'adaptve')"
            ],
            id="one message though the field takes two types",
        ),
        pytest.param(
            {"part": "keys"},
            ["part: Input should be 'query' or 'key'; did you mean 'key'? (given: 'keys')"],
            id="enumeration",
        ),
        pytest.param(
            {"parts": ["q", "kk"]},
            ["parts.1: Input should be 'q', 'k' or 'v'; did you mean 'k'? (given: 'kk')"],
            id="item of a list",
        ),
        pytest.param(
            {"point": {"x": 1}},
            ["point.y: 'gem' needs this setting and has no default for it"],
            id="nested missing",
        ),
        pytest.param({"point": {"x": 1, "y": 2, "z": 3}}, ["point.z: no such setting of 'gem'"], id="nested unknown"),
        pytest.param(
            {"points": [1, {"x": 1}]},
            ["points.1: Field required; or Input should be a valid integer (given: {'x': 1})"],
            id="nested missing where the item takes two types",
        ),
        pytest.param(
            {"lambda": "big"},
            ["lambda: Input should be a valid number, unable to parse string as a number (given: 'big')"],
            id="alias",
        ),
        pytest.param(
            {"lambda_": "big"},
            ["lambda_: Input should be a valid number, unable to parse string as a number (given: 'big')"],
            id="field name in place of its alias",
        ),
        pytest.param(
            {"depth": 99, "odd": 99},
            ["depth and odd cannot both be 99 (given: {'depth': 99, 'odd': 99})"],
            id="the whole",
        ),
    ],
)
def test_wrong_settings(values: dict, messages: list[str]):
    assert errors_of(**values) == messages


def test_a_missing_setting():
    assert errors_of(Model) == ["model: 'gem' needs this setting and has no default for it"]


def test_a_long_value_is_cut():
    (message,) = errors_of(depth="9" * 3 + "x" * 200)
    assert message.endswith(f"(given: '999{'x' * 73}...)")


def test_braces_in_a_message_survive():
    assert errors_of(depth="{0}") == [
        "depth: Input should be a valid integer, unable to parse string as an integer (given: '{0}')"
    ]


def test_a_validator_that_breaks_down_is_named():
    with pytest.raises(RegistryError) as caught:
        read_settings(Settings, "gem", {"odd": 0})
    assert str(caught.value) == "the settings of 'gem' could not be checked: TypeError: a bug of the plugin"
    assert type(caught.value.__cause__) is TypeError


def test_phrases():
    assert did_you_mean("Grad CAM", ["gem", "grad_cam"]) == "; did you mean 'grad_cam'?"
    assert did_you_mean("zzz", ["gem"]) == ""
    assert did_you_mean("zzz", []) == ""
    assert listed(["a", "b"]) == "a, b"
    assert listed([]) == "none"
    assert describe(ExplainerError("said already")) == "said already"
    assert describe(KeyError("x")) == "KeyError: 'x'"
    assert shown("x" * 78) == repr("x" * 78)
    assert len(shown("x" * 79)) == 80
    assert shown(Lines()) == "Net( (0): Linear() )"
