"""Contracts of what is tried on models: which of them, and asking a method of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from explainer.explain import Explainer, wrap
from explainer.inspection import misfit
from explainer.testing.clean import snapshot
from explainer.testing.contract import Contract
from explainer.testing.running import TINY_MODELS, Models, put_to_use, questions, raw
from explainer_registry import ExplainerError
from explainer_registry.errors import describe

_EVERY: Any = object()

# Building and probing takes longer than all that is done with a tiny model, so what is built is kept with what it
# looked like, and made anew once it no longer looks so. By the function models() that names it, which classes share.
_built: dict[tuple[object, str, torch.dtype, bool], tuple[Explainer, dict[str, Any]]] = {}


class TriedOnModels(Contract):
    """A contract of something that is tried on models."""

    def models(self) -> Models:
        """Give the models that it is tried on: by name, a function of a dtype that gives a module or an explainer."""
        return TINY_MODELS

    def targets(self, explainer: Explainer) -> list[Any]:
        """Give targets that the model of an explainer knows, two or more where it can.

        Args:
            explainer: One of the models, wrapped.
        """
        return questions(explainer.encoder)

    def subjects(self, dtype: torch.dtype = torch.float32, *, in_use: bool = False) -> Mapping[str, Explainer]:
        """Wrap the models, once for all tests.

        Args:
            dtype: Of the weights.
            in_use: Whether they are in a state that their user wants back; see :func:`put_to_use`.
        """
        models, owner = self.models(), type(self).models
        for name, make in models.items():
            key = owner, name, dtype, in_use
            if key not in _built or snapshot(_built[key][0].encoder.model) != _built[key][1]:
                made = make(dtype)
                explainer = made if isinstance(made, Explainer) else wrap(made)
                if in_use:
                    put_to_use(explainer.encoder.model)
                _built[key] = explainer, snapshot(explainer.encoder.model)
        return {name: _built[owner, name, dtype, in_use][0] for name in models}


class AskedOfModels(TriedOnModels):
    """A contract of a method: which of the models it fits, and what it says of them."""

    def fitting(self, dtype: torch.dtype = torch.float32, *, in_use: bool = False) -> Mapping[str, Explainer]:
        """Choose the models that offer what the method needs.

        Args:
            dtype: Of the weights.
            in_use: As for :meth:`subjects`.

        Raises:
            AssertionError: There is none.
        """
        subjects = self.subjects(dtype, in_use=in_use)
        found = {name: ex for name, ex in subjects.items() if not misfit(self.name, ex.encoder)}
        if not found:
            reasons = "; ".join(
                f"{name}: {misfit(self.name, ex.encoder).partition(': ')[2].partition('; methods that fit')[0]}"
                for name, ex in subjects.items()
            )
            raise self.fault(
                f"fits none of the models that it is tried on ({reasons})",
                f"override {type(self).__name__}.models() to return {{name: function of a dtype that builds a model}}",
            )
        return found

    def raw(self, explainer: Explainer, pictures: Any, targets: Any = _EVERY) -> tuple[Any, tuple[int, int]]:
        """Run the method; see :func:`explainer.testing.running.raw`.

        Args:
            explainer: A model that it fits.
            pictures: As for an explainer.
            targets: As for an explainer; those of :meth:`targets` by default.
        """
        asked = self.targets(explainer) if targets is _EVERY else targets
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return raw(self.selected, explainer.encoder, pictures, asked)

    def maps(
        self,
        name: str,
        explainer: Explainer,
        pictures: Any,
        targets: Any = _EVERY,
        *,
        about: str = "",
        refusable: bool = False,
    ) -> Tensor:
        """Give the method's maps and check that they are maps.

        Args:
            name: Name of the model, for messages.
            explainer: A model that it fits.
            pictures: As for an explainer.
            targets: As for :meth:`raw`.
            about: What the pictures are, for messages.
            refusable: Whether an error of ours is an answer.

        Returns:
            [B, T, h, w], finite, detached.

        Raises:
            AssertionError: It raises, or returns something else.
            ExplainerError: It refuses, and may.
        """
        try:
            maps, expected = self.raw(explainer, pictures, targets)
        except ExplainerError as error:
            if refusable:
                raise
            raise self.fault(
                f"is said to fit {name} and refuses it{about} ({describe(error)})",
                "explain it, or declare in needs what it lacks",
            ) from error
        except Exception as error:  # a method may raise anything
            raise self.fault(
                f"raises on {name}{about} ({describe(error)})",
                "raise an ExplainerError that says what to do, or declare what is missing in needs",
            ) from error
        if not isinstance(maps, Tensor) or maps.dim() != 4 or maps.shape[:2] != expected or 0 in maps.shape:
            got = f"a tensor of shape {list(maps.shape)}" if isinstance(maps, Tensor) else f"a {type(maps).__name__}"
            raise self.fault(
                f"gives {name}{about} {got} for {expected[0]} pictures and {expected[1]} targets",
                f"return a tensor [{expected[0]}, {expected[1]}, h, w]",
            )
        if not maps.isfinite().all():
            raise self.fault(
                f"gives {name}{about} a map with NaN or infinity in it",
                "look for a division by a range, a norm or a count that is 0, and for the logarithm of 0",
            )
        return maps.detach()
