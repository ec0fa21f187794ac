from __future__ import annotations

import sys

import pytest

from explainer_registry import MethodSpec, Problem, RegistryError

CODE = "def run():\n    return 'ran'\n"


@pytest.fixture
def contested(site, face):
    """Our own distribution and a fork, which both offer ``gem``."""
    site.install(
        "vision-explainer",
        "0.1",
        {"own_code": CODE},
        gem=face("gem", factory="own_code:run"),
        cam=face("cam"),
    )
    site.install("Explainer.Gem-Fork", "2.0", {"fork_code": CODE}, gem=face("gem", factory="fork_code:run"))
    return site


def test_names_items_iteration_and_membership(site, face):
    site.install("explainer-gem", gem=face("gem"), cam=face("cam"))
    methods = site.discover().methods
    assert methods.names() == ("cam", "gem")
    assert list(methods) == ["cam", "gem"]
    assert len(methods) == 2
    assert [(name, spec.name) for name, spec in methods.items()] == [("cam", "cam"), ("gem", "gem")]
    assert isinstance(methods.get("gem"), MethodSpec)
    assert "gem" in methods
    assert "explainer-gem/gem" in methods
    assert "other/gem" not in methods
    assert "gme" not in methods
    assert 7 not in methods
    assert methods.source("gem") == "explainer-gem 1.0"


def test_a_qualified_name_works_though_nobody_contests_it(site, face):
    site.install("Explainer.Gem", gem=face("gem"))
    methods = site.discover().methods
    assert methods.get("explainer-gem/gem") is methods.get("gem")
    assert methods.get("Explainer_Gem/gem") is methods.get("gem")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gme", "no method named 'gme'; did you mean 'gem'? (available: gem, grad_cam)"),
        ("Grad-CAM", "no method named 'Grad-CAM'; did you mean 'grad_cam'? (available: gem, grad_cam)"),
        ("zzz", "no method named 'zzz' (available: gem, grad_cam)"),
        (
            "explainer-gm/gem",
            "no method named 'explainer-gm/gem'; did you mean 'explainer-gem/gem'? (available: gem, grad_cam)",
        ),
    ],
)
def test_an_unknown_name(site, face, name: str, message: str):
    site.install("explainer-gem", gem=face("gem"), cam=face("grad_cam"))
    methods = site.discover().methods
    for lookup in (methods.get, methods.load, methods.source):
        with pytest.raises(RegistryError) as caught:
            lookup(name)
        assert str(caught.value) == message


def test_the_noun_of_a_message_is_that_of_the_catalogue(site, face):
    site.install("explainer-gem", a=face("timm", "encoder"), b=face("logit", "score"))
    registry = site.discover()
    with pytest.raises(RegistryError) as encoder:
        registry.encoders.get("tim")
    with pytest.raises(RegistryError) as score:
        registry.scores.get("logits")
    assert str(encoder.value) == "no encoder named 'tim'; did you mean 'timm'? (available: timm)"
    assert str(score.value) == "no score named 'logits'; did you mean 'logit'? (available: logit)"
    assert registry.catalogue("scores") is registry.scores


def test_asking_for_a_name_whose_plugin_failed_says_why(site, face):
    site.install("explainer-legrad", "0.2", legrad="import not_there")
    with pytest.raises(RegistryError) as caught:
        site.discover().methods.get("legrad")
    assert str(caught.value) == (
        "no method named 'legrad'; the plugin of that name could not be loaded: "
        "explainer-legrad 0.2 (legrad): ModuleNotFoundError: No module named 'not_there'"
    )


def test_a_contested_name_is_refused_with_both_distributions(contested):
    methods = contested.discover().methods
    for lookup in (methods.get, methods.load, methods.source):
        with pytest.raises(RegistryError) as caught:
            lookup("gem")
        assert str(caught.value) == (
            "method 'gem' is offered by vision-explainer 0.1 and explainer-gem-fork 2.0; "
            "say 'vision-explainer/gem' or 'explainer-gem-fork/gem', or switch one plugin off with "
            "EXPLAINER_DISABLE_PLUGINS: vision-explainer:gem or explainer-gem-fork:gem"
        )
    assert "gem" not in methods


