from __future__ import annotations

import sys
from importlib.metadata import EntryPoint

import pytest

from explainer_registry import PluginInfo, Problem, Registry, RegistryError

HOOKS = (
    "explainer_after_explanation, explainer_after_job, explainer_before_explanation, explainer_datasets, "
    "explainer_encoders, explainer_methods, explainer_metrics, explainer_scores, explainer_views"
)

GOOD = """
from explainer_registry import MethodSpec, Schema, hookimpl

class GEM(Schema):
    depth: int = 7

def spec(**changes):
    fields = dict(name="gem", schema=GEM, factory="gem_code:run", needs=(), summary="", reference="")
    return MethodSpec(**{**fields, **changes})
"""

SABOTAGE = {
    "import_error": ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
    "raises_at_import": ("raise OSError('no licence server')", "OSError: no licence server"),
    "raises_nothing_said": ("raise RuntimeError", "RuntimeError"),
    "misspelt_hook": (
        GOOD + "@hookimpl\ndef explainer_method():\n    return [spec()]",
        f"unknown hook 'explainer_method'; did you mean 'explainer_methods'? (hooks: {HOOKS})",
    ),
    "unknown_hook": (
        GOOD + "@hookimpl\ndef frobnicate():\n    return [spec()]",
        f"unknown hook 'frobnicate' (hooks: {HOOKS})",
    ),
    "unmarked_hook": (
        GOOD + "def explainer_methods():\n    return [spec()]",
        f"implements no hook: mark one with @hookimpl (hooks: {HOOKS})",
    ),
    "wrong_argument": (
        GOOD + "@hookimpl\ndef explainer_before_explanation(reqest): ...",
        "PluginValidationError: "
        "Plugin 'explainer-bad:wrong_argument' for hook 'explainer_before_explanation'\n"
        "hookimpl definition: explainer_before_explanation(reqest)\n"
        "Argument(s) {'reqest'} are declared in the hookimpl but can not be found in the hookspec",
    ),
    "default_argument": (
        GOOD + "@hookimpl\ndef explainer_before_explanation(request=None): ...",
        "explainer_before_explanation() gives a default to request, "
        "which would hide the value that is passed; remove the default",
    ),
    "wrapper": (
        GOOD + "@hookimpl(wrapper=True)\ndef explainer_methods():\n    return (yield)",
        "explainer_methods() is a hook wrapper; write an ordinary @hookimpl",
    ),
    "raises_in_hook": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return 1 / 0",
        "explainer_methods() raised ZeroDivisionError: division by zero",
    ),
    "raises_in_generator": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    yield spec()\n    yield 1 / 0",
        "explainer_methods() raised ZeroDivisionError: division by zero",
    ),
    "returns_nothing": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    spec()",
        "explainer_methods() returned None, expected a list of MethodSpec",
    ),
    "returns_a_string": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return 'gem'",
        "explainer_methods() returned 'gem', expected a list of MethodSpec",
    ),
    "returns_a_list_of_names": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return [spec(), 'gem']",
        "explainer_methods() returned a list with 'gem' in it, expected MethodSpec",
    ),
    "returns_methods_as_scores": (
        GOOD + "class Long:\n    def __repr__(self): return 100 * 'x'\n"
        "@hookimpl\ndef explainer_scores():\n    return [Long()]",
        f"explainer_scores() returned a list with {77 * 'x'}... in it, expected ScoreSpec",
    ),
    "schema_is_no_schema": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return [spec(schema=dict)]",
        "method 'gem': schema is <class 'dict'>, expected a subclass of explainer_registry.Schema",
    ),
    "schema_wrong_at_import": (
        GOOD + "SPECS = [spec(schema=dict)]",
        "method 'gem': schema is <class 'dict'>, expected a subclass of explainer_registry.Schema",
    ),
    "invalid_name": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return [spec(name='GEM')]",
        "method name 'GEM' is not valid: use lower-case letters, digits and '_', starting with a letter, e.g. 'gem'",
    ),
    "invalid_factory": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return [spec(factory='gem_code')]",
        "method 'gem': factory is 'gem_code', expected 'package.module:attribute'",
    ),
    "same_name_twice": (
        GOOD + "@hookimpl\ndef explainer_methods():\n    return [spec(), spec()]",
        "offers method 'gem' twice",
    ),
}


