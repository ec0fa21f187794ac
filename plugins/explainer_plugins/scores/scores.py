"""Scores: from what a model said to one scalar for each picture and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from explainer.score import Answer

if TYPE_CHECKING:
    from explainer_plugins.scores import Logit, LogProb, Prob


def logit(config: Logit, answer: Answer) -> Tensor:
    """Return the raw score [B, T]."""
    return answer.logits


def log_prob(config: LogProb, answer: Answer) -> Tensor:
    """Return the log-probability [B, T]."""
    return answer.log_probs()


def prob(config: Prob, answer: Answer) -> Tensor:
    """Return the probability [B, T], in [0, 1]."""
    return answer.log_probs().exp()
