"""What every view has to keep."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from explainer.drawn import Piece, draw
from explainer.testing.contract import Contract
from explainer.testing.subjects import SUBJECTS, Examples, same
from explainer_registry import ViewSpec
from explainer_registry.errors import describe


class ViewContract(Contract):
    """What every view has to keep; subclass it and name the view.

    It is tried on examples of what its declaration says that it draws.

    Attributes:
        view: As a user types it: a name, or a mapping with "name" and settings.

    Example::

        class TestHeat(ViewContract):
            view = "heat"
    """

    kind = "views"
    noun = "view"

    def examples(self) -> Examples:
        """Make what is drawn."""
        return SUBJECTS[cast("ViewSpec", self.spec).draws]()

    def test_draws_everything(self) -> None:
        """Whatever there is to draw has a drawing: odd pictures and constant maps, one input, hundreds of classes."""
        for what, subject in self.examples().all.items():
            self.drawn(subject, what)

    def test_shows_a_difference(self) -> None:
        """What is different does not look the same."""
        examples = self.examples()
        one, other, difference = examples.differing
        if self.drawn(one, difference) == self.drawn(other, difference):
            raise self.fault(f"draws the same whatever it is: {difference}", examples.remedy)

    def test_the_unit_of_heat_does_not_count(self) -> None:
        """Methods measure in different units, so a map of a thousandth of the values looks the same."""
        if cast("ViewSpec", self.spec).draws != "explanation":
            return
        for what, explanation in self.examples().all.items():
            smaller = replace(explanation, maps=explanation.maps / 1024)
            if self.drawn(explanation, what) != self.drawn(smaller, what):
                raise self.fault(
                    f"draws {what} otherwise where all values are smaller",
                    "scale the heat by its own range: explanation.heat(normalize='minmax'), or 'symmetric'",
                )

    def test_leaves_what_it_draws_as_it_was(self) -> None:
        """Drawing changes nothing but the drawing, and a second drawing is the same."""
        for what, subject in self.examples().all.items():
            before = deepcopy(subject)
            first, second = self.drawn(subject, what), self.drawn(subject, what)
            if not same(before, subject):
                raise self.fault(f"changes what it draws ({what})", "work on a copy: tensor.clone(), picture.copy()")
            if first != second:
                raise self.fault(f"draws {what} otherwise the second time", "leave out what is random")

    def drawn(self, subject: Any, about: str) -> list[Piece]:
        """Draw something.

        Args:
            subject: One of the examples.
            about: What it is, for messages.

        Raises:
            AssertionError: The view raises, or gives something that cannot be written.
        """
        try:
            return draw(self.selected, subject)
        except Exception as error:  # a view may raise anything
            raise self.fault(f"cannot draw {about} ({describe(error)})", "draw everything, or say why not") from error
