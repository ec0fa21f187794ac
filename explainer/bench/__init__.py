"""Measuring maps against true masks: `run(BenchRun(encoders=["stickers"]))`.

Importing this package imports neither torch nor a model library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from explainer.bench.sample import Dataset, Sample, Truth

if TYPE_CHECKING:
    from explainer.bench.config import BenchRun, make_bench
    from explainer.bench.results import Results
    from explainer.bench.running import dataset, run

__all__ = ["BenchRun", "Dataset", "Results", "Sample", "Truth", "dataset", "make_bench", "run"]

_LAZY = {
    "BenchRun": "explainer.bench.config",
    "Results": "explainer.bench.results",
    "dataset": "explainer.bench.running",
    "make_bench": "explainer.bench.config",
    "run": "explainer.bench.running",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'explainer.bench' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
