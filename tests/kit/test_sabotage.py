"""What breaks a promise is caught, with a message that names the thing, the fault and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from explainer.testing import (
    EncoderContract,
    MethodContract,
    MetricContract,
    ScoreContract,
    ViewContract,
    fresh_registry,
    tiny_cnn,
)
from explainer.testing.clean import UNDO
from kit import sabotage

GRID = (
    "; lay cells out as rows, then columns, on the grid of the layer they come from: "
    "cells_to_maps(grid.to_columns(...), grid), or grid.to_map(...)"
)
RAW = "; return them raw and signed; whoever looks at them chooses a scale with e.heat(normalize=...)"
SAYS = "raise an ExplainerError that says what to do, or declare what is missing in needs"
DIVISION = "look for a division by a range, a norm or a count that is 0, and for the logarithm of 0"
METHODS = {
    ("leaks_hook", "test_leaves_no_trace"): f"leaves a trace on tiny_cnn: _forward_hooks has 1 more; {UNDO}",
    ("seeds", "test_leaves_no_trace"): f"leaves a trace on tiny_cnn: torch's random numbers changed; {UNDO}",
    ("changes_a_flag_on_failure", "test_leaves_no_trace_on_failure"): "leaves a trace, when layer 'stem.0' raises, on "
    f"tiny_cnn: stem.0.note was added; {UNDO}",
    ("by_range", "test_is_not_normalised"): "normalises its maps: on tiny_cnn, the range (largest less smallest value) "
    "of all 12 maps is 1" + RAW,
    ("by_maximum", "test_is_not_normalised"): "normalises its maps: on tiny_cnn, the largest absolute value of all 12 "
    "maps is 1" + RAW,
    ("by_contrast", "test_odd_pictures"): "gives tiny_cnn for a tensor of zeros a map with NaN or infinity "
    f"in it; {DIVISION}",
    ("mixes_the_batch", "test_each_picture_is_on_its_own"): "gives a picture another map in a batch than alone: on "
    "tiny_cnn they differ by 24% of their range; let no mean, maximum or norm run over the dimension of the batch",
    ("ignores_the_order", "test_each_target_is_on_its_own"): "gives a target another map among others than alone: on "
    "tiny_cnn they differ by 78% of their range; compute map [:, t] from targets.directions[:, t] or scores[:, t] "
    "alone, in their order",
    ("mirrors_the_grid", "test_lies_on_the_picture"): "gives tiny_cnn a map that does not lie on the picture: for an "
    "input of 32 x 32, changing the top left corner of the picture changes it most at its top right (4.00 times the "
    "usual, against 0.23 at its top left)" + GRID,
    (
        "swaps_height_and_width",
        "test_lies_on_the_picture",
    ): "gives tiny_cnn a map that does not lie on the picture: "
    "for an input of 32 x 64, 50% of its cells follow another corner than the one they lie in" + GRID,
    ("forgets_the_batch", "test_maps_reach_the_user"): "gives tiny_cnn a tensor of shape [3, 8, 8] for 1 pictures and "
    "3 targets; return a tensor [1, 3, h, w]",
    ("reads_more_than_it_declares", "test_needs_no_more_than_it_declares"): "raises on tiny_cnn without a readout "
    f"(AttributeError: 'NoneType' object has no attribute 'similarities'); {SAYS}",
    ("reads_directions_too_early", "test_explains_the_top_class"): "is said to fit tiny_cnn and refuses it (the "
    "direction of 'top class' is only known once the model has answered: call targets.scores(outputs) with the "
    "encoder's output before reading targets.directions); explain it, or declare in needs what it lacks",
    (
        "rounds_to_single",
        "test_in_double_precision",
    ): f"raises on tiny_cnn (RuntimeError: expected scalar type Double but found Float); {SAYS}",
    ("lenient", "test_unknown_settings_are_refused"): "accepts a setting that it does not have (no_such_setting_0); "
    "leave extra='forbid' in the model_config of Lenient",
    ("undescribed", "test_settings_are_described"): "has a setting 'depth' without a description; write depth: ... = "
    'Field(..., description="...")',
    ("unwritable", "test_settings_survive_a_file"): "has settings that no file can hold (PydanticSerializationError: "
    "Unable to serialize unknown type: <class 'builtin_function_or_method'>); use numbers, strings and lists of them, "
    "or give the type a pydantic serialiser",
    (
        "no_function",
        "test_code_can_be_loaded",
    ): "is a dict, which cannot be called; let factory='kit.sabotage:NEEDS' be a function",
    (
        "fits_nothing",
        "test_leaves_no_trace",
    ): "fits none of the models that it is tried on (tiny_cnn: it reads no text; "
    "tiny_deep_head: it reads no text; tiny_vit: it reads no text; tiny_clip: it has no classes; tiny_clip without "
    "texts: it has no classes; it reads no text); override Broken.models() to return {name: function of a dtype that "
    "builds a model}",
}
SCORES = {
    ("flat", "test_gradients_flow"): "cannot be differentiated on tiny_cnn; compute it from answer.logits or "
    "answer.log_probs() by torch's own functions, without .detach() or rounding",
    ("centred", "test_each_picture_is_on_its_own"): "gives a picture another value in a batch than alone: on tiny_cnn "
    "they differ by 3% of their range; let nothing run over the first dimension, which is that of the pictures",
    (
        "summed",
        "test_one_number_for_each_picture_and_target",
    ): "gives a tensor of shape [3] for 3 pictures and 3 targets "
    "of tiny_cnn; return a floating-point tensor [3, 3], as answer.logits is",
}
METRICS = {
    (
        "error",
        "test_a_perfect_map_is_the_best",
    ): "gives 1 for the opposite of the mask as heat and 0 for the mask itself "
    "as heat, with an object; let larger values be better; return the negative of an error",
    (
        "error",
        "test_the_unit_of_heat_does_not_count",
    ): "changes when heat is multiplied by 1000, for the mask itself as "
    "heat and an object; scale heat by its own range first, or look at its order only",
    ("share", "test_values_are_within_bounds"): "gives NaN or infinity for a map of zeros and an object; look for a "
    "division by 0: a range, or a count",
    (
        "everywhere",
        "test_only_valid_pixels_count",
    ): "changes with heat on pixels that do not count, for the mask itself "
    "as heat; look only at heat[truth.valid] and truth.mask[truth.valid]",
}


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with fresh_registry(sabotage):
        yield


def message(contract: type, settings: dict[str, Any], test: str) -> str:
    """What a test of a contract says."""
    tried: Callable[[], None] = getattr(type("Broken", (contract,), settings)(), test)
    with pytest.raises(AssertionError) as caught:
        tried()
    return str(caught.value)


@pytest.mark.parametrize(("method", "test"), METHODS)
def test_methods(method: str, test: str) -> None:
    expected = f"method '{method}' (kit (no version)) {METHODS[method, test]}"
    assert message(MethodContract, {"method": method}, test) == expected


@pytest.mark.parametrize(("score", "test"), SCORES)
def test_scores(score: str, test: str) -> None:
    expected = f"score '{score}' (kit (no version)) {SCORES[score, test]}"
    assert message(ScoreContract, {"score": score}, test) == expected


@pytest.mark.parametrize(("metric", "test"), METRICS)
def test_metrics(metric: str, test: str) -> None:
    expected = f"metric '{metric}' (kit (no version)) {METRICS[metric, test]}"
    assert message(MetricContract, {"metric": metric}, test) == expected


VIEWS = {
    (
        "nothing",
        "test_draws_everything",
    ): "cannot draw a map of two signs of noise (view 'nothing' (kit (no version)) has to give a "
    "PIL.Image.Image, an Animation or a Document, or several; it gave None (NoneType)); draw everything, or say why "
    "not",
    (
        "always_grey",
        "test_shows_a_difference",
    ): "draws the same whatever it is: where the heat is; draw explanation.heat(normalize=...)[0, 0], laid on the "
    "picture",
    (
        "by_value",
        "test_the_unit_of_heat_does_not_count",
    ): "draws a map of two signs of noise otherwise where all values are smaller; scale the heat by its own range: "
    "explanation.heat(normalize='minmax'), or 'symmetric'",
    (
        "scribbles",
        "test_leaves_what_it_draws_as_it_was",
    ): "changes what it draws (a map of two signs of noise); work on a copy: tensor.clone(), picture.copy()",
    (
        "rubs_out",
        "test_leaves_what_it_draws_as_it_was",
    ): "changes what it draws (a map of two signs of noise); work on a copy: tensor.clone(), picture.copy()",
    (
        "shakes",
        "test_leaves_what_it_draws_as_it_was",
    ): "draws a map of two signs of noise otherwise the second time; leave out what is random",
}


@pytest.mark.parametrize(("view", "test"), VIEWS)
def test_views(view: str, test: str) -> None:
    expected = f"view '{view}' (kit (no version)) {VIEWS[view, test]}"
    assert message(ViewContract, {"view": view}, test) == expected


def test_a_method_whose_random_numbers_are_not_its_own() -> None:
    said = message(MethodContract, {"method": "draws_lots"}, "test_is_the_same_each_time")
    assert said.startswith(
        "method 'draws_lots' (kit (no version)) gives another map the second time: on tiny_cnn they "
    )
    assert said.endswith(
        "; draw from a torch.Generator of its own that a setting 'seed' starts, and keep nothing between calls"
    )


ENCODERS = {
    "test_says_what_it_is": "calls itself 'torch:TinyCNN'; let name be 'careless', or 'careless:MODEL'",
    "test_leaves_no_trace": "leaves a trace on the model after wrapping: note was added; " + UNDO,
    "test_each_picture_is_on_its_own": "says something else of a picture in a batch than alone: outputs differ by 2% "
    "of their range; let nothing run over the dimension of the batch",
    "test_unknown_targets_are_refused": "crashes at the target 1000000000 (IndexError: list index out of range); raise "
    "a TargetError from resolve() that says which targets there are",
}


@pytest.mark.parametrize("test", ENCODERS)
def test_encoders(test: str) -> None:
    settings = {"encoder": "careless", "model": lambda _self: tiny_cnn()}
    assert message(EncoderContract, settings, test) == f"encoder 'careless' (kit (no version)) {ENCODERS[test]}"


def test_a_contract_of_nothing() -> None:
    said = message(MethodContract, {}, "test_code_can_be_loaded")
    assert said == 'Broken tests no method: set method = "NAME" in the class'
    said = message(EncoderContract, {}, "test_lies_on_the_picture")
    assert said == "Broken tests no encoder: let its model() return a name or a module that it wraps"


def test_a_method_that_is_not_installed() -> None:
    said = message(MethodContract, {"method": "by_rang"}, "test_code_can_be_loaded")
    assert said.startswith("no method named 'by_rang'; did you mean 'by_range'? (available: ")
    assert said.endswith("; install the plugin first (pip install -e .), or give it to fresh_registry(...)")


def test_what_was_changed_is_made_anew() -> None:
    contract = type("Broken", (MethodContract,), {"method": "leaks_hook"})()
    contract.test_is_the_same_each_time()
    (first,) = {id(each) for each in (contract.subjects()["tiny_cnn"], contract.subjects()["tiny_cnn"])}
    contract.test_is_the_same_each_time()
    assert id(contract.subjects()["tiny_cnn"]) != first
    assert torch.is_grad_enabled()
