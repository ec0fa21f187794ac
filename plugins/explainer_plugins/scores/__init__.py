"""The scores that come with the package."""

from __future__ import annotations

from collections.abc import Iterable

from explainer_registry import Schema, ScoreSpec, hookimpl


class Logit(Schema):
    """The raw score: the class logit, the cosine with a prompt, or the reach of an embedding along a direction."""


class LogProb(Schema):
    """The log-probability: among all classes, or among the prompts that are asked."""


class Prob(Schema):
    """The probability. Its gradient vanishes where the model is sure; prefer log_prob."""


@hookimpl
def explainer_scores() -> Iterable[ScoreSpec]:
    """Declare the scores."""
    module = "explainer_plugins.scores.scores"
    return [
        ScoreSpec(
            name="logit",
            schema=Logit,
            factory=f"{module}:logit",
            summary="Class logit, cosine, or reach of an embedding.",
        ),
        ScoreSpec(name="log_prob", schema=LogProb, factory=f"{module}:log_prob", summary="Log-probability."),
        ScoreSpec(name="prob", schema=Prob, factory=f"{module}:prob", summary="Probability."),
    ]
