"""Why did this vision model say that, and where in the picture?

``wrap`` makes any timm or CLIP model explainable; the explainer that it returns is called with pictures and
targets. Importing this package imports neither torch nor a model library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from explainer_registry import ExplainerError, MethodSpec, Schema, hookimpl

if TYPE_CHECKING:
    from explainer.explain import Explainer, wrap
    from explainer.explanation import Explanation

__all__ = ["Explainer", "ExplainerError", "Explanation", "MethodSpec", "Schema", "hookimpl", "wrap"]

_LAZY = {"Explainer": "explainer.explain", "Explanation": "explainer.explanation", "wrap": "explainer.explain"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'explainer' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
