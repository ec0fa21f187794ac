"""Encoders whose embedding is shared with text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from explainer.companion import TextCompanion
from explainer.embedder import Embedder
from explainer.score import ScoreError
from explainer.target import Question, Target, TargetError, directions
from explainer_registry.errors import shown


class JointEmbedding(Embedder):
    """A picture tower whose embedding is compared with texts by their cosine.

    Args:
        companion: The text tower; None where it was not given (then only direction tensors are targets).
        scale: Gives the factor on the cosine inside the model's own probabilities.
        bias: Gives what is added to it; None for models that compare prompts by softmax. Models with a bias
            (SigLIP) give each prompt a probability of its own, by the logistic function.
        options: As for :class:`Encoder`.
    """

    def __init__(
        self,
        *args: Any,
        companion: TextCompanion | None,
        scale: Tensor,
        bias: Tensor | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.companion = companion
        self._scale = scale
        self._bias = bias

    @property
    def own_capabilities(self) -> frozenset[str]:
        """A text tower is a companion."""
        return frozenset({"companion"}) if self.companion is not None else frozenset()

    def resolve(self, targets: Sequence[Any], templates: str | Sequence[str] | None = None) -> list[Target]:
        """Turn prompts, groups of prompts and directions in the embedding into directions.

        Args:
            targets: Each a str; a sequence of str, averaged into one target; or a tensor [D] or [T, D].
            templates: As for :meth:`TextCompanion.directions`.

        Raises:
            TargetError: A target is of another kind, or a direction has another width.
        """
        groups = [self._group(target) for target in targets if not isinstance(target, Tensor)]
        if groups and self.companion is None:
            raise TargetError(
                f"{self.name} was wrapped without a tokenizer, so it cannot read '{groups[0][0]}'; "
                "use wrap(model, tokenizer=...), or give a direction tensor"
            )
        if templates is not None and not groups:
            raise TargetError("templates are for prompts, and only directions were asked; leave the templates out")
        rows = iter(self.companion.directions(groups, templates) if self.companion and groups else ())
        resolved: list[Target] = []
        for target in targets:
            if isinstance(target, Tensor):
                what = f"a direction of {self.name} in its embedding"
                resolved += directions(target, self.width, what, self.device)
            else:
                resolved.append(Target(" / ".join(self._group(target)), next(rows)))
        return resolved

    def _group(self, target: Any) -> list[str]:
        if isinstance(target, int):
            raise TargetError(
                f"{self.name} has no classes, so the class index {target} means nothing to it; "
                "give a prompt, such as 'a bus'"
            )
        given = _several(target)
        group = [prompt for prompt in given if isinstance(prompt, str) and prompt.strip()]
        if not group or len(group) != len(given):
            raise TargetError(
                f"a target of {self.name} is a prompt, a sequence of prompts or a direction [{self.width}]; "
                f"got {shown(target)} ({type(target).__name__})"
            )
        return group

    def default_question(self) -> Question | None:
        """Ask nothing: what a CLIP is asked comes in words."""
        return None

    def logits(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return the cosine similarity [B, T] of the pictures with the directions."""
        return torch.einsum("bd,btd->bt", F.normalize(outputs.float(), dim=-1), F.normalize(directions.float(), dim=-1))

    def log_probs(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return the log-probability [B, T] of each prompt, as the model was trained to give it.

        Raises:
            ScoreError: A softmax over a single prompt is always 1.
        """
        cosines = self.logits(outputs, directions)
        logits = cosines * self._scale.detach().exp().float()
        if self._bias is not None:
            return F.logsigmoid(logits + self._bias.detach().float())
        if logits.shape[1] == 1:
            raise ScoreError(
                "the probability of a single prompt is always 1, because it is shared out among the prompts that "
                "are asked; ask for at least two, or explain the similarity itself with score='logit'"
            )
        return torch.log_softmax(logits, dim=1)


def _several(target: Any) -> Sequence[Any]:
    if isinstance(target, Sequence) and not isinstance(target, str):
        return cast("Sequence[Any]", target)
    return [target]
