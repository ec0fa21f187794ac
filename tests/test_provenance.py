from __future__ import annotations

import dataclasses

import pytest
from explanations import PROVENANCE, said

from explainer.provenance import Provenance
from explainer_registry import ExplainerError


def test_json_gives_the_provenance_back():
    full = dataclasses.replace(PROVENANCE, layer=None, warnings=("the weights are random",))
    assert Provenance.from_json(full.to_json()) == full
    assert Provenance.from_json(PROVENANCE.to_json()) == PROVENANCE


def test_the_method_is_a_copy_in_plain_json():
    method = {"name": "gem", "point": (3, 4)}
    kept = Provenance("open_clip:ViT-B-16", "openai", method, None, "logit")
    method["name"] = "cam"
    assert kept.method == {"name": "gem", "point": [3, 4]}


def test_a_method_without_name_is_refused():
    with pytest.raises(ExplainerError) as error:
        dataclasses.replace(PROVENANCE, method={"relu": True, "layer": None})
    assert said(error) == "the method's configuration has no 'name'; it has: ['layer', 'relu']"


def test_a_method_that_is_not_json_is_refused():
    with pytest.raises(ExplainerError) as error:
        dataclasses.replace(PROVENANCE, method={"name": "gem", "blocks": {1}})
    assert said(error) == (
        "the method's configuration cannot be written as JSON: Object of type set is not JSON serializable; "
        'dump a schema with model_dump(mode="json")'
    )


def test_text_that_is_no_provenance_is_refused():
    with pytest.raises(ExplainerError) as error:
        Provenance.from_json("{")
    assert said(error) == (
        "this is not a provenance written by explainer: "
        "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    )
