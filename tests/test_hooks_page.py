"""Every hook stands on the page of hooks with its exact signature, and the plugin on it does what the page says."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import explainer
from explainer.bench import dataset
from explainer_registry import Registry, hookspecs, use

PAGE = (Path(__file__).parents[1] / "docs" / "hooks.md").read_text(encoding="utf-8")


def test_every_hook_stands_on_the_page_with_its_signature() -> None:
    hooks = [value for name, value in vars(hookspecs).items() if name.startswith("explainer_")]
    signatures = {f"{hook.__name__}({', '.join(inspect.signature(hook).parameters)})" for hook in hooks}
    assert set(re.findall(r"^\| `(explainer_\w+\([^)]*\))`", PAGE, re.MULTILINE)) == signatures


def test_the_notebook_of_the_page_notes_each_explanation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```python\n(import csv.*?)```", PAGE, re.DOTALL)
    (tmp_path / "explainer_notebook.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    own = Registry.discover()
    points = [
        EntryPoint(info.entry_point, f"explainer_plugins.{info.entry_point}", "explainer") for info in own.plugins
    ]
    notebook = EntryPoint("notebook", "explainer_notebook", "explainer")
    ex = explainer.wrap("stickers")
    scene = next(iter(dataset("stickers", scenes=1)))
    with use(Registry.discover(entry_points=[*points, notebook], strict=True)):
        ex(scene.picture, ["a cat", "a dog"], method="gem")
        ex(scene.picture, "a cat", method="gradcam")
    weights = ex.encoder.weights
    assert Path("explanations.csv").read_text().splitlines() == [
        f'stickers,"{weights}",gem,logit,a cat,a dog',
        f'stickers,"{weights}",gradcam,logit,a cat',
    ]
