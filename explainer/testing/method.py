"""What every method has to keep."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from explainer.corners import changes, judge, pictures
from explainer.explain import Explainer
from explainer.inspection import MISSING
from explainer.testing.clean import UNDO, differences, snapshot, surroundings, told
from explainer.testing.models import noise, random_numbers
from explainer.testing.odd import normalisation, odd_pictures, ordinary_picture
from explainer.testing.running import TOLERANCE, Halt, difference, failing, stages, watched, without
from explainer.testing.tried import AskedOfModels
from explainer_registry import ExplainerError, MethodSpec, registry
from explainer_registry.errors import describe

_CORNER_ROUNDS = (3, 8)  # how often noise is tried before a map is taken to have no clear corners


class MethodContract(AskedOfModels):
    """What every method has to keep; subclass it and name the method.

    It is tried on every tiny model that it fits. Override :meth:`models` where it fits none of them, or where others
    are wanted, and :meth:`targets` where it takes other targets.

    Attributes:
        method: As a user types it: a name, or a mapping with "name" and settings.

    Example::

        class TestSimilarity(MethodContract):
            method = "similarity"
    """

    kind = "methods"
    noun = "method"

    def test_refuses_models_that_lack_what_it_needs(self) -> None:
        """A model without a needed capability is refused with a message, not by a crash deep inside."""
        needs = self._method_spec.needs
        for name, ex in self.subjects().items():
            lacking = needs - ex.encoder.capabilities
            for need in sorted(needs):
                deprived = ex if need in lacking else Explainer(without(ex.encoder, capability=need))
                reasons = {MISSING[each] for each in (lacking | {need})}
                try:
                    deprived(noise(1), self.targets(ex), method=self.selected)
                except ExplainerError as error:
                    if any(reason in str(error) for reason in reasons):
                        continue
                    raise self.fault(f"needs '{need}', and {name} without it only says: {error}", _REFUSE) from error
                except Exception as error:  # whatever it is, it is no message for a user
                    raise self.fault(f"crashes on {name} without '{need}' ({describe(error)})", _REFUSE) from error
                raise self.fault(f"needs '{need}', and explains {name} without it", _REFUSE)

    def test_needs_no_more_than_it_declares(self) -> None:
        """What it does not declare is not there on some model that it is said to fit."""
        for name, ex in self.fitting().items():
            self.maps(name, ex, noise(2))
            if "readout" in ex.encoder.capabilities - self._method_spec.needs:
                self.maps(f"{name} without a readout", Explainer(without(ex.encoder, capability="readout")), noise(2))

    def test_explains_the_top_class(self) -> None:
        """Where no target is given, the question is only settled once the model has answered."""
        for name, ex in self.fitting().items():
            if ex.encoder.default_question() is not None:
                self.maps(name, ex, noise(2), None)

    def test_maps_reach_the_user(self) -> None:
        """The whole way, from a picture to heat on its pixels, ends in an explanation."""
        picture = ordinary_picture()
        for name, ex in self.fitting().items():
            self.maps(name, ex, picture)
            try:
                heat = ex(picture, self.targets(ex), method=self.selected).heat()
            except Exception as error:  # settings or maps may be of a kind that no explanation can hold
                raise self.fault(
                    f"gives maps of {name} that make no explanation ({describe(error)})",
                    "return one map for each picture and target; targets.split(...) announces more",
                ) from error
            if heat.shape[-2:] != picture.size[::-1] or not heat.isfinite().all():
                raise self.fault(f"gives heat on {name} that does not cover the picture", "return finite maps")

    def test_leaves_no_trace(self) -> None:
        """The model and its surroundings are afterwards as they were before."""
        for name, ex in self.fitting(in_use=True).items():
            before = snapshot(ex.encoder.model), surroundings()
            self.maps(name, ex, noise(2))
            self._same(name, ex, before, "leaves a trace on")

    def test_leaves_no_trace_on_failure(self) -> None:
        """Nor is anything left where the model raises on the way, or the user presses Ctrl-C."""
        for name, ex in self.fitting(in_use=True).items():
            for layer in stages(ex.encoder):
                for error in (RuntimeError, Halt):
                    with failing(ex.encoder, layer, error):
                        before = snapshot(ex.encoder.model), surroundings()
                        with suppress(Exception, Halt):
                            self.raw(ex, noise(2))
                        self._same(name, ex, before, f"leaves a trace, when layer '{layer}' raises, on")

    def test_each_picture_is_on_its_own(self) -> None:
        """The map of a picture is the same alone and in a batch."""

        def alone(name: str, ex: Explainer) -> Tensor:
            return torch.cat([self.maps(name, ex, image[None]) for image in noise(3)])

        self._agree("gives a picture another map in a batch than alone", _NO_MIXING, alone)

    def test_each_target_is_on_its_own(self) -> None:
        """Several targets at once give the maps that they give one at a time, in the order that was asked."""

        def alone(name: str, ex: Explainer) -> Tensor:
            return torch.cat([self.maps(name, ex, noise(3), [target]) for target in self.targets(ex)], dim=1)

        self._agree("gives a target another map among others than alone", _NO_ORDER, alone)

    def test_is_the_same_each_time(self) -> None:
        """The same question has the same answer, whatever torch's own random numbers are."""

        def again(name: str, ex: Explainer) -> Tensor:
            with random_numbers(1234):
                self.maps(name, ex, noise(1, seed=1))
                return self.maps(name, ex, noise(3))

        self._agree("gives another map the second time", _NO_CHANCE, again)

    def test_in_double_precision(self) -> None:
        """A model in float64 gives the maps that it gives in float32."""
        for name, ex in self.fitting(torch.float64).items():
            double, single = self.maps(name, ex, noise(3).double()), self.maps(name, self.subjects()[name], noise(3))
            if (off := difference(single, double)) > TOLERANCE:
                raise self.fault(
                    f"gives {name} other maps in float32 than in float64 (they differ by {off:.0%} of their range)",
                    "make new tensors with the dtype of the images, and look for differences of large numbers",
                )

    def test_odd_pictures(self) -> None:
        """Constant, tiny and rectangular pictures have finite maps, or an error of ours says why not."""
        for name, ex in self.fitting().items():
            for what, picture in odd_pictures():
                try:
                    self.maps(name, ex, picture, about=f" for {what}", refusable=True)
                except ExplainerError:
                    continue

    def test_lies_on_the_picture(self) -> None:
        """Each corner of the picture changes the maps most in that corner, on squares and rectangles."""
        for name, ex in self.fitting().items():
            height, width = ex.encoder.preprocess.size
            for size in ((height, width), (height, 2 * width), (2 * height, width)):
                self._lies(name, ex, size)

    def test_is_not_normalised(self) -> None:
        """Maps are raw, so that those of different pictures and targets can be compared."""
        for name, ex in self.fitting().items():
            if what := normalisation(self.maps(name, ex, noise(4)).flatten(0, 1)):
                raise self.fault(
                    f"normalises its maps: on {name}, {what}",
                    "return them raw and signed; whoever looks at them chooses a scale with e.heat(normalize=...)",
                )

    def test_cost(self, record_property: Callable[[str, object], None]) -> None:
        """Not a test: what it costs is put into pytest's report (``--junit-xml``)."""
        for name, ex in self.fitting().items():
            copied, seen = watched(ex.encoder)
            start = time.perf_counter()
            self.maps(name, Explainer(copied), noise(1))
            record_property(f"{name}: seconds for a picture", round(time.perf_counter() - start, 4))
            record_property(f"{name}: runs of the model", len(seen))
            record_property(f"{name}: pictures through the model", sum(images for images, _ in seen))
            record_property(f"{name}: hooks", max((hooks for _, hooks in seen), default=0))

    @property
    def _method_spec(self) -> MethodSpec:
        return registry().methods.get(self.name)

    def _same(self, name: str, ex: Explainer, before: tuple[Any, Any], what: str) -> None:
        after = snapshot(ex.encoder.model), surroundings()
        changed = [text for old, new in zip(before, after, strict=True) for text in differences(old, new)]
        if changed:
            raise self.fault(f"{what} {name}: {told(changed)}", UNDO)

    def _agree(self, what: str, remedy: str, other: Callable[[str, Explainer], Tensor]) -> None:
        for name, ex in self.fitting().items():
            maps, others = self.maps(name, ex, noise(3)), other(name, ex)
            if maps.shape != others.shape:
                shapes = f"{list(maps.shape)} and {list(others.shape)}"
                raise self.fault(f"{what}: on {name} all maps have shapes {shapes}", remedy)
            if (off := difference(maps, others)) > TOLERANCE:
                raise self.fault(f"{what}: on {name} they differ by {off:.0%} of their range", remedy)

    def _lies(self, name: str, ex: Explainer, size: tuple[int, int]) -> None:
        least, most = _CORNER_ROUNDS
        rounds: list[Tensor] = []
        while len(rounds) < most:
            maps = self.maps(name, ex, pictures(size, len(rounds)), about=f" for an input of {size[0]} x {size[1]}")
            rounds.append(changes(maps))
            marks = judge(torch.stack(rounds)) if len(rounds) >= least else None
            if marks is not None and marks.verdict == "holds":
                return
            if marks is not None and marks.verdict == "fails":
                raise self.fault(
                    f"gives {name} a map that does not lie on the picture: for an input of {size[0]} x {size[1]}, "
                    f"{marks.reason}",
                    _GRID,
                )


_REFUSE = "put every capability it relies on into needs of its MethodSpec, and no other"
_NO_MIXING = "let no mean, maximum or norm run over the dimension of the batch"
_NO_ORDER = "compute map [:, t] from targets.directions[:, t] or scores[:, t] alone, in their order"
_NO_CHANCE = "draw from a torch.Generator of its own that a setting 'seed' starts, and keep nothing between calls"
_GRID = (
    "lay cells out as rows, then columns, on the grid of the layer they come from: "
    "cells_to_maps(grid.to_columns(...), grid), or grid.to_map(...)"
)
