from __future__ import annotations

import pytest

from explainer_registry import RegistryError

LISTENER = """
from explainer_registry import hookimpl

@hookimpl
def explainer_before_explanation(request):
    request.append("before {name}")

@hookimpl
def explainer_after_explanation(explanation):
    explanation.append("after {name}")
"""


def test_every_plugin_hears_both_events(site):
    site.install("explainer-a", a=LISTENER.format(name="a"))
    site.install("explainer-b", b=LISTENER.format(name="b"))
    registry = site.discover(strict=True)
    heard: list[str] = []
    registry.notify_before(heard)
    registry.notify_after(heard)
    assert heard == ["before a", "before b", "after a", "after b"]


def test_a_listener_need_not_take_the_argument(site):
    site.install(
        "explainer-a",
        a="""
        from explainer_registry import hookimpl

        HEARD = []

        @hookimpl
        def explainer_before_explanation():
            HEARD.append("before")
        """,
    )
    site.discover(strict=True).notify_before(object())
    import explainer_a_a

    assert explainer_a_a.HEARD == ["before"]


@pytest.mark.parametrize(("event", "argument"), [("before", "request"), ("after", "explanation")])
def test_a_listener_that_raises_is_named(site, event: str, argument: str):
    source = f"""
        from explainer_registry import hookimpl

        @hookimpl
        def explainer_{event}_explanation({argument}):
            raise KeyError("wandb")
        """
    site.install("explainer-log", "0.4", log=source)
    registry = site.discover()
    with pytest.raises(RegistryError) as caught:
        getattr(registry, f"notify_{event}")(object())
    assert str(caught.value) == f"explainer-log 0.4 (log): explainer_{event}_explanation() raised KeyError: 'wandb'"
    assert type(caught.value.__cause__) is KeyError


def test_an_interrupt_in_a_listener_passes_through(site):
    site.install(
        "explainer-log",
        log="""
        from explainer_registry import hookimpl

        @hookimpl
        def explainer_before_explanation(request):
            raise KeyboardInterrupt
        """,
    )
    with pytest.raises(KeyboardInterrupt):
        site.discover().notify_before(object())


def test_the_hooks_can_be_called_as_pluggy_offers_them(site):
    site.install("explainer-a", a=LISTENER.format(name="a"))
    heard: list[str] = []
    site.discover().hook.explainer_before_explanation(request=heard)
    assert heard == ["before a"]
