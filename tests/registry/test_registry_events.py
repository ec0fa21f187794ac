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

@hookimpl
def explainer_after_job(outcome):
    outcome.append("end {name}")
"""


def test_every_plugin_hears_every_event(site):
    site.install("explainer-a", a=LISTENER.format(name="a"))
    site.install("explainer-b", b=LISTENER.format(name="b"))
    registry = site.discover(strict=True)
    heard: list[str] = []
    registry.notify_before_explanation(heard)
    registry.notify_after_explanation(heard)
    registry.notify_after_job(heard)
    assert heard == ["before a", "before b", "after a", "after b", "end a", "end b"]


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
    site.discover(strict=True).notify_before_explanation(object())
    import explainer_a_a

    assert explainer_a_a.HEARD == ["before"]


@pytest.mark.parametrize(
    ("event", "argument"),
    [("before_explanation", "request"), ("after_explanation", "explanation"), ("after_job", "outcome")],
)
def test_a_listener_that_raises_is_named(site, event: str, argument: str):
    source = f"""
        from explainer_registry import hookimpl

        @hookimpl
        def explainer_{event}({argument}):
            raise KeyError("wandb")
        """
    site.install("explainer-log", "0.4", log=source)
    registry = site.discover()
    with pytest.raises(RegistryError) as caught:
        getattr(registry, f"notify_{event}")(object())
    assert str(caught.value) == f"explainer-log 0.4 (log): explainer_{event}() raised KeyError: 'wandb'"
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
        site.discover().notify_before_explanation(object())


def test_the_hooks_can_be_called_as_pluggy_offers_them(site):
    site.install("explainer-a", a=LISTENER.format(name="a"))
    heard: list[str] = []
    site.discover().hook.explainer_before_explanation(request=heard)
    assert heard == ["before a"]
