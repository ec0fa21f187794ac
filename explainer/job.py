"""Carrying out a run: many pictures, each on its own."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from explainer.config import Run, find_pictures
from explainer_registry import ExplainerError, registry

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from explainer.explain import Explainer
    from explainer.explanation import Explanation


class JobError(ExplainerError):
    """A run that cannot be carried out."""


@dataclass(frozen=True)
class Drawing:
    """One map, drawn.

    Attributes:
        method: Name of the method.
        view: Name of the view.
        label: What the map is about.
        score: The explained score; None where the method needs none.
        file: The drawing.
    """

    method: str
    view: str
    label: str
    score: float | None
    file: Path


@dataclass(frozen=True)
class Result:
    """What became of one picture.

    Attributes:
        picture: Its path.
        folder: Where everything about it is written.
        failure: Why there is nothing; empty where all went well.
        drawings: Each map.
        grids: All of them on one sheet, or on one for each method where the methods' maps differ in number.
        arrays: The maps with their provenance, a file for each method.
        warnings: What the reader of the maps must know, one sentence each.
    """

    picture: Path
    folder: Path
    failure: str = ""
    drawings: tuple[Drawing, ...] = ()
    grids: tuple[Path, ...] = ()
    arrays: tuple[Path, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What plugins are told after a run.

    Attributes:
        run: What was to be done.
        out: The folder that everything was written to.
        results: One for each picture, in order.
    """

    run: Run
    out: Path
    results: tuple[Result, ...]


class Job:
    """A run that is ready to start: the pictures are found, and the model and the question fit each other.

    Args:
        run: What to do.
        folder: What the paths in it are relative to.
        explainer: The model, where it is loaded already.

    Attributes:
        pictures: The paths, in order.
        explainer: The model.
        out: The folder that everything is written to.

    Raises:
        ExplainerError: Something asked for does not exist, or does not fit the model.
    """

    def __init__(self, run: Run, folder: Path = Path(), explainer: Explainer | None = None) -> None:
        from explainer.explain import wrap

        self.run = run
        self.pictures = find_pictures(run.pictures, folder)
        self.out = folder / run.out.expanduser()
        if self.out.exists() and not self.out.is_dir():
            raise JobError(f"'{self.out}' is a file; the results need a folder")
        _load_code(run)
        self.explainer = explainer or wrap(run.model)
        self._check()
        names = Names()
        self._folders = [self.out / names.unique(path.stem) for path in self.pictures]
        self._rehearsed = False

    def results(self) -> Iterator[Result]:
        """Explain the pictures, in batches.

        Yields:
            One result for each picture, in order. What it names is written by then. After the last one, plugins
            hear of all.

        Raises:
            ExplainerError: The request does not work whatever the picture, nothing can be written, or a plugin that
                hears of the end raised.
        """
        size, results = self.run.batch, list[Result]()
        for start in range(0, len(self.pictures), size):
            for result in self._batch(range(start, min(start + size, len(self.pictures)))):
                results.append(result)
                yield result
        registry().notify_after_job(Outcome(self.run, self.out, tuple(results)))

    def _check(self) -> None:
        """Find what does not fit before any picture is processed."""
        from explainer.inspection import misfit
        from explainer.target import parse

        encoder = self.explainer.encoder
        for method in self.run.methods or ():
            if reason := misfit(method.name, encoder):
                raise JobError(reason)
        parse(self.run.targets, encoder, self.run.templates)

    def _batch(self, places: range) -> Iterator[Result]:
        from explainer.pictures import PictureError, open_picture

        opened: dict[int, Image] = {}
        failures: dict[int, str] = {}
        for place in places:
            try:
                opened[place] = open_picture(self.pictures[place])
            except PictureError as error:
                failures[place] = str(error)
        explained = self._explained(opened, failures)
        for place in places:
            if place in explained:
                yield self._written(place, explained[place])
            else:
                yield Result(self.pictures[place], self._folders[place], failures[place])

    def _explained(self, opened: dict[int, Image], failures: dict[int, str]) -> dict[int, tuple[Explanation, ...]]:
        """Explain pictures at once, and one by one where that fails; say in `failures` what went wrong."""
        if not opened:
            return {}
        try:
            return dict(zip(opened, self._explain(list(opened.values())), strict=True))
        except ExplainerError:
            self._rehearse()
        explained: dict[int, tuple[Explanation, ...]] = {}
        for place, picture in opened.items():
            try:
                (explained[place],) = self._explain([picture])
            except ExplainerError as error:
                failures[place] = f"the picture '{self.pictures[place]}' could not be explained: {error}"
        return explained

    def _explain(self, pictures: list[Image] | Tensor) -> list[tuple[Explanation, ...]]:
        """Explain pictures by every method; one tuple for each picture."""
        made = [
            self.explainer(
                pictures, self.run.targets, method=method, score=self.run.score, templates=self.run.templates
            )
            for method in self.run.methods or (None,)
        ]
        return [tuple(explanation[b] for explanation in made) for b in range(len(pictures))]

    def _rehearse(self) -> None:
        """Raise what is wrong with the request itself; what remains is the fault of a picture."""
        import torch

        if self._rehearsed:
            return
        height, width = self.explainer.encoder.preprocess.size
        noise = torch.rand(1, 3, height, width, generator=torch.Generator().manual_seed(0))
        self._explain(noise)
        self._rehearsed = True

    def _written(self, place: int, parts: tuple[Explanation, ...]) -> Result:
        folder = self._folders[place]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return self._write(self.pictures[place], folder, parts)
        except OSError as error:
            raise JobError(f"cannot write to '{folder}': {error.strerror or error}") from error

    def _write(self, picture: Path, folder: Path, parts: tuple[Explanation, ...]) -> Result:
        from explainer.drawn import draw, save
        from explainer.views import grid

        names, methods = Names(), Names()
        named = [(methods.unique(slug(part.method)), part) for part in parts]
        grids: list[Path] = []
        for name, rows in _sheets(named):
            grids.append(folder / f"{names.unique(name)}.png")
            grid(rows).save(grids[-1])
        drawings: list[Drawing] = []
        arrays: list[Path] = []
        for name, part in named:
            arrays += part.save(folder / f"{name}.npz")
            for t, label in enumerate(part.labels[0]):
                score = None if part.scores is None else float(part.scores[0, t])
                for view in self.run.views:
                    # An overlay is what is looked for under the plain name.
                    suffix = "" if view.name == "overlay" else f"-{slug(view.name)}"
                    stem = names.unique(f"{slug(label)}-{name}{suffix}")
                    for file in save(draw(view, part.one(t)), folder, stem):
                        drawings.append(Drawing(name, view.name, label, score, file))
        warnings = dict.fromkeys(text for part in parts for text in _warnings(part, picture))
        return Result(picture, folder, "", tuple(drawings), tuple(grids), tuple(arrays), tuple(warnings))


