from __future__ import annotations

import copy
import pickle
from typing import Annotated, Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from explainer_registry import Choice, Registry, RegistryError, Schema, Selected, field_errors, use

THIRD_PARTY = """
from __future__ import annotations
from collections.abc import Callable
from typing import Annotated, Literal
from pydantic import BaseModel, Field
from explainer_registry import Choice, EncoderSpec, MethodSpec, Schema, Selected, hookimpl

class Point(BaseModel, extra="forbid"):
    x: int
    y: int

class GEM(Schema):
    depth: int = Field(7, ge=1, description="How many last blocks are replaced.")
    temperature: float | Literal["adaptive"] = "adaptive"
    anchors: tuple[Point, ...] = ()

class QueryKey(Schema):
    anchor: Point | None = None

class Smooth(Schema):
    inner: Annotated[Selected, Choice("methods")]
    samples: int = 8

class Tree(Schema):
    branch: Tree | None = None

class Hooked(Schema):
    link: Callable[[float], float] | None = None

class Timm(Schema):
    model: str
    pretrained: bool = True

class Demo(Schema):
    pass

def method(name, schema):
    return MethodSpec(
        name=name, schema=schema, factory="code:run", needs=(), summary=f"The method {name}.", reference=""
    )

@hookimpl
def explainer_methods():
    yield method("gem", GEM)
    yield method("query_key", QueryKey)
    yield method("key_key", QueryKey)
    yield method("smooth", Smooth)
    yield method("hooked", Hooked)
    yield method("tree", Tree)

@hookimpl
def explainer_encoders():
    yield EncoderSpec(name="timm", schema=Timm, factory="code:run", summary="Any timm model.")
    yield EncoderSpec(name="demo", schema=Demo, factory="code:run", summary="The demo.")
"""

METHODS = "gem, hooked, key_key, query_key, smooth, tree"


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")

    method: Annotated[Selected, Choice("methods")]
    more: list[Annotated[Selected, Choice("methods")]] = []
    maybe: Annotated[Selected, Choice("methods")] | None = None


class Run(BaseModel):
    encoder: Annotated[Selected, Choice("encoders", shorthand="model")]


@pytest.fixture
def plugins(site):
    """The registry of one third-party distribution, in use."""
    site.install("explainer-extra", "0.3", extra=THIRD_PARTY)
    with use(site.discover(strict=True)) as registry:
        yield registry


@pytest.fixture
def schemas(plugins) -> Any:
    """The module of the third party, for its settings classes."""
    import explainer_extra_extra

    return explainer_extra_extra


def errors_of(model: type[BaseModel] = Config, **values: object) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(values)
    return list(field_errors(caught.value))


def test_three_spellings(schemas):
    by_name = Config(method="gem").method
    by_mapping = Config(method={"name": "gem", "depth": 4}).method
    by_settings = Config(method=schemas.GEM(depth=4)).method
    assert by_name == Selected("gem", schemas.GEM())
    assert by_mapping == by_settings == Selected("gem", schemas.GEM(depth=4))
    assert Config(method=by_mapping).method is by_mapping


def test_a_choice_reads_json_and_works_inside_lists_and_options(schemas):
    config = Config.model_validate_json(
        '{"method": "gem", "more": ["query_key", {"name": "gem", "depth": 2}], "maybe": {"name": "gem"}}'
    )
    assert [chosen.name for chosen in config.more] == ["query_key", "gem"]
    assert config.maybe == Selected("gem", schemas.GEM())
    assert TypeAdapter(Annotated[Selected, Choice("methods")]).validate_python("gem") == config.method


@pytest.mark.parametrize(
    "value",
    [
        "gem",
        {"name": "gem", "depth": 4, "temperature": 0.1, "anchors": [{"x": 1, "y": 2}]},
        {"name": "explainer-extra/gem", "depth": 2},
        {"name": "smooth", "inner": {"name": "smooth", "inner": {"name": "gem", "depth": 3}}},
    ],
)
def test_a_dump_validates_to_an_equal_value(plugins, value):
    config = Config(method=value, more=[value])
    assert Config.model_validate(config.model_dump()) == config
    assert Config.model_validate(config.model_dump(exclude_unset=True)) == config
    assert Config.model_validate(config.model_dump(exclude_defaults=True)) == config
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301
    assert copy.deepcopy(config) == config


