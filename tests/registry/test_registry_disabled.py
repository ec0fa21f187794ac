from __future__ import annotations

import sys

import pytest

from explainer_registry import PluginInfo, RegistryError


@pytest.fixture
def plugins(site, face):
    """Two distributions, one of them with two plugins; both have an entry point ``gem``."""
    site.install("vision-explainer", "0.1", cam=face("cam"), gem=face("gem"))
    site.install("Explainer_Fork", "2.0", gem=face("gem_fork"))
    return site


@pytest.mark.parametrize(
    ("disabled", "left"),
    [
        ([], ("cam", "gem", "gem_fork")),
        (["vision-explainer:gem"], ("cam", "gem_fork")),
        (["Vision_Explainer:gem"], ("cam", "gem_fork")),
        (["explainer-fork"], ("cam", "gem")),
        (["explainer_fork"], ("cam", "gem")),
        (["vision-explainer"], ("gem_fork",)),
        (["cam"], ("gem", "gem_fork")),
        (["cam", "explainer-fork:gem"], ("gem",)),
        (["cam", "vision-explainer:cam"], ("gem", "gem_fork")),
    ],
)
def test_a_plugin_is_switched_off(plugins, disabled: list[str], left: tuple[str, ...]):
    assert plugins.discover(disabled=disabled).methods.names() == left


def test_a_plugin_that_is_off_is_listed_but_not_imported(plugins):
    registry = plugins.discover(disabled=["explainer-fork"])
    assert registry.plugins[-1] == PluginInfo("explainer-fork", "2.0", "gem", enabled=False)
    assert [info.enabled for info in registry.plugins] == [True, True, False]
    assert "explainer_fork_gem" not in sys.modules
    assert "vision_explainer_gem" in sys.modules


def test_a_broken_plugin_that_is_off_is_no_problem(plugins):
    plugins.install("explainer-bad", bad="import not_there")
    assert plugins.discover(disabled=["bad"], strict=True).problems == ()


def test_asking_for_what_is_off_says_so(plugins):
    registry = plugins.discover(disabled=["cam"])
    with pytest.raises(RegistryError) as caught:
        registry.methods.get("cam")
    assert str(caught.value) == (
        "no method named 'cam'; the plugin of that name is switched off: vision-explainer 0.1 (cam)"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "gem",
            "cannot switch off 'gem': it could mean explainer-fork:gem or vision-explainer:gem; say which",
        ),
        (
            "cma",
            "cannot switch off 'cma': no such plugin; did you mean 'cam'? "
            "(plugins: vision-explainer:cam, vision-explainer:gem, explainer-fork:gem)",
        ),
        (
            "vision-explainer:gme",
            "cannot switch off 'vision-explainer:gme': no such plugin; did you mean 'vision-explainer:gem'? "
            "(plugins: vision-explainer:cam, vision-explainer:gem, explainer-fork:gem)",
        ),
        (
            "explainer-frok",
            "cannot switch off 'explainer-frok': no such plugin; did you mean 'explainer-fork'? "
            "(plugins: vision-explainer:cam, vision-explainer:gem, explainer-fork:gem)",
        ),
        (
            "zzz",
            "cannot switch off 'zzz': no such plugin "
            "(plugins: vision-explainer:cam, vision-explainer:gem, explainer-fork:gem)",
        ),
    ],
)
def test_a_name_that_fits_no_plugin_or_several_is_refused(plugins, name: str, message: str):
    with pytest.raises(RegistryError) as caught:
        plugins.discover(disabled=[name])
    assert str(caught.value) == message


def test_a_distribution_and_an_entry_point_of_the_same_name_are_told_apart(site, face):
    site.install("cam", cam=face("cam"), more=face("more"))
    site.install("explainer-cam", cam=face("other"))
    with pytest.raises(RegistryError) as caught:
        site.discover(disabled=["cam"])
    assert str(caught.value) == (
        "cannot switch off 'cam': it could mean cam:cam or cam:more or explainer-cam:cam; say which"
    )


def test_a_distribution_whose_entry_point_bears_its_name(site, face):
    site.install("gem", gem=face("gem"), extra=face("extra"))
    assert site.discover(disabled=["gem"]).methods.names() == ()
