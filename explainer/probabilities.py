"""What a model gives to classes, for many inputs: the numbers that softmax views draw."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from explainer_registry import ExplainerError

_SUM = 1e-3


class ProbabilityError(ExplainerError):
    """Logits, labels or class names that do not fit, or that are not what they are said to be."""


@dataclass(frozen=True, eq=False)
class Probabilities:
    """Logits of N inputs over K classes, with names.

    Args:
        logits: [N, K], any floating type; kept as float64 on the CPU.
        names: The K classes.
        inputs: What the N rows are of.
        labels: [N], the true classes; None where they are not known.

    Raises:
        ProbabilityError: The parts do not fit each other, there are fewer than two classes or no input, a value is NaN
            or infinite, or the rows look like probabilities.
    """

    logits: Tensor
    names: tuple[str, ...]
    inputs: tuple[str, ...]
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        if self.logits.dim() != 2:
            raise ProbabilityError(f"logits are [inputs, classes]; got shape {list(self.logits.shape)}")
        object.__setattr__(self, "logits", self.logits.detach().to("cpu", torch.float64))
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "inputs", tuple(self.inputs))
        count, classes = self.logits.shape
        if not self.names:
            raise ProbabilityError(f"the list of classes is empty; give {classes} names, one for each column")
        _fit(len(self.names), classes, "class name", "column of the logits", "columns")
        _fit(len(self.inputs), count, "input", "row of the logits", "rows")
        if classes < 2 or not count:
            raise ProbabilityError(
                f"logits of {count} inputs over {classes} classes; there have to be 1 and 2 at least"
            )
        if not bool(self.logits.isfinite().all()):
            row, column = (int(part) for part in (~self.logits.isfinite()).nonzero()[0])
            raise ProbabilityError(f"the logit of row {row}, column {column} is {float(self.logits[row, column])}")
        if are_probabilities(self.logits):
            raise ProbabilityError(
                "the rows lie in [0, 1] and sum to 1, so they are probabilities and not logits; say so with "
                "--probabilities, or Probabilities.of(rows, ...)"
            )
        self._check_labels()

    @classmethod
    def of(
        cls, rows: Tensor, names: Sequence[str], inputs: Sequence[str], labels: Tensor | None = None
    ) -> Probabilities:
        """Read probabilities; their logarithms are logits that give them back.

        Args:
            rows: [N, K], in [0, 1], each row summing to 1.
            names: The K classes.
            inputs: What the N rows are of.
            labels: [N], the true classes.

        Raises:
            ProbabilityError: The rows are no probabilities, or as for the class itself.
        """
        rows = rows.detach().to("cpu", torch.float64)
        if rows.dim() != 2 or not are_probabilities(rows):
            raise ProbabilityError(
                "probabilities are [inputs, classes], in [0, 1], and each row sums to 1; these do not, so give them as "
                "logits"
            )
        return cls(rows.clamp(min=torch.finfo(torch.float64).tiny).log(), tuple(names), tuple(inputs), labels)

    def softmax(self, temperature: float = 1.0) -> Tensor:
        """Give the probabilities [N, K] at a temperature.

        Args:
            temperature: Above 0. Below 1 the model sounds surer than it is, above 1 less sure.

        Raises:
            ProbabilityError: The temperature is not a positive number.
        """
        check_temperature(temperature)
        # Dividing what is left after the largest is taken away cannot overflow.
        return torch.softmax((self.logits - self.logits.amax(1, keepdim=True)) / temperature, dim=1)

    def _check_labels(self) -> None:
        if self.labels is None:
            return
        labels, (count, classes) = self.labels.detach().cpu(), self.logits.shape
        if labels.is_floating_point() or labels.shape != (count,):
            raise ProbabilityError(
                f"labels are {count} whole numbers, one for each row; got {str(labels.dtype).removeprefix('torch.')} "
                f"of shape {list(labels.shape)}"
            )
        wrong = ((labels < 0) | (labels >= classes)).nonzero()
        if len(wrong):
            row = int(wrong[0])
            raise ProbabilityError(f"label {int(labels[row])} of row {row} is no class: they are 0 to {classes - 1}")
        object.__setattr__(self, "labels", labels.long())


def check_temperature(temperature: float) -> None:
    """Refuse what is no temperature.

    Raises:
        ProbabilityError: It is not a positive, finite number.
    """
    if not 0 < temperature < float("inf"):
        raise ProbabilityError(f"a temperature is a positive number, such as 0.5 or 2; got {temperature}")


def are_probabilities(rows: Tensor) -> bool:
    """Say whether all rows [N, K] lie in [0, 1] and sum to 1."""
    within = bool((rows >= 0).all()) and bool((rows <= 1 + _SUM).all())
    return within and bool(((rows.double().sum(1) - 1).abs() < _SUM).all())


def entropy(probabilities: Tensor) -> Tensor:
    """Give the entropy [N] of probabilities [N, K] in bits: 0 where one class has all, log2 K where all are even."""
    return -torch.xlogy(probabilities, probabilities).sum(1) / math.log(2)


def _fit(given: int, wanted: int, noun: str, part: str, parts: str) -> None:
    if given != wanted:
        raise ProbabilityError(f"there are {given} {noun}s for {wanted} {parts}; give one {noun} for each {part}")
