"""What every encoder has to keep."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from explainer.explain import Explainer, wrap
from explainer.inspection import default_method
from explainer.testing.clean import UNDO, differences, snapshot, surroundings, told
from explainer.testing.contract import Contract
from explainer.testing.models import noise
from explainer.testing.odd import ordinary_picture
from explainer.testing.running import TOLERANCE, Halt, difference, failing, output, put_to_use, questions, stages
from explainer_registry import ExplainerError
from explainer_registry.errors import describe, shown

_wrapped: WeakKeyDictionary[type, Explainer] = WeakKeyDictionary()


class EncoderContract(Contract):
    """What every encoder has to keep; subclass it and give it a model.

    Attributes:
        encoder: Name of the encoder, where a module is given that another one would take.
        options: What else ``explainer.wrap`` is called with, such as a tokenizer.

    Example::

        class TestTorch(EncoderContract):
            def model(self):
                return tiny_cnn()
    """

    kind = "encoders"
    noun = "encoder"
    encoder: ClassVar[str | None] = None
    options: ClassVar[Mapping[str, Any]] = {}

    def model(self) -> str | nn.Module:
        """Give what ``explainer.wrap`` is called with: a name or a module, small, and without a download."""
        raise AssertionError(
            f"{type(self).__name__} tests no encoder: let its model() return a name or a module that it wraps"
        )

    def targets(self) -> list[Any]:
        """Give targets that the model knows, two or more where it can."""
        return questions(self.explainer.encoder)

    @property
    def explainer(self) -> Explainer:
        """The wrapped model, one for all tests of the class."""
        if type(self) not in _wrapped:
            _wrapped[type(self)] = self.wrapped(self.model())
        return _wrapped[type(self)]

    def wrapped(self, model: str | nn.Module) -> Explainer:
        """Wrap the model.

        Args:
            model: From :meth:`model`.
        """
        return wrap(model, **({"encoder": self.encoder} if self.encoder else {}), **self.options)

    def given(self) -> Any:
        """Give what a user types for it."""
        model = self.model()
        if isinstance(model, str):
            name, colon, rest = model.partition(":")
            return {"name": name, **({"model": rest} if colon else {}), **self.options}
        name = self.encoder or self.explainer.encoder.name.partition(":")[0]
        return {"name": name, "model": model, **self.options}

    def test_settings_survive_a_file(self) -> None:
        """Every spelling means the same; what holds a module or a tokenizer can be given in Python only."""
        if isinstance(self.model(), str) and not self.options:
            super().test_settings_survive_a_file()

    def test_says_what_it_is(self) -> None:
        """Its name begins with that of the encoder, as a user types it, and it says where its weights come from."""
        encoder = self.explainer.encoder
        if encoder.name != self.name and not encoder.name.startswith(f"{self.name}:"):
            raise self.fault(f"calls itself '{encoder.name}'", f"let name be '{self.name}', or '{self.name}:MODEL'")
        if not encoder.weights.strip():
            raise self.fault("does not say where its weights come from", "set weights, such as 'as given'")

    def test_lies_on_the_picture(self) -> None:
        """Each corner of the picture changes the last map most in that corner, on squares and rectangles."""
        proof = self.explainer.prove()
        if not proof.holds:
            raise self.fault(
                f"has maps that are not shown to lie on the picture:\n{proof}\n",
                "name the layer and its layout with layer= and layout= of Encoder, or give random weights ordinary "
                "values with explainer.testing.perturb(model)",
            )

    def test_leaves_no_trace(self) -> None:
        """Wrapping, looking and explaining leave the model as it was."""
        images, ex = self._noise(2), self._in_use()
        before = snapshot(ex.encoder.model), surroundings()
        str(ex.inspect())
        ex.features(images)
        self._explain(ex, images)
        self._same(ex.encoder.model, before, "looking and explaining")

    def test_leaves_no_trace_on_failure(self) -> None:
        """Nor is anything left where the model raises on the way, or the user presses Ctrl-C."""
        images, ex = self._noise(2), self._in_use()
        for layer in stages(ex.encoder):
            for error in (RuntimeError, Halt):
                with failing(ex.encoder, layer, error):
                    before = snapshot(ex.encoder.model), surroundings()
                    with suppress(Exception, Halt):
                        output(ex.encoder, images)
                    self._same(ex.encoder.model, before, f"a failure of layer '{layer}'")

    def test_each_picture_is_on_its_own(self) -> None:
        """What is said of a picture is the same alone and in a batch."""
        images, encoder = self._noise(3), self.explainer.encoder
        together = output(encoder, images)
        if together.dim() != 2 or len(together) != 3 or not together.isfinite().all():
            raise self.fault(
                f"gives an output of shape {list(together.shape)}, or one with NaN, for 3 pictures",
                "let call() return [B, D], finite",
            )
        if (off := difference(torch.cat([output(encoder, image[None]) for image in images]), together)) > TOLERANCE:
            raise self.fault(
                f"says something else of a picture in a batch than alone: outputs differ by {off:.0%} of their range",
                "let nothing run over the dimension of the batch",
            )

    def test_targets_become_directions(self) -> None:
        """Several targets at once are what they are one at a time, and have one score each."""
        encoder, asked = self.explainer.encoder, self.targets()
        together = encoder.resolve(asked)
        alone = [direction for target in asked for direction in encoder.resolve([target])]
        names = [[target.name for target in found] for found in (together, alone)]
        if names[0] != names[1]:
            raise self.fault(f"resolves several targets as {names[0]}, and one at a time as {names[1]}", _ONE_EACH)
        rows = torch.stack([target.direction for target in together])
        if (off := difference(torch.stack([target.direction for target in alone]), rows)) > TOLERANCE:
            raise self.fault(f"gives a target another direction among others than alone ({off:.0%})", _ONE_EACH)
        outputs = output(encoder, self._noise(3))
        logits = encoder.logits(outputs, rows.expand(3, *rows.shape))
        if list(logits.shape) != [3, len(rows)] or not logits.isfinite().all():
            raise self.fault(
                f"gives logits of shape {list(logits.shape)}, or with NaN, for 3 pictures and {len(rows)} targets",
                "let logits() return [B, T], finite",
            )

    def test_unknown_targets_are_refused(self) -> None:
        """What is no target gets an error that a user can read."""
        width = output(self.explainer.encoder, self._noise(1)).shape[1]
        unknown = (object(), 10**9, torch.zeros(width + 1), torch.full((width,), torch.nan), "", None)
        for target in unknown:
            try:
                self.explainer.encoder.resolve([target])
            except ExplainerError:
                continue
            except Exception as error:  # whatever it is, it is no message for a user
                raise self.fault(f"crashes at the target {shown(target)} ({describe(error)})", _REFUSE) from error
            raise self.fault(f"takes {shown(target)} for a target", _REFUSE)

    def test_explains_a_picture(self) -> None:
        """A picture has a map by the method that is taken by default."""
        self._explain(self.explainer, ordinary_picture())

    def _in_use(self) -> Explainer:
        """Wrap a model that its user has left in a state of its own."""
        model = self.model()
        if isinstance(model, str):
            ex = self.wrapped(model)
            put_to_use(ex.encoder.model)
            return ex
        put_to_use(model)
        before = snapshot(model), surroundings()
        ex = self.wrapped(model)
        self._same(model, before, "wrapping")
        return ex

    def _explain(self, ex: Explainer, pictures: Any) -> None:
        if default_method(ex.encoder) is None:
            raise self.fault(
                f"fits no method by default:\n{ex.inspect()}\n", "let it offer features, and a readout or gradients"
            )
        try:
            ex(pictures, self.targets())
        except Exception as error:  # whatever it is, it is the encoder that is tried here
            raise self.fault(f"cannot be explained ({describe(error)})", "see what test_ of it fails first") from error

    def _same(self, model: nn.Module, before: tuple[Any, Any], after: str) -> None:
        now = snapshot(model), surroundings()
        changed = [text for old, new in zip(before, now, strict=True) for text in differences(old, new)]
        if changed:
            raise self.fault(f"leaves a trace on the model after {after}: {told(changed)}", UNDO)

    def _noise(self, batch: int) -> Tensor:
        return noise(batch, *self.explainer.encoder.preprocess.size)


_ONE_EACH = "let resolve() treat each target on its own, in the order that was asked"
_REFUSE = "raise a TargetError from resolve() that says which targets there are"