def test_a_contested_name_is_chosen_by_its_distribution(contested):
    methods = contested.discover().methods
    assert methods.names() == ("cam", "explainer-gem-fork/gem", "vision-explainer/gem")
    assert all(name in methods for name in methods)
    assert len(methods) == 3
    assert methods.get("vision-explainer/gem").factory == "own_code:run"
    assert methods.get("explainer-gem-fork/gem").factory == "fork_code:run"
    assert methods.source("explainer-gem-fork/gem") == "explainer-gem-fork 2.0"
    assert methods.load("vision-explainer/gem")() == "ran"


def test_a_contested_name_is_listed_as_a_problem_and_both_plugins_are_in_force(contested):
    registry = contested.discover()
    assert registry.problems == (
        Problem(
            "vision-explainer 0.1 (gem) and explainer-gem-fork 2.0 (gem)",
            "2 distributions offer method 'gem'; say 'vision-explainer/gem' or 'explainer-gem-fork/gem', or "
            "switch one plugin off with EXPLAINER_DISABLE_PLUGINS: "
            "vision-explainer:gem or explainer-gem-fork:gem",
        ),
    )
    assert [(info.enabled, info.problem) for info in registry.plugins] == [(True, None)] * 3


def test_a_contested_name_is_raised_in_strict_mode(contested):
    problem = contested.discover().problems[0]
    with pytest.raises(RegistryError) as caught:
        contested.discover(strict=True)
    assert str(caught.value) == str(problem)


def test_switching_one_plugin_off_settles_a_contest(contested):
    registry = contested.discover(disabled=["explainer-gem-fork"], strict=True)
    assert registry.methods.source("gem") == "vision-explainer 0.1"


@pytest.mark.parametrize("noun", ["encoder", "score"])
def test_encoders_and_scores_are_contested_alike(site, face, noun: str):
    site.install("explainer-a", x=face("x", noun))
    site.install("explainer-b", x=face("x", noun))
    registry = site.discover()
    with pytest.raises(RegistryError) as caught:
        registry.catalogue(f"{noun}s").get("x")
    assert str(caught.value) == (
        f"{noun} 'x' is offered by explainer-a 1.0 and explainer-b 1.0; "
        "say 'explainer-a/x' or 'explainer-b/x', or switch one plugin off with "
        "EXPLAINER_DISABLE_PLUGINS: explainer-a:x or explainer-b:x"
    )
    assert len(registry.problems) == 1


def test_one_name_of_two_kinds_is_no_contest(site, face):
    site.install("explainer-a", x=face("x", "encoder"))
    site.install("explainer-b", x=face("x", "score"))
    assert site.discover(strict=True).problems == ()


def test_a_near_miss_of_a_contested_name_offers_it(contested):
    with pytest.raises(RegistryError) as caught:
        contested.discover().methods.get("gme")
    assert str(caught.value) == (
        "no method named 'gme'; did you mean 'gem'? (available: cam, explainer-gem-fork/gem, vision-explainer/gem)"
    )


def test_code_is_imported_on_first_use(site, face):
    site.install("explainer-gem", "1.0", {"gem_code": CODE}, gem=face("gem", factory="gem_code:run"))
    methods = site.discover().methods
    methods.get("gem")
    assert "gem_code" not in sys.modules
    assert methods.load("gem")() == "ran"
    assert methods.load("gem") is methods.load("gem")


@pytest.mark.parametrize(
    ("code", "factory", "reason", "cause"),
    [
        ("import open_clop", "gem_code:run", "No module named 'open_clop'", ModuleNotFoundError),
        (CODE, "gem_cod:run", "No module named 'gem_cod'", ModuleNotFoundError),
        ("1 / 0", "gem_code:run", "ZeroDivisionError: division by zero", ZeroDivisionError),
        (CODE, "gem_code:rum", "module 'gem_code' has no 'rum'; did you mean 'run'?", AttributeError),
        (CODE, "gem_code:forward", "module 'gem_code' has no 'forward'", AttributeError),
    ],
)
def test_code_that_cannot_be_imported(site, face, code: str, factory: str, reason: str, cause: type[Exception]):
    site.install("explainer-gem", "0.2", {"gem_code": code}, gem=face("gem", factory=factory))
    registry = site.discover(strict=True)
    with pytest.raises(RegistryError) as caught:
        registry.methods.load("gem")
    assert str(caught.value) == f"method 'gem' is installed but could not be loaded: explainer-gem 0.2: {reason}"
    assert type(caught.value.__cause__) is cause