def test_a_dump_is_the_name_and_the_settings(plugins):
    assert Config(method={"name": "gem", "anchors": [{"x": 1, "y": 2}]}).model_dump(mode="json") == {
        "method": {"name": "gem", "depth": 7, "temperature": "adaptive", "anchors": [{"x": 1, "y": 2}]},
        "more": [],
        "maybe": None,
    }
    assert Config(method="gem").model_dump(exclude_unset=True) == {"method": {"name": "gem"}}


def test_what_was_selected_dumps_whole_wherever_it_lies(schemas):
    class Record(BaseModel):
        chosen: Selected

    record = Record(chosen=Selected("gem", schemas.GEM(depth=4)))
    dumped = {"name": "gem", "depth": 4, "temperature": "adaptive", "anchors": ()}
    assert record.model_dump() == {"chosen": dumped}
    assert TypeAdapter(Selected).dump_python(record.chosen) == dumped


def test_selected_is_frozen_and_hashable(schemas):
    chosen = Selected("gem", schemas.GEM())
    assert hash(chosen) == hash(Selected("gem", schemas.GEM()))
    with pytest.raises(AttributeError):
        chosen.name = "cam"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(
            "gme",
            f"method: no method named 'gme'; did you mean 'gem'? (available: {METHODS})",
            id="misspelt",
        ),
        pytest.param(
            {"name": "gme", "depth": 3},
            f"method: no method named 'gme'; did you mean 'gem'? (available: {METHODS})",
            id="misspelt in a mapping",
        ),
        pytest.param({"depth": 7}, f"method: which method? add 'name: ...' (one of: {METHODS})", id="unnamed"),
        pytest.param({"name": None}, f"method: which method? add 'name: ...' (one of: {METHODS})", id="empty name"),
        pytest.param({"name": 7}, f"method: 'name: 7' is no string (one of: {METHODS})", id="name is a number"),
        pytest.param(
            7,
            "method: 7 chooses no method: give a name, a mapping with 'name: ...' or a settings object "
            f"(names: {METHODS})",
            id="number",
        ),
        pytest.param(
            {"name": "gem", "dpeth": 7},
            "method.dpeth: no such setting of 'gem'; did you mean 'depth'? (settings: depth, temperature, anchors)",
            id="misspelt setting",
        ),
        pytest.param(
            {"name": "gem", 1: 7},
            "method.1: no such setting of 'gem' (settings: depth, temperature, anchors)",
            id="setting is a number",
        ),
        pytest.param(
            {"name": "gem", "depth": 0},
            "method.depth: Input should be greater than or equal to 1 (given: 0)",
            id="value out of range",
        ),
        pytest.param(
            {"name": "gem", "temperature": "hot"},
            "method.temperature: Input should be a valid number, unable to parse string as a number; "
            "or Input should be 'adaptive' (given: 'hot')",
            id="setting that takes two types",
        ),
        pytest.param(
            {"name": "gem", "anchors": [{"x": 1, "y": "low"}]},
            "method.anchors.0.y: Input should be a valid integer, unable to parse string as an integer (given: 'low')",
            id="deep inside",
        ),
        pytest.param("smooth", "method.inner: 'smooth' needs this setting and has no default for it", id="missing"),
        pytest.param(
            {"name": "smooth", "inner": "gme"},
            f"method.inner: no method named 'gme'; did you mean 'gem'? (available: {METHODS})",
            id="choice inside a choice",
        ),
        pytest.param(
            {"name": "smooth", "inner": {"name": "gem", "dpeth": 1}},
            "method.inner.dpeth: no such setting of 'gem'; did you mean 'depth'? "
            "(settings: depth, temperature, anchors)",
            id="setting of a choice inside a choice",
        ),
    ],
)
def test_a_wrong_choice(plugins, value, message: str):
    assert errors_of(method=value) == [message]
    assert errors_of(method="gem", maybe=value) == [message.replace("method", "maybe", 1)]
    assert errors_of(method="gem", more=["gem", value]) == [message.replace("method", "more.1", 1)]


