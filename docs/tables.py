"""Writes what the plugins declare into README.md (tables) and docs/methods.md (needs, reference, settings).

python docs/tables.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from explainer_registry import Registry, registry

HERE = Path(__file__).parent
PAGES = (HERE.parent / "README.md", HERE / "methods.md")


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
    views = [f"| `{name}` | {spec.summary} |" for name, spec in found.views.items()]
    return {
        "methods": "\n".join(["| method | needs | summary | reference |", "|---|---|---|---|", *methods]),
        "encoders": "\n".join(["| encoder | takes |", "|---|---|", *encoders]),
        "metrics": "\n".join(["| metric | measures | reference |", "|---|---|---|", *metrics]),
        "datasets": "\n".join(["| dataset | holds |", "|---|---|", *datasets]),
        "views": "\n".join(["| view | draws |", "|---|---|", *views]),
    }


def of_methods(found: Registry) -> dict[str, str]:
    """Write what each method needs, where it was published, and its settings.

    Args:
        found: The plugins.

    Returns:
        Markdown by the name of its markers, "method NAME".
    """
    pages: dict[str, str] = {}
    for name, spec in found.methods.items():
        needs = ", ".join(sorted(spec.needs))
        settings = [
            f"| `{key}` | {_typed(field)} | `{json.dumps(field.get('default'))}` | {field.get('description', '')} |"
            for key, field in spec.schema.model_json_schema().get("properties", {}).items()
        ]
        table = ["", "| setting | type | default | what it does |", "|---|---|---|---|", *settings] if settings else []
        pages[f"method {name}"] = "\n".join([f"Needs {needs}. {spec.reference}.", *table])
    return pages


def _typed(field: dict[str, Any]) -> str:
    """Put the JSON schema of a setting into words."""
    if "anyOf" in field:
        return " or ".join(_typed(option) for option in field["anyOf"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = str(field.get("type", "any"))
    items = field.get("items") or next(iter(field.get("prefixItems", [])), None)
    return f"list of {_typed(items)}" if kind == "array" and items else kind


def filled(text: str, found: Registry) -> str:
    """Put the tables between their markers.

    Args:
        text: Markdown with the markers ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.
        found: The plugins.

    Returns:
        The text with up-to-date tables.
    """
    for name, table in {**tables(found), **of_methods(found)}.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        text = re.sub(f"{begin}.*?{end}", lambda _, t=table, b=begin, e=end: f"{b}\n{t}\n{e}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), registry()), encoding="utf-8")