@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_a_broken_plugin_is_named_and_the_others_go_on(site, face, sabotage: str):
    source, reason = SABOTAGE[sabotage]
    site.install("explainer-alpha", alpha=face("alpha"))
    site.install("explainer-bad", "0.3", **{sabotage: source})
    site.install("explainer-zeta", zeta=face("zeta"))
    registry = site.discover()
    problem = Problem(f"explainer-bad 0.3 ({sabotage})", reason)
    assert registry.problems == (problem,)
    assert str(problem) == f"explainer-bad 0.3 ({sabotage}): {reason}"
    assert registry.methods.names() == ("alpha", "zeta")
    assert registry.plugins == (
        PluginInfo("explainer-alpha", "1.0", "alpha", offers=("method alpha",)),
        PluginInfo("explainer-bad", "0.3", sabotage, problem=problem),
        PluginInfo("explainer-zeta", "1.0", "zeta", offers=("method zeta",)),
    )


@pytest.mark.parametrize("sabotage", SABOTAGE)
def test_strict_mode_raises_the_problem(site, sabotage: str):
    source, reason = SABOTAGE[sabotage]
    site.install("explainer-bad", "0.3", **{sabotage: source})
    with pytest.raises(RegistryError) as caught:
        site.discover(strict=True)
    assert str(caught.value) == f"explainer-bad 0.3 ({sabotage}): {reason}"
    assert isinstance(caught.value.__cause__, Exception)


def test_strict_mode_keeps_the_original_exception(site):
    site.install("explainer-bad", bad="import not_there")
    with pytest.raises(RegistryError) as caught:
        site.discover(strict=True)
    assert type(caught.value.__cause__) is ModuleNotFoundError


def test_a_broken_plugin_hears_no_events(site):
    site.install(
        "explainer-bad",
        bad=GOOD
        + "@hookimpl\ndef explainer_methods(): return None\n"
        + "@hookimpl\ndef explainer_before_explanation(request): request.append('heard')",
    )
    heard: list[str] = []
    site.discover().notify_before_explanation(heard)
    assert heard == []


def test_an_exit_at_import_is_no_problem_of_the_plugin_but_an_exit(site):
    site.install("explainer-bad", bad="raise SystemExit(3)")
    with pytest.raises(SystemExit):
        site.discover()


def test_an_optional_hook_of_another_release_is_no_problem(site):
    source = GOOD + "@hookimpl(optionalhook=True)\ndef explainer_reports(): ..."
    site.install("explainer-new", new=source)
    assert site.discover().problems == ()


def test_a_malformed_entry_point_is_a_problem(site):
    site.declare("explainer-bad", "1.0", "bad = not a module")
    (problem,) = site.discover().problems
    assert problem.source == "explainer-bad 1.0 (bad)"


def test_our_own_distribution_comes_first_then_the_alphabet(site, face):
    site.install("explainer-zeta", zeta=face("zeta"), alpha=face("alpha"))
    site.install("Explainer.Beta", beta=face("beta"))
    site.install("vision-explainer", timm=face("timm", "encoder"), cam=face("cam"))
    assert [info.id for info in site.discover().plugins] == [
        "vision-explainer:cam",
        "vision-explainer:timm",
        "explainer-beta:beta",
        "explainer-zeta:alpha",
        "explainer-zeta:zeta",
    ]


def test_a_plugin_may_offer_of_every_kind_and_yield(site):
    site.install(
        "explainer-all",
        "2.1",
        all="""
        from explainer_registry import EncoderSpec, MethodSpec, Schema, ScoreSpec, hookimpl

        class Settings(Schema):
            pass

        COMMON = dict(schema=Settings, factory="code:run", summary="")

        @hookimpl
        def explainer_methods():
            yield MethodSpec(name="one", needs=(), reference="", **COMMON)
            yield MethodSpec(name="two", needs=(), reference="", **COMMON)

        @hookimpl
        def explainer_encoders():
            return (EncoderSpec(name="one", **COMMON),)

        @hookimpl
        def explainer_scores():
            return {ScoreSpec(name="one", **COMMON)}
        """,
    )
    registry = site.discover()
    assert registry.problems == ()
    assert (registry.methods.names(), registry.encoders.names()) == (("one", "two"), ("one",))
    assert registry.scores.names() == ("one",)
    (info,) = registry.plugins
    assert info.offers == ("encoder one", "method one", "method two", "score one")
    assert (info.id, info.release) == ("explainer-all:all", "explainer-all 2.1")