def _load_code(run: Run) -> None:
    """Find code that cannot be imported before a model is loaded."""
    for method in run.methods or ():
        registry().methods.load(method.name)
    for view in run.views:
        registry().views.load(view.name)


class Names:
    """Gives out names that no file system takes for each other."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """Return the name, with a number behind it where it is taken."""
        candidate, number = name, 1
        while _folded(candidate) in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._taken.add(_folded(candidate))
        return candidate


def slug(label: str) -> str:
    """Turn a label into a part of a file name: words joined by hyphens, 60 characters at most."""
    return re.sub(r"[^\w-]+", "-", label).strip("-")[:60] or "target"


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _sheets(named: Sequence[tuple[str, Explanation]]) -> list[tuple[str, list[Explanation]]]:
    """Put explanations that have the same targets on one sheet; name the sheets."""
    groups: dict[tuple[str, ...], list[tuple[str, Explanation]]] = {}
    for name, part in named:
        groups.setdefault(part.names, []).append((name, part))
    if len(groups) == 1:
        return [("grid", [part for _, part in named])]
    return [("-".join(["grid", *(name for name, _ in rows)]), [part for _, part in rows]) for rows in groups.values()]


def _warnings(part: Explanation, picture: Path) -> list[str]:
    """List the warnings, with the picture's name in those that are about it."""
    general = part.provenance.warnings
    own = [text.removeprefix("picture 0, ") for text in part.warnings if text not in general]
    return [*general, *(f"{picture}, {part.method}, {text}" for text in own)]
