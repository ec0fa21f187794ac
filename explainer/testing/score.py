"""What every score has to keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from explainer.explain import Explainer
from explainer.score import Answer, ScoreError
from explainer.testing.models import noise
from explainer.testing.running import TOLERANCE, difference, output
from explainer.testing.tried import TriedOnModels
from explainer_registry import registry
from explainer_registry.errors import describe


class ScoreContract(TriedOnModels):
    """What every score has to keep; subclass it and name the score.

    It is computed from what the tiny models say of three pictures and up to three targets. A model that it refuses
    with a ``ScoreError`` is passed over; override :meth:`models` where it refuses all of them.

    Attributes:
        score: As a user types it: a name, or a mapping with "name" and settings.

    Example::

        class TestLogit(ScoreContract):
            score = "logit"
    """

    kind = "scores"
    noun = "score"

    def test_one_number_for_each_picture_and_target(self) -> None:
        """The score is a finite floating-point tensor [B, T]."""
        for name, (ex, outputs) in self.answered().items():
            values, expected = self.values(name, ex, outputs), [len(outputs), len(self.targets(ex))]
            if not isinstance(values, Tensor) or list(values.shape) != expected or not values.is_floating_point():
                got = f"a tensor of shape {list(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
                raise self.fault(
                    f"gives {got} for {expected[0]} pictures and {expected[1]} targets of {name}",
                    f"return a floating-point tensor {expected}, as answer.logits is",
                )
            if not values.isfinite().all():
                raise self.fault(f"gives NaN or infinity on {name}", "look for divisions by 0 and the logarithm of 0")

    def test_gradients_flow(self) -> None:
        """The score can be differentiated by what the model said, and does not stand still."""
        for name, (ex, outputs) in self.answered().items():
            leaf = outputs.clone().requires_grad_()
            values = self.values(name, ex, leaf)
            if not values.requires_grad:
                raise self.fault(f"cannot be differentiated on {name}", f"{_GRAPH}")
            (slope,) = torch.autograd.grad(values.sum(), leaf)
            if not slope.isfinite().all() or not slope.any():
                raise self.fault(f"has a gradient on {name} that is all zero, or not finite", _GRAPH)

    def test_each_picture_is_on_its_own(self) -> None:
        """The score of a picture is the same alone and in a batch."""
        for name, (ex, outputs) in self.answered().items():
            alone = torch.cat([self.values(name, ex, row[None]) for row in outputs])
            if (off := difference(alone, self.values(name, ex, outputs))) > TOLERANCE:
                raise self.fault(
                    f"gives a picture another value in a batch than alone: on {name} they differ by {off:.0%} of their "
                    "range",
                    "let nothing run over the first dimension, which is that of the pictures",
                )

    def test_is_the_same_each_time(self) -> None:
        """The same answer has the same score."""
        for name, (ex, outputs) in self.answered().items():
            if not torch.equal(self.values(name, ex, outputs), self.values(name, ex, outputs)):
                raise self.fault(f"gives another value the second time on {name}", "leave out what is random")

    def answered(self) -> Mapping[str, tuple[Explainer, Tensor]]:
        """Run the models that the score takes: by name, the model and its outputs [3, D].

        Raises:
            AssertionError: It takes none.
        """
        refused: list[str] = []
        found: dict[str, tuple[Explainer, Tensor]] = {}
        for name, ex in self.subjects().items():
            outputs = output(ex.encoder, noise(3, *ex.encoder.preprocess.size))
            try:
                self.values(name, ex, outputs)
            except ScoreError as error:
                refused.append(f"{name}: {error}")
            else:
                found[name] = ex, outputs
        if not found:
            raise self.fault(
                f"refuses all of the models that it is tried on ({'; '.join(refused)})",
                f"override {type(self).__name__}.models() to return {{name: function of a dtype that builds a model}}",
            )
        return found

    def values(self, name: str, explainer: Explainer, outputs: Tensor) -> Any:
        """Compute the score.

        Args:
            name: Name of the model, for messages.
            explainer: The model.
            outputs: [B, D], what it said.

        Raises:
            AssertionError: The score raises.
            ScoreError: It refuses these targets.
        """
        encoder = explainer.encoder
        rows = torch.stack([target.direction for target in encoder.resolve(self.targets(explainer))])
        directions = rows.expand(len(outputs), *rows.shape)
        logits = encoder.logits(outputs, directions)
        answer = Answer(outputs, logits, lambda: encoder.log_probs(outputs, directions))
        try:
            return registry().scores.load(self.name)(self.selected.options, answer)
        except ScoreError:
            raise
        except Exception as error:  # a score may raise anything
            raise self.fault(
                f"raises on {name} ({describe(error)})", "raise a ScoreError that says what to do instead"
            ) from error


_GRAPH = "compute it from answer.logits or answer.log_probs() by torch's own functions, without .detach() or rounding"