def test_an_object_in_a_module_may_be_the_plugin(site, face):
    source = face("gem").replace(
        "@hookimpl\ndef explainer_methods():", "class P:\n  @hookimpl\n  def explainer_methods(self):"
    )
    (site.path / "gem_object.py").write_text(source.replace("    return", "      return") + "plugin = P()\n")
    site.declare("explainer-gem", "1.0", "gem = gem_object:plugin")
    assert site.discover().methods.names() == ("gem",)


def test_the_same_entry_point_name_in_two_distributions_loads_both(site, face):
    site.install("explainer-one", gem=face("one"))
    site.install("explainer-two", gem=face("two"))
    registry = site.discover()
    assert registry.problems == ()
    assert registry.methods.names() == ("one", "two")


def test_a_fork_that_kept_the_module_name_is_named(site, face):
    site.install("explainer-gem", gem=face("gem"))
    site.declare("explainer-gem-fork", "2.0", "gem = explainer_gem_gem")
    assert [str(problem) for problem in site.discover().problems] == [
        "explainer-gem-fork 2.0 (gem): is the same plugin as explainer-gem 1.0 (gem), which is loaded already"
    ]


def test_an_entry_point_that_is_declared_twice_keeps_the_first(site, face):
    site.install("explainer-gem", files={"other": face("other")}, gem=face("gem"))
    metadata = site.path / "explainer_gem-1.0.dist-info" / "entry_points.txt"
    metadata.write_text(metadata.read_text() + "gem = other\n")
    registry = site.discover()
    assert [str(problem) for problem in registry.problems] == [
        "explainer-gem 1.0 (gem): is the same plugin as explainer-gem 1.0 (gem), which is loaded already"
    ]
    assert registry.methods.names() == ("gem",)


def test_two_plugins_of_one_distribution_cannot_share_a_name(site, face):
    site.install("explainer-gem", a=face("gem"), b=face("gem"))
    registry = site.discover()
    assert [str(problem) for problem in registry.problems] == [
        "explainer-gem 1.0 (b): offers method 'gem', which explainer-gem 1.0 (a) offers already"
    ]
    assert registry.methods.source("gem") == "explainer-gem 1.0"


def test_metadata_that_is_on_the_path_twice_counts_once(site, face, tmp_path, monkeypatch):
    site.install("vision-explainer", "0.2", gem=face("gem"))
    second = type(site)(tmp_path / "second")
    second.declare("Vision.Explainer", "0.1", "gem = vision_explainer_gem", "old = vision_explainer_old")
    both = [*site.entry_points(), *second.entry_points()]
    expected = (PluginInfo("vision-explainer", "0.2", "gem", offers=("method gem",)),)
    registry = Registry.discover(entry_points=both)
    assert (registry.plugins, registry.problems) == (expected, ())
    monkeypatch.setattr(sys, "path", [str(site.path), str(tmp_path / "second"), *sys.path[1:]])
    installed = [info for info in Registry.discover().plugins if info.distribution == "vision-explainer"]
    assert tuple(installed) == expected


def test_without_arguments_everything_that_is_installed_is_found(site, face):
    site.install("explainer-found", "3.4", found=face("found_by_discovery"))
    registry = Registry.discover()
    assert PluginInfo("explainer-found", "3.4", "found", offers=("method found_by_discovery",)) in registry.plugins
    assert registry.methods.source("found_by_discovery") == "explainer-found 3.4"


def test_a_module_can_be_tried_before_it_is_packaged(site, face):
    (site.path / "my_draft.py").write_text(face("draft"))
    registry = Registry.discover(entry_points=[EntryPoint("draft", "my_draft", "explainer")])
    assert registry.methods.source("draft") == "my-draft (no version)"
    assert [info.source for info in registry.plugins] == ["my-draft (no version) (draft)"]


def test_a_distribution_without_metadata_still_loads(site, face):
    site.install("explainer-gem", gem=face("gem"))
    (site.path / "explainer_gem-1.0.dist-info" / "METADATA").unlink()
    registry = site.discover()
    assert registry.methods.names() == ("gem",)
    assert [info.source for info in registry.plugins] == ["explainer-gem-gem (no version) (gem)"]


def test_no_plugins_at_all(site):
    registry = site.discover()
    assert (registry.plugins, registry.problems) == ((), ())
    with pytest.raises(RegistryError) as caught:
        registry.methods.get("gem")
    assert str(caught.value) == "no method named 'gem' (available: none)"
    assert Registry().methods.names() == ()
