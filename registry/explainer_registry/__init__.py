"""Names to plugins: what is installed, what it is called, how it is configured. Never imports torch."""

from __future__ import annotations

from explainer_registry.catalogue import Catalogue
from explainer_registry.choice import Choice, Selected
from explainer_registry.current import registry, use
from explainer_registry.errors import ExplainerError, RegistryError
from explainer_registry.hookspecs import hookimpl, hookspec
from explainer_registry.manager import Registry
from explainer_registry.plugin import PluginInfo, Problem
from explainer_registry.schema import Schema, field_errors
from explainer_registry.specs import (
    CAPABILITIES,
    SUBJECTS,
    DatasetSpec,
    EncoderSpec,
    MethodSpec,
    MetricSpec,
    ScoreSpec,
    Spec,
    ViewSpec,
)

__all__ = [
    "CAPABILITIES",
    "SUBJECTS",
    "Catalogue",
    "Choice",
    "DatasetSpec",
    "EncoderSpec",
    "ExplainerError",
    "MethodSpec",
    "MetricSpec",
    "PluginInfo",
    "Problem",
    "Registry",
    "RegistryError",
    "Schema",
    "ScoreSpec",
    "Selected",
    "Spec",
    "ViewSpec",
    "field_errors",
    "hookimpl",
    "hookspec",
    "registry",
    "use",
]
