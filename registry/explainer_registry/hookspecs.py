"""The hooks that a plugin may implement.

Naming rule: ``explainer_<plural noun>`` declares things, ``explainer_before_<noun>`` and
``explainer_after_<noun>`` are events. A declaration returns specs and does nothing else. An event passes
one context object, so that what it carries can grow without changing a signature. No result depends on
the order in which plugins are called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pluggy

from explainer_registry.specs import DatasetSpec, EncoderSpec, MethodSpec, MetricSpec, ScoreSpec, ViewSpec

PROJECT: Final = "explainer"
"""Project name of the markers, and the entry-point group of plugins."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def explainer_methods() -> Iterable[MethodSpec]:
    """Declare methods of explanation.

    Returns:
        The declarations, as a list or by ``yield``.

    Example::

        @hookimpl
        def explainer_methods():
            return [
                MethodSpec(
                    name="gem",
                    schema=GEM,
                    factory="explainer_gem._gem:run",
                    needs=frozenset({"attention", "readout"}),
                    summary="Self-self attention over the last blocks.",
                    reference="Bousselham et al. 2024, arXiv:2312.00878",
                )
            ]
    """
    return ()


@hookspec
def explainer_encoders() -> Iterable[EncoderSpec]:
    """Declare encoders: ways to make a model explainable.

    Returns:
        The declarations, as a list or by ``yield``.
    """
    return ()


@hookspec
def explainer_scores() -> Iterable[ScoreSpec]:
    """Declare scores: scalars that gradients flow from.

    Returns:
        The declarations, as a list or by ``yield``.
    """
    return ()


@hookspec
def explainer_metrics() -> Iterable[MetricSpec]:
    """Declare metrics: measurements of a map against a true mask.

    Returns:
        The declarations, as a list or by ``yield``.
    """
    return ()


@hookspec
def explainer_datasets() -> Iterable[DatasetSpec]:
    """Declare datasets: pictures with true masks.

    Returns:
        The declarations, as a list or by ``yield``.
    """
    return ()


@hookspec
def explainer_views() -> Iterable[ViewSpec]:
    """Declare views: drawings of a map.

    Returns:
        The declarations, as a list or by ``yield``.
    """
    return ()


@hookspec
def explainer_before_explanation(request: object) -> None:
    """Hear that an explanation is about to be computed.

    Args:
        request: What was asked for.
    """


@hookspec
def explainer_after_explanation(explanation: object) -> None:
    """Hear that an explanation has been computed.

    Args:
        explanation: The result.
    """


@hookspec
def explainer_after_job(outcome: object) -> None:
    """Hear that a run over many pictures has ended, and everything is written.

    Args:
        outcome: The run, and what became of each picture.
    """
