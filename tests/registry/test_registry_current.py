from __future__ import annotations

import threading

import pytest

from explainer_registry import Registry, RegistryError, current, registry, use


@pytest.fixture(autouse=True)
def undiscovered(monkeypatch):
    """A process that has not discovered its plugins yet, and none of whose switches is set."""
    monkeypatch.setattr(current, "_current", current._Current())
    monkeypatch.delenv("EXPLAINER_DISABLE_PLUGINS", raising=False)
    monkeypatch.delenv("EXPLAINER_STRICT_PLUGINS", raising=False)


@pytest.fixture
def shadowed(site, face):
    """Our own distribution, shadowed by one with two plugins."""
    site.install("vision-explainer", "9.9", shadow=face("shadow"), other=face("other"))
    return site


def test_the_plugins_are_discovered_once(shadowed):
    assert registry() is registry()
    assert {"other", "shadow"} <= set(registry().methods)


def test_threads_share_one_discovery(shadowed, monkeypatch):
    calls: list[int] = []
    discover = Registry.discover
    monkeypatch.setattr(Registry, "discover", lambda **options: calls.append(1) or discover(**options))
    threads = [threading.Thread(target=registry) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]


def test_the_environment_switches_plugins_off(shadowed, monkeypatch):
    monkeypatch.setenv("EXPLAINER_DISABLE_PLUGINS", " vision-explainer:shadow , ,")
    assert "shadow" not in registry().methods
    assert "other" in registry().methods


def test_the_environment_names_an_unknown_plugin(shadowed, monkeypatch):
    monkeypatch.setenv("EXPLAINER_DISABLE_PLUGINS", "shadwo")
    for _ in range(2):
        with pytest.raises(RegistryError) as caught:
            registry()
        assert str(caught.value).startswith(
            "cannot switch off 'shadwo': no such plugin; did you mean 'shadow'? "
            "(plugins: vision-explainer:other, vision-explainer:shadow"
        )


def test_the_environment_makes_discovery_strict(shadowed, monkeypatch):
    shadowed.install("explainer-bad", bad="import not_there")
    monkeypatch.setenv("EXPLAINER_STRICT_PLUGINS", "1")
    with pytest.raises(RegistryError) as caught:
        registry()
    assert str(caught.value) == "explainer-bad 1.0 (bad): ModuleNotFoundError: No module named 'not_there'"


@pytest.mark.parametrize("value", ["", "0"])
def test_strictness_is_off_by_default(shadowed, monkeypatch, value: str):
    shadowed.install("explainer-bad", bad="import not_there")
    monkeypatch.setenv("EXPLAINER_STRICT_PLUGINS", value)
    assert [problem.source for problem in registry().problems] == ["explainer-bad 1.0 (bad)"]


def test_a_switch_that_is_neither_on_nor_off(monkeypatch):
    monkeypatch.setenv("EXPLAINER_STRICT_PLUGINS", "yes")
    with pytest.raises(RegistryError) as caught:
        registry()
    assert str(caught.value) == "EXPLAINER_STRICT_PLUGINS is 'yes', expected 1 (on) or 0 (off)"


def test_a_plugin_that_asks_for_the_registry_while_it_loads(shadowed):
    shadowed.install("explainer-eager", eager="from explainer_registry import registry\nregistry()")
    assert [str(problem) for problem in registry().problems] == [
        "explainer-eager 1.0 (eager): registry() was called while the plugins are being loaded; "
        "call it when the method runs"
    ]


def test_a_replacement_is_used_and_undone(shadowed):
    before, outer, inner = registry(), Registry(), Registry()
    with use(outer) as given:
        assert given is registry() is outer
        with use(inner):
            assert registry() is inner
        assert registry() is outer
    assert registry() is before


def test_a_replacement_is_undone_after_an_exception():
    with pytest.raises(KeyboardInterrupt), use(Registry()):
        raise KeyboardInterrupt
    assert current._current.registry is None