def test_every_wrong_field_has_its_line(plugins):
    assert errors_of(method={"name": "gem", "dpeth": 7, "depth": 0}, more=["gme"]) == [
        "method.depth: Input should be greater than or equal to 1 (given: 0)",
        "method.dpeth: no such setting of 'gem'; did you mean 'depth'? (settings: depth, temperature, anchors)",
        f"more.0: no method named 'gme'; did you mean 'gem'? (available: {METHODS})",
    ]


def test_settings_objects_must_tell_whose_they_are(schemas):
    class Foreign(Schema):
        pass

    assert errors_of(method=Foreign()) == [f"method: Foreign holds the settings of no method (names: {METHODS})"]
    assert errors_of(method=schemas.QueryKey()) == [
        "method: QueryKey holds the settings of key_key, query_key; say which with a mapping: {name: key_key, ...}"
    ]


def test_a_selected_value_is_checked(schemas):
    assert errors_of(method=Selected("gem", schemas.QueryKey())) == [
        "method: method 'gem' takes settings of class GEM, not QueryKey"
    ]
    assert errors_of(method=Selected("gme", schemas.GEM())) == [
        f"method: no method named 'gme'; did you mean 'gem'? (available: {METHODS})"
    ]


def test_shorthand(schemas):
    expected = Selected("timm", schemas.Timm(model="hf-hub:timm/vit:x"))
    assert Run(encoder="timm:hf-hub:timm/vit:x").encoder == expected
    assert Run(encoder={"name": "timm", "model": "hf-hub:timm/vit:x"}).encoder == expected
    assert Run(encoder="explainer-extra/timm:resnet50").encoder.name == "explainer-extra/timm"
    assert Run(encoder="demo").encoder == Selected("demo", schemas.Demo())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("tim:resnet50", "encoder: no encoder named 'tim'; did you mean 'timm'? (available: demo, timm)"),
        ("demo:b0", "encoder: encoder 'demo' takes nothing after ':' (given: 'demo:b0'); say 'demo'"),
        ("timm:", "encoder: 'timm:' lacks the model after ':'; say 'timm:<model>'"),
        ("timm", "encoder.model: 'timm' needs this setting and has no default for it"),
        (
            {"name": "timm:resnet50"},
            "encoder: 'name: timm:resnet50' holds two settings; write 'name: timm' and 'model: resnet50'",
        ),
    ],
)
def test_wrong_shorthand(plugins, value, message: str):
    assert errors_of(Run, encoder=value) == [message]


def test_without_shorthand_a_colon_is_part_of_the_name(plugins):
    assert errors_of(method="gem:7") == [f"method: no method named 'gem:7'; did you mean 'gem'? (available: {METHODS})"]


def test_a_contested_name_is_chosen_by_its_distribution(site, face):
    site.install("explainer-a", gem=face("gem"))
    site.install("explainer-b", gem=face("gem"))
    with use(site.discover()):
        import explainer_b_gem

        assert Config(method="explainer-b/gem").method.options == explainer_b_gem.Settings()
        assert Config(method=explainer_b_gem.Settings()).method.name == "explainer-b/gem"
        assert errors_of(method="gem") == [
            "method: method 'gem' is offered by explainer-a 1.0 and explainer-b 1.0; "
            "say 'explainer-a/gem' or 'explainer-b/gem', or switch one plugin off with "
            "EXPLAINER_DISABLE_PLUGINS: explainer-a:gem or explainer-b:gem"
        ]
        (names, *arms) = Config.model_json_schema()["properties"]["method"]["anyOf"]
        assert names == {"enum": ["explainer-a/gem", "explainer-b/gem"]}
        assert len(arms) == 2


