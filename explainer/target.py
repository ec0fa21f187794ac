"""What is asked of each picture."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from explainer.score import Answer, Score, evaluate
from explainer_registry import ExplainerError

if TYPE_CHECKING:
    from explainer.encoder import Encoder


class TargetError(ExplainerError):
    """A target that the encoder does not know, or that means several things."""


@dataclass(frozen=True)
class Target:
    """One question.

    Attributes:
        name: What it is called in the result.
        direction: [D] in the encoder's output space: one-hot for a class, an embedding for a prompt.
    """

    name: str
    direction: Tensor


@dataclass(frozen=True)
class Question:
    """A question whose direction is only known once the model has answered, another for each picture.

    Attributes:
        name: What it is called in the result: "top class".
        settle: Takes outputs [B, D] to B targets.
    """

    name: str
    settle: Callable[[Tensor], list[Target]]


class Targets:
    """The T questions of one call, asked of every picture.

    An object of this class lives for one call. It learns from :meth:`scores` what the model said, which
    settles a :class:`Question` and fills `values`.

    Attributes:
        names: What the targets are called.
        values: [B, T], the scores, once the model has answered; None before.
        score_name: Name of the score.
        notes: What a method adds for whoever reads its maps, one sentence each.
    """

    def __init__(
        self, encoder: Encoder, targets: Sequence[Target] | Question, batch: int, score: Score, score_name: str
    ) -> None:
        self._question = targets if isinstance(targets, Question) else None
        asked = [targets] if isinstance(targets, Question) else targets
        self.names: tuple[str, ...] = _unique([one.name for one in asked])
        self.values: Tensor | None = None
        self.score_name = score_name
        self.notes: list[str] = []
        self._encoder = encoder
        self._batch = batch
        self._score = score
        self._labels: tuple[tuple[str, ...], ...] = (self.names,) * batch
        self._directions: Tensor | None = None
        if not isinstance(targets, Question):
            stacked = torch.stack([target.direction for target in targets])
            self._directions = stacked.expand(batch, *stacked.shape)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def pending(self) -> bool:
        """Whether the directions are only known once the model has answered."""
        return self._directions is None

    @property
    def directions(self) -> Tensor:
        """[B, T, D], in the encoder's output space.

        Raises:
            TargetError: They are only known once the model has answered, and it has not yet.
        """
        if self._directions is None:
            raise TargetError(
                f"the direction of '{self.names[0]}' is only known once the model has answered: call "
                "targets.scores(outputs) with the encoder's output before reading targets.directions"
            )
        return self._directions

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """B x T, what each map is about: the name of the class where the question is "top class"."""
        return self._labels

    def scores(self, outputs: Tensor) -> Tensor:
        """Turn the encoder's output into the scalars that are explained.

        Args:
            outputs: [B, D] from :meth:`Encoder.forward`.

        Returns:
            [B, T], differentiable where `outputs` is.

        Raises:
            ScoreError: The score does not fit these targets.
        """
        if self._question is not None and self._directions is None:
            self._settle(self._question, outputs)
        directions = self.directions
        answer = Answer(
            outputs=outputs,
            logits=self._encoder.logits(outputs, directions),
            log_probs=lambda: self._encoder.log_probs(outputs, directions),
        )
        scores = evaluate(self._score, answer, self.score_name)
        self.values = scores.detach().float()
        return scores

    def split(self, parts: Sequence[str]) -> None:
        """Give every target several maps, one for each named part; the method returns [B, T * parts, h, w].

        Args:
            parts: Names of the parts, such as "head 0".
        """
        self.names = tuple(f"{name}, {part}" for name in self.names for part in parts)
        self._labels = tuple(tuple(f"{label}, {part}" for label in row for part in parts) for row in self._labels)
        if self.values is not None:
            self.values = self.values.repeat_interleave(len(parts), dim=1)

    def _settle(self, question: Question, outputs: Tensor) -> None:
        found = question.settle(outputs)
        self._directions = torch.stack([target.direction for target in found]).unsqueeze(1)
        self._labels = tuple((target.name,) for target in found)


def _unique(names: Sequence[str]) -> tuple[str, ...]:
    """Number repeated names, so that each can be asked for."""
    result: list[str] = []
    for name in names:
        spellings = (name if number == 1 else f"{name} ({number})" for number in count(1))
        result.append(next(spelling for spelling in spellings if spelling not in result))
    return tuple(result)


def directions(given: Tensor, width: int, what: str, device: torch.device) -> list[Target]:
    """Read a direction tensor as one target per row.

    Args:
        given: [width] or [T, width].
        width: Dimensions of the output space.
        what: What the tensor is, for messages.
        device: Where the directions are wanted.

    Raises:
        TargetError: The tensor has another shape, holds integers, or holds NaN or infinity.
    """
    if not given.is_floating_point():
        raise TargetError(
            f"{what} is a floating-point tensor; got {str(given.dtype).removeprefix('torch.')}; give class indices as "
            "a list of ints (tensor.tolist()), and a direction as tensor.float()"
        )
    if given.dim() not in (1, 2) or given.shape[-1] != width or not len(given):
        raise TargetError(f"{what} is [{width}], or [T, {width}] for several; got shape {list(given.shape)}")
    if not bool(given.isfinite().all()):
        raise TargetError(f"{what} holds NaN or infinity")
    rows = given.detach().to(device, torch.float32).reshape(-1, width)
    return [Target(f"direction {index}", row) for index, row in enumerate(rows)]


def as_index(target: Any) -> int | None:
    """Read a target as a number, of Python or numpy; None where it is none."""
    try:
        return None if isinstance(target, bool) else operator.index(target)
    except TypeError:
        return None


def parse(given: Any, encoder: Encoder, templates: str | Sequence[str] | None) -> list[Target] | Question:
    """Read targets in any of their spellings.

    Args:
        given: None for what the encoder asks of its own accord; one target; or a sequence of them. A target is
            the index of a class or channel, a class name, a prompt, a sequence of prompts that are averaged, or
            a direction tensor [D]; a tensor [T, D] is T targets.
        encoder: Whose targets they are.
        templates: Prompt templates, for encoders that read text.

    Returns:
        The targets; a question where the model's answer settles them.

    Raises:
        TargetError: The encoder does not know a target.
    """
    if given is None:
        question = encoder.default_question()
        if question is None:
            raise TargetError(
                f"{encoder.name} has no classes, so there is no top class to explain; "
                "say what to look for, such as ex(picture, ['a bus'])"
            )
        encoder.resolve((), templates)  # which refuses templates, as with any other target
        return question
    entries = _entries(given)
    if not entries:
        raise TargetError("the list of targets is empty; give at least one")
    return encoder.resolve(entries, templates)


def _entries(given: Any) -> list[Any]:
    if isinstance(given, (str, bytes, Tensor, Mapping, Set)):
        return [given]
    try:
        return list(given)
    except TypeError:  # a single number, of Python or numpy
        return [given]
