"""Puts the figures of a benchmark, and the picture that goes with them, into docs/benchmark.md.

explainer bench --encoder stickers --methods all --out RESULTS
python docs/benchmark.py RESULTS
"""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import explainer
from explainer import views
from explainer.bench import dataset

HERE = Path(__file__).parent
SHOWN = ("similarity", "gem", "gradcam", "query_key", "self_self")
SCENE, PROMPTS = 87626, ("a cat", "a pizza", "a dog")
"""The first scene of the demonstration."""


def tables(results: Path) -> str:
    """Take the tables of recognition and of methods, and add the times."""
    text = (results / "scores.md").read_text(encoding="utf-8").partition("\n### ")[0]
    with (results / "times.csv").open(encoding="utf-8") as file:
        times = [f"{row['method']} {float(row['forwards']):.1f}" for row in csv.DictReader(file)]
    return f"{text.partition('## Recognition')[2].strip()}\n\nTime, in plain forwards of the model: {', '.join(times)}."


def draw(path: Path) -> None:
    """Draw one scene by several methods."""
    scene = dataset("stickers", scenes=SCENE + 1)[SCENE].picture
    enlarged = scene.resize((4 * scene.width, 4 * scene.height))
    asked = explainer.wrap("stickers")
    explanations = [asked(enlarged, list(PROMPTS), method=method) for method in SHOWN]
    views.grid(explanations, width=160).save(path, optimize=True)


def main(results: Path) -> None:
    """Fill the page."""
    page = HERE / "benchmark.md"
    begin, end = "<!-- scores: begin -->", "<!-- scores: end -->"
    text = page.read_text(encoding="utf-8")
    filled = re.sub(f"{begin}.*{end}", lambda _: f"{begin}\n{tables(results)}\n{end}", text, flags=re.DOTALL)
    page.write_text(filled, encoding="utf-8")
    draw(HERE / "benchmark.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