def test_a_plugin_may_come_after_the_class(site, face):
    class Late(BaseModel):
        method: Annotated[Selected, Choice("methods")]

    with use(Registry()):
        assert errors_of(Late, method="late") == ["method: no method named 'late' (available: none)"]
        assert not valid(Late, {"method": "late"})
    site.install("explainer-late", late=face("late"))
    with use(site.discover()):
        assert Late(method="late").method.name == "late"
        assert valid(Late, {"method": {"name": "late", "depth": 3}})


def test_an_unknown_kind():
    with pytest.raises(RegistryError) as caught:
        Choice("method")
    assert str(caught.value) == (
        "no kind named 'method'; did you mean 'methods'? (kinds: methods, encoders, scores, metrics, datasets, views)"
    )


def valid(model: type[BaseModel], document: object) -> bool:
    schema = model.model_json_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema).is_valid(document)


@pytest.mark.parametrize(
    "method",
    [
        "gem",
        {"name": "gem"},
        {"name": "gem", "depth": 3, "anchors": [{"x": 1, "y": 2}]},
        {"name": "smooth", "inner": "gem"},
        {"name": "smooth", "inner": {"name": "smooth", "inner": {"name": "gem", "depth": 3}}},
        {"name": "hooked"},
        {"name": "tree", "branch": {"branch": {}}},
        {"name": "tree", "branch": {"brunch": {}}},
        "gme",
        {"name": "gme"},
        {"depth": 3},
        {"name": "gem", "dpeth": 3},
        {"name": "gem", "depth": 0},
        {"name": "gem", "anchors": [{"x": 1}]},
        {"name": "query_key", "depth": 3},
        {"name": "smooth"},
        {"name": "smooth", "inner": {"name": "gme"}},
        {"name": "smooth", "inner": {"depth": 3}},
        7,
        None,
        [],
    ],
)
def test_the_json_schema_agrees_with_validation(plugins, method):
    documents = [{"method": method}, {"method": "gem", "more": [method]}]
    for document in documents:
        try:
            Config.model_validate(document)
        except ValidationError:
            accepted = False
        else:
            accepted = True
        assert valid(Config, document) is accepted


@pytest.mark.parametrize(
    "encoder",
    [
        "timm:resnet50",
        "timm:hf-hub:timm/vit:x",
        "demo",
        {"name": "timm", "model": "resnet50"},
        "tim:resnet50",
        "demo:b0",
        "timm:",
        {"name": "timm"},
        {"model": "resnet50"},
    ],
)
def test_the_json_schema_knows_the_shorthand(plugins, encoder):
    try:
        Run(encoder=encoder)
    except ValidationError:
        accepted = False
    else:
        accepted = True
    assert valid(Run, {"encoder": encoder}) is accepted


def test_the_arms_of_the_json_schema(plugins):
    schema = Config.model_json_schema()
    names, *arms = schema["properties"]["method"]["anyOf"]
    assert names == {"enum": ["gem", "hooked", "key_key", "query_key", "smooth", "tree"]}
    assert [arm["title"] for arm in arms] == names["enum"]
    assert [arm["description"] for arm in arms] == [f"The method {name}." for name in names["enum"]]
    assert arms[1] == {
        "type": "object",
        "properties": {"name": {"enum": ["hooked"]}},
        "required": ["name"],
        "title": "hooked",
        "description": "The method hooked.",
    }
    # pydantic writes an arm in place or as a definition, depending on its version.
    gem = schema["$defs"].get("gem", arms[0])
    assert gem["required"] == ["name"]
    assert gem["additionalProperties"] is False
    assert gem["properties"]["name"]["const"] == "gem"
    assert gem["properties"]["depth"] == {
        "default": 7,
        "description": "How many last blocks are replaced.",
        "minimum": 1,
        "title": "Depth",
        "type": "integer",
    }
    assert {name.lower() for name in schema["$defs"]} <= {*names["enum"], "point"}


def test_the_settings_class_has_no_name_of_its_own(schemas):
    Config.model_json_schema()
    assert list(schemas.GEM.model_fields) == ["depth", "temperature", "anchors"]
