"""Writes the tables of methods, encoders, metrics and datasets into README.md, from what the plugins declare.

python docs/tables.py
"""

from __future__ import annotations

import re
from pathlib import Path

from explainer_registry import Registry, registry

README = Path(__file__).parent.parent / "README.md"


def tables(found: Registry) -> dict[str, str]:
    """Write one Markdown table for each kind of plugin.

    Args:
        found: The plugins.

    Returns:
        The tables by the name of their markers.
    """
    methods = [
        f"| `{name}` | {', '.join(sorted(spec.needs))} | {spec.summary} | {spec.reference} |"
        for name, spec in found.methods.items()
    ]
    encoders = [f"| `{name}` | {spec.summary} |" for name, spec in found.encoders.items()]
    metrics = [f"| `{name}` | {spec.summary} | {spec.reference} |" for name, spec in found.metrics.items()]
    datasets = [f"| `{name}` | {spec.summary} |" for name, spec in found.datasets.items()]
    return {
        "methods": "\n".join(["| method | needs | summary | reference |", "|---|---|---|---|", *methods]),
        "encoders": "\n".join(["| encoder | takes |", "|---|---|", *encoders]),
        "metrics": "\n".join(["| metric | measures | reference |", "|---|---|---|", *metrics]),
        "datasets": "\n".join(["| dataset | holds |", "|---|---|", *datasets]),
    }


def filled(text: str, found: Registry) -> str:
    """Put the tables between their markers.

    Args:
        text: Markdown with the markers ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
        found: The plugins.

    Returns:
        The text with up-to-date tables.
    """
    for name, table in tables(found).items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, t=table, b=begin, e=end: f"{b}\n{t}\n{e}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text(encoding="utf-8"), registry()), encoding="utf-8")
