"""Encoders whose output space is class logits."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from explainer.encoder import Encoder
from explainer.score import ScoreError
from explainer.target import Question, Target, TargetError, as_index, directions
from explainer_registry.errors import shown

_OFFERED = 5  # names offered where one is not known


class Classifier(Encoder):
    """An encoder with K classes: its output space is their logits.

    Args:
        classes: K names in the order of the logits, synonyms separated by commas; None where unknown.
        count: K.
        options: As for :class:`Encoder`.
    """

    def __init__(self, *args: Any, classes: Sequence[str] | None, count: int, **options: Any) -> None:
        super().__init__(*args, **options)
        if classes is not None and len(classes) != count:
            raise TargetError(f"{len(classes)} class names were given, but {self.name} has {count} classes")
        self.count = count
        self._classes = tuple(classes) if classes is not None else None
        self._by_name = _index(self._classes or ())

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the classes, synonyms separated by commas; None where unknown."""
        return self._classes

    @property
    def own_capabilities(self) -> frozenset[str]:
        """A classifier has classes."""
        return frozenset({"classes"})

    def name_of(self, index: int) -> str:
        """Return what a class is called: its first synonym, with its index where two classes share that."""
        if self._classes is None:
            return f"class {index}"
        name = self._classes[index].split(",")[0].strip()
        return name if len(self._by_name[name.lower()]) == 1 else f"{name} ({index})"

    def resolve(self, targets: Sequence[Any], templates: str | Sequence[str] | None = None) -> list[Target]:
        """Turn class indices, class names and directions over the logits into directions.

        Args:
            targets: Each an int, a str, or a tensor [K] or [T, K].
            templates: Must be None: a classifier reads no text.

        Raises:
            TargetError: A class is unknown or ambiguous, or a direction has another width.
        """
        if templates is not None:
            raise TargetError(f"{self.name} is a classifier and reads no text, so it takes no templates")
        return [direction for target in targets for direction in self._resolve(target)]

    def _resolve(self, target: Any) -> list[Target]:
        if isinstance(target, Tensor):
            return directions(target, self.count, f"a direction of {self.name} over its logits", self.device)
        if isinstance(target, str):
            return [Target(target.strip(), self._one_hot(self._named(target)))]
        index = self._index(target)
        return [Target(self.name_of(index), self._one_hot(index))]

    def logits(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return the class logits [B, T] that the directions [B, T, K] pick."""
        return torch.einsum("bk,btk->bt", outputs.float(), directions)

    def log_probs(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return log softmax over all K classes, of the classes that the directions pick.

        Raises:
            ScoreError: A direction is not a class, or there is only one class.
        """
        if self.count == 1:
            raise ScoreError(
                f"the probability of the only class of {self.name} is always 1; explain it with score='logit'"
            )
        if not bool(((directions == 1).sum(-1) == 1).all() & ((directions != 0).sum(-1) == 1).all()):
            raise ScoreError(
                "a direction over several classes has no probability; ask for classes, or explain it with score='logit'"
            )
        return torch.einsum("bk,btk->bt", torch.log_softmax(outputs.float(), dim=-1), directions)

    def default_question(self) -> Question:
        """Ask about the class of the highest logit of each picture."""
        return Question("top class", self.top_classes)

    def top_classes(self, outputs: Tensor) -> list[Target]:
        """Return the class of the highest logit of each picture, for logits [B, K]."""
        return [Target(self.name_of(int(i)), self._one_hot(int(i))) for i in outputs.argmax(dim=-1)]

    def evidence(self, columns: Tensor, directions: Tensor) -> Tensor:
        """Return each cell's contribution to the logits, without bias: [B, T, N]."""
        return self.needed_readout.contributions(columns, directions)

    def _index(self, target: Any) -> int:
        index = as_index(target)
        if index is None:
            raise TargetError(
                f"a target of {self.name} is a class index, a class name or a direction [{self.count}] over its "
                f"logits; got {shown(target)} ({type(target).__name__})"
            )
        if not 0 <= index < self.count:
            raise TargetError(
                f"class index {index} is out of range: {self.name} has {self.count} classes, 0 to {self.count - 1}"
            )
        return index

    def _one_hot(self, index: int) -> Tensor:
        direction = torch.zeros(self.count, device=self.device, dtype=torch.float32)
        direction[index] = 1
        return direction

    def _named(self, name: str) -> int:
        if self._classes is None:
            raise TargetError(
                f"the class names of {self.name} are not known, so '{name}' cannot be looked up; give a class index "
                f"(0 to {self.count - 1}), or the names with wrap(..., classes=[...])"
            )
        found = self._by_name.get(name.strip().lower(), [])
        if len(found) == 1:
            return found[0]
        if found:
            listed = "; ".join(f"{i}: {self._classes[i]}" for i in found)
            raise TargetError(f"'{name}' is the name of {len(found)} classes; give the index of one ({listed})")
        if name.strip().isdecimal():
            raise TargetError(f"{self.name} has no class named '{name}'; a class index is a number: {int(name)}")
        near = _nearest(name.strip(), self._classes)
        hint = f"nearest: {', '.join(near)}" if near else "no name is near"
        raise TargetError(f"{self.name} has no class named '{name}' ({hint}); `ex.encoder.class_names` lists all")


def _index(classes: Sequence[str]) -> dict[str, list[int]]:
    """Map every synonym, and every whole entry, to the classes that bear it."""
    index: dict[str, list[int]] = {}
    for number, entry in enumerate(classes):
        names = {part.strip().lower() for part in entry.split(",")} | {entry.strip().lower()}
        for name in names:
            index.setdefault(name, []).append(number)
    return index


def _nearest(name: str, classes: Sequence[str]) -> list[str]:
    """Find names that hold a word, or else look like it: "cat" is nearer to "tiger cat" than to "crate"."""
    names = {part.strip().lower(): part.strip() for entry in classes for part in entry.split(",")}
    word = re.compile(rf"\b{re.escape(name)}\b", re.IGNORECASE)
    holding = [spelling for spelling in names.values() if name and word.search(spelling)]
    alike = [names[near] for near in difflib.get_close_matches(name.lower(), names, n=_OFFERED, cutoff=0.6)]
    return (holding or alike)[:_OFFERED]
