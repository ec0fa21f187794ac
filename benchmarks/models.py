"""Wraps every architecture of timm and every configuration of open_clip, and writes what came out into docs/models.md.

python benchmarks/models.py                 all of them, two processes: about half an hour
python benchmarks/models.py 'vit_*' RN50    some of them, printed and not written

Small models run for real, with random weights: their default method gives a map, and the layout proof is tried.
Large ones are built without data, so that only shapes are known of them.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import logging
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import open_clip
import timm
import torch
from torch import Tensor, nn
from transformers import AutoConfig, M2M100Config, MT5Config, RobertaConfig, XLMRobertaConfig

import explainer
from explainer.inspection import default_method
from explainer.testing import perturb
from explainer_plugins.open_clip.encoder import preprocess_of

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
REAL = {"timm": 15e6, "open_clip": 160e6}
"""The most parameters of a model that is run for real."""
PIXELS = 260 * 260
"""The most pixels of its input."""
COLUMNS = ("model", "input", "last map", "grid", "gradients at", "dense attention", "readout", "methods", "tried")
Row = dict[str, str]

# What the hub says of text towers that are not open_clip's own; the sweep needs no network.
TEXT_TOWERS: dict[str, Callable[[], Any]] = {
    "roberta-base": RobertaConfig,
    "xlm-roberta-base": XLMRobertaConfig,
    "xlm-roberta-large": lambda: XLMRobertaConfig(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16),
    "google/mt5-base": lambda: MT5Config(d_model=768, num_layers=12),
    "google/mt5-xl": lambda: MT5Config(d_model=2048, num_layers=24),
    "facebook/nllb-200-distilled-600M": lambda: M2M100Config(d_model=1024, encoder_layers=12),
    "facebook/nllb-200-distilled-1.3B": lambda: M2M100Config(d_model=1024, encoder_layers=24),
}


def names() -> list[str]:
    """Name every architecture, as ``wrap`` takes it."""
    return [f"timm:{name}" for name in timm.list_models()] + [f"open_clip:{name}" for name in open_clip.list_models()]


def row_of(name: str) -> Row:
    """Wrap one model and say what came out.

    Args:
        name: "timm:NAME" or "open_clip:NAME".

    Returns:
        One value for each of ``COLUMNS``; where it was refused, the reason under "tried".
    """
    row = dict.fromkeys(COLUMNS, "") | {"model": name}
    try:
        return row | _measured(name)
    except explainer.ExplainerError as error:
        return row | {"tried": f"refused: {error}"}


def _measured(name: str) -> Row:
    kind, _, architecture = name.partition(":")
    build = _timm if kind == "timm" else _open_clip
    with torch.device("meta"):
        model = build(architecture)
    real = sum(p.numel() for p in model.parameters()) <= REAL[kind] and _pixels(model) <= PIXELS
    if real:
        torch.manual_seed(0)
        model = build(architecture)
        perturb(model)
    options: dict[str, Any] = {} if kind == "timm" else {"tokenizer": Words(model)}
    ex = explainer.wrap(model.eval(), **options)
    found = ex.inspect()
    if found.layer is None:
        return {"tried": "refused: no layer gives a map of the picture"}
    grid = found.layer.grid
    fits = [fit.name for fit in found.methods if fit.fits]
    return {
        "input": f"{found.size[0]} x {found.size[1]}",
        "last map": f"`{found.layer.layer}`",
        "grid": f"{grid.height} x {grid.width} {grid.layout}" + (f" + {grid.prefix}" if grid.prefix else ""),
        "gradients at": f"`{found.gradient.layer}`" if found.gradient and found.gradient != found.layer else "",
        "dense attention": f"{len(found.blocks)} of {len(found.blocks) + found.other_attentions}",
        "readout": found.readout if real or found.readout == "none" else "by shapes",
        "methods": ", ".join(fits),
        "tried": _tried(ex) if real else "shapes",
    }


def _pixels(model: Any) -> int:
    if hasattr(model, "visual"):
        height, width = preprocess_of(model.visual, None).size
    else:
        _, height, width = model.pretrained_cfg["input_size"]
    return height * width


def _tried(ex: explainer.Explainer) -> str:
    """Explain noise by the default method, and try the layout proof."""
    height, width = ex.encoder.preprocess.size
    images = torch.randn(1, 3, height, width, generator=torch.Generator().manual_seed(0))
    prompts = ["a bus"] if "companion" in ex.encoder.capabilities else None
    # Random weights often speak against the class, which Grad-CAM would cut off.
    signed = {"relu": False} if default_method(ex.encoder) == "gradcam" else {}
    explanation = ex(images, prompts, **signed)
    geometry = ex.encoder.geometry((height, width))
    cells = {(c.grid.height, c.grid.width) for c in (geometry.last, geometry.gradient) if c is not None}
    shape = tuple(explanation.maps.shape[-2:])
    if shape not in cells:
        return f"WRONG: a map of {shape[0]} x {shape[1]}"
    if not bool(explanation.maps.isfinite().all()) or not float(explanation.maps.std()) > 0:
        return f"WRONG: {explanation.method} gave a map without values"
    return f"map by {explanation.method}; proof {ex.prove((height, width)).verdict}"


def _timm(architecture: str) -> nn.Module:
    return timm.create_model(architecture, pretrained=False)


def _open_clip(architecture: str) -> nn.Module:
    here = torch.empty(0).device  # where the surrounding context makes tensors
    logging.disable(logging.WARNING)
    with mock.patch.object(AutoConfig, "from_pretrained", lambda name, **_: TEXT_TOWERS[name]()):
        return open_clip.create_model(architecture, load_weights=False, pretrained_hf=False, device=here)


class Words:
    """A tokenizer that needs no vocabulary: every word is a number."""

    def __init__(self, clip: Any) -> None:
        text = clip.text if hasattr(clip, "text") else clip
        self._length = int(getattr(clip, "context_length", None) or getattr(text, "context_length", 77))
        embedding = getattr(text, "token_embedding", None) or text.transformer.get_input_embeddings()
        self._count = int(embedding.num_embeddings)

    def __call__(self, texts: Iterable[str], context_length: int | None = None) -> Tensor:
        """Give [T, length] tokens, each text ended by the greatest token."""
        rows = torch.zeros(len(list(texts)), context_length or self._length, dtype=torch.long)
        for row, text in zip(rows, texts, strict=True):
            words = text.split()[: len(row) - 1]
            row[: len(words)] = torch.tensor([1 + sum(word.encode()) % (self._count - 2) for word in words])
            row[len(words)] = self._count - 1
        return rows


def page(rows: Iterable[Row]) -> str:
    """Write the page.

    Args:
        rows: Of all models.
    """
    rows = list(rows)
    refused = [row for row in rows if row["tried"].startswith("refused")]
    real = [row for row in rows if row["tried"].startswith("map")]
    lines = [
        "# Models",
        "",
        f"Written by `python benchmarks/models.py` with timm {timm.__version__}, open_clip {open_clip.__version__} and "
        f"torch {torch.__version__.partition('+')[0]}.",
        "",
        f"Of {len(rows)} models {len(rows) - len(refused)} wrap in one call and {len(refused)} are refused with a "
        f"reason. {len(real)} ran for real, with random weights: their default method gave a map on the grid of the "
        "layer, and the layout proof was tried (change one corner of the picture, and the map must change most in "
        "that corner). The others were built without data: *shapes*.",
        "",
        "Grid: rows x columns, the layout of the layer's output, and the number of prefix tokens. Dense attention: "
        "attentions over one grid of patch tokens, of all.",
    ]
    for kind, title in (("timm", "timm"), ("open_clip", "open_clip")):
        lines += ["", f"## {title}", "", f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
        own = (row for row in rows if row["model"].startswith(f"{kind}:"))
        lines += [f"| {' | '.join(row[column].replace('|', '/') for column in COLUMNS)} |" for row in own]
    return "\n".join(lines) + "\n"


def read_page(text: str) -> dict[str, Row]:
    """Read the rows of the page back, by model.

    Args:
        text: From :func:`page`.
    """
    lines = (line.removeprefix("| ").removesuffix(" |").split(" | ") for line in text.splitlines())
    return {row[0]: dict(zip(COLUMNS, row, strict=True)) for row in lines if row[0].startswith(("timm:", "open_clip:"))}


def _work(name: str) -> Row:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        return row_of(name)
    except Exception as error:  # one model must not end the others
        return dict.fromkeys(COLUMNS, "") | {"model": name, "tried": f"BROKEN: {type(error).__name__}: {error}"}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="names, with or without 'timm:' or 'open_clip:'; * is a wildcard")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--keep", type=Path, help="file of rows that are done, one JSON object a line; goes on there")
    given = parser.parse_args()
    wanted = [n for n in names() if not given.patterns or any(_matches(n, pattern) for pattern in given.patterns)]
    done: dict[str, Row] = {}
    if given.keep and given.keep.exists():
        done = {row["model"]: row for row in map(json.loads, given.keep.read_text().splitlines())}
    rest = [name for name in wanted if name not in done]
    with multiprocessing.get_context("spawn").Pool(given.jobs, maxtasksperchild=300) as pool:
        for number, row in enumerate(pool.imap_unordered(_work, rest), start=1):
            done[row["model"]] = row
            if given.keep:
                with given.keep.open("a") as kept:
                    kept.write(json.dumps(row) + os.linesep)
            print(f"{number} of {len(rest)}", *row.values(), sep=" | ", file=sys.stderr)
    if not given.patterns:
        PAGE.write_text(page(done[name] for name in wanted), encoding="utf-8")


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name.partition(":")[2], pattern)


if __name__ == "__main__":
    main()
