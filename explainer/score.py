"""The scalar that is explained, and that gradients flow from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from explainer_registry import ExplainerError


class ScoreError(ExplainerError):
    """A score that cannot be computed for these targets, or has the wrong shape."""


@dataclass(frozen=True)
class Answer:
    """What a model said, as a score reads it.

    Attributes:
        outputs: [B, D], class logits of a classifier, or the picture's embedding.
        logits: [B, T], the raw score of each target: its class logit; its cosine similarity with the picture, in
            [-1, 1]; or how far the embedding reaches along it, where the model has no classes and reads no text.
        log_probs: Gives [B, T], the log-probability of each target: among all classes of a classifier, or
            among the prompts that were asked.
    """

    outputs: Tensor
    logits: Tensor
    log_probs: Callable[[], Tensor]


Score = Callable[[Answer], Tensor]
"""Takes an answer and gives [B, T], one scalar for each picture and target."""


def evaluate(score: Score, answer: Answer, name: str) -> Tensor:
    """Compute a score and check what it gave.

    Args:
        score: The score.
        answer: What the model said.
        name: Name of the score, for messages.

    Returns:
        [B, T]; each row depends on its own picture only.

    Raises:
        ScoreError: The score gave something else than one scalar for each picture and target.
    """
    values: Any = score(answer)
    expected = tuple(answer.logits.shape)
    if not isinstance(values, Tensor):
        raise ScoreError(
            f"score '{name}' gave a {type(values).__name__}; it has to give a tensor of shape {list(expected)}, "
            "one scalar for each picture and target"
        )
    if expected[1] == 1 and values.shape == (expected[0],):
        values = values.unsqueeze(1)
    if tuple(values.shape) != expected:
        raise ScoreError(
            f"score '{name}' gave a tensor of shape {list(values.shape)}; expected {list(expected)}, one scalar for "
            "each picture and target (the target's raw scores are answer.logits)"
        )
    return values
