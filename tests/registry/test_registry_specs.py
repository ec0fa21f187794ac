from __future__ import annotations

import dataclasses

import pytest
from pydantic import BaseModel, Field

from explainer_registry import CAPABILITIES, EncoderSpec, MethodSpec, RegistryError, Schema, ScoreSpec


class GEM(Schema):
    depth: int = 7


class Plain(BaseModel):
    depth: int = 7


class Named(Schema):
    name: str = "gem"


class NamedByAlias(Schema):
    title: str = Field("gem", alias="name")


def method(**changes) -> MethodSpec:
    fields = {
        "name": "gem",
        "schema": GEM,
        "factory": "explainer_gem.code:run",
        "summary": "Self-self attention.",
        "needs": frozenset({"attention", "readout"}),
        "reference": "Bousselham et al. 2024",
    }
    return MethodSpec(**{**fields, **changes})


def test_a_method_keeps_what_it_was_given():
    spec = method(default_rank=3, default_with={"companion"})
    assert dataclasses.asdict(spec) == {
        "name": "gem",
        "schema": GEM,
        "factory": "explainer_gem.code:run",
        "summary": "Self-self attention.",
        "needs": frozenset({"attention", "readout"}),
        "reference": "Bousselham et al. 2024",
        "reads_score": False,
        "default_rank": 3,
        "default_with": frozenset({"companion"}),
    }


def test_gradients_are_those_of_the_score():
    assert method(needs={"features", "gradient"}).reads_score is True
    assert method(needs=set(), reads_score=True).reads_score is True
    assert method().reads_score is False


def test_defaults():
    assert (method().default_rank, method().default_with) == (None, frozenset())
    encoder = EncoderSpec(name="timm", schema=GEM, factory="a.b:c", summary="Any timm model.")
    assert encoder.wraps == ()


def test_specs_are_frozen_and_hashable_even_from_mutable_collections():
    spec = method(needs={"attention", "readout"})
    assert spec == method()
    assert hash(spec) == hash(method())
    encoder = EncoderSpec(name="timm", schema=GEM, factory="a:b", summary="Any.", wraps=["timm"])
    assert encoder.wraps == ("timm",)
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"


def test_fields_are_keyword_only():
    with pytest.raises(TypeError):
        ScoreSpec("logit", GEM, "a:b", "The class score.")


def test_capabilities():
    assert CAPABILITIES == ("features", "readout", "classes", "companion", "attention", "stream", "gradient")
    assert method(needs=CAPABILITIES).needs == frozenset(CAPABILITIES)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"name": "Grad-CAM"},
            "method name 'Grad-CAM' is not valid: use lower-case letters, digits and '_', "
            "starting with a letter, e.g. 'grad_cam'",
            id="capitals",
        ),
        pytest.param(
            {"name": "gradCam2"},
            "method name 'gradCam2' is not valid: use lower-case letters, digits and '_', "
            "starting with a letter, e.g. 'grad_cam2'",
            id="camel case",
        ),
        pytest.param(
            {"name": "2cam"},
            "method name '2cam' is not valid: use lower-case letters, digits and '_', starting with a letter",
            id="digit first",
        ),
        pytest.param(
            {"name": ""},
            "method name '' is not valid: use lower-case letters, digits and '_', starting with a letter",
            id="empty",
        ),
        pytest.param(
            {"name": "gem\n"},
            "method name 'gem\\n' is not valid: use lower-case letters, digits and '_', "
            "starting with a letter, e.g. 'gem'",
            id="line break",
        ),
        pytest.param(
            {"name": 7},
            "method name 7 is not valid: use lower-case letters, digits and '_', starting with a letter",
            id="no string",
        ),
        pytest.param(
            {"schema": dict},
            "method 'gem': schema is <class 'dict'>, expected a subclass of explainer_registry.Schema",
            id="schema is a dict",
        ),
        pytest.param(
            {"schema": GEM()},
            "method 'gem': schema is GEM(depth=7), expected a subclass of explainer_registry.Schema",
            id="schema is an instance",
        ),
        pytest.param(
            {"schema": Plain},
            f"method 'gem': schema is {Plain!r}, expected a subclass of explainer_registry.Schema",
            id="schema is another pydantic model",
        ),
        pytest.param(
            {"schema": Named},
            "method 'gem': schema Named has a setting 'name', "
            "the word that chooses the method itself; call the setting something else",
            id="setting called name",
        ),
        pytest.param(
            {"schema": NamedByAlias},
            "method 'gem': schema NamedByAlias has a setting 'name', "
            "the word that chooses the method itself; call the setting something else",
            id="setting called name by alias",
        ),
        pytest.param(
            {"factory": "explainer_gem.code.run"},
            "method 'gem': factory is 'explainer_gem.code.run', expected 'package.module:attribute'",
            id="factory without colon",
        ),
        pytest.param(
            {"factory": len},
            "method 'gem': factory is <built-in function len>, expected 'package.module:attribute'",
            id="factory is the function",
        ),
        pytest.param(
            {"needs": {"atention"}},
            "method 'gem': needs names no capability with 'atention'; did you mean 'attention'? "
            "(capabilities: features, readout, classes, companion, attention, stream, gradient)",
            id="misspelt capability",
        ),
        pytest.param(
            {"default_with": {"txt"}},
            "method 'gem': default_with names no capability with 'txt' "
            "(capabilities: features, readout, classes, companion, attention, stream, gradient)",
            id="unknown capability",
        ),
        pytest.param(
            {"needs": "features"},
            "method 'gem': needs is 'features', expected a collection of strings, e.g. {\"features\"}",
            id="bare string",
        ),
    ],
)
def test_a_wrong_field_is_refused(changes: dict, message: str):
    with pytest.raises(RegistryError) as caught:
        method(**changes)
    assert str(caught.value) == message


@pytest.mark.parametrize("wraps", ["timm", [7]])
def test_wrapped_packages_are_a_collection_of_strings(wraps):
    with pytest.raises(RegistryError) as caught:
        EncoderSpec(name="timm", schema=GEM, factory="a:b", summary="Any.", wraps=wraps)
    assert (
        str(caught.value) == f"encoder 'timm': wraps is {wraps!r}, expected a collection of strings, e.g. (\"timm\",)"
    )
