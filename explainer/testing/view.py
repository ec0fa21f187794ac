"""What every view has to keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from explainer.explain import wrap
from explainer.explanation import Explanation
from explainer.testing.contract import Contract
from explainer.testing.models import noise, tiny_cnn
from explainer.testing.odd import odd_pictures, ordinary_picture
from explainer.views import draw
from explainer_registry.errors import describe


class ViewContract(Contract):
    """What every view has to keep; subclass it and name the view.

    Attributes:
        view: As a user types it: a name, or a mapping with "name" and settings.

    Example::

        class TestHeat(ViewContract):
            view = "heat"
    """

    kind = "views"
    noun = "view"

    def test_draws_every_map(self) -> None:
        """Signed, positive, negative and constant maps are drawn, on pictures of any shape and on none."""
        pictures = [(what, picture) for what, picture in odd_pictures() if isinstance(picture, Image.Image)]
        for what, picture in (("noise", ordinary_picture()), ("a tensor", noise(1, 32, 48)), *pictures):
            for kind, explanation in explanations(picture).items():
                self.drawn(explanation, f"{kind} of {what}")

    def test_shows_where_the_heat_is(self) -> None:
        """Heat on the left and heat on the right are two drawings."""
        left = explanations(ordinary_picture())["heat on the left"]
        right = replace(left, maps=left.maps.flip(-1))
        if self.drawn(left, "heat on the left") == self.drawn(right, "heat on the right"):
            raise self.fault(
                "draws the same wherever the heat is", "draw explanation.heat(normalize=...)[0, 0], laid on the picture"
            )

    def test_the_unit_of_heat_does_not_count(self) -> None:
        """Methods measure in different units, so a map of a thousandth of the values looks the same."""
        for kind, explanation in explanations(ordinary_picture()).items():
            smaller = replace(explanation, maps=explanation.maps / 1024)
            if self.drawn(explanation, kind) != self.drawn(smaller, kind):
                raise self.fault(
                    f"draws {kind} otherwise where all values are smaller",
                    "scale the heat by its own range: explanation.heat(normalize='minmax'), or 'symmetric'",
                )

    def test_leaves_the_explanation_as_it_was(self) -> None:
        """Drawing changes neither the map nor the picture, and a second drawing is the same."""
        for kind, explanation in explanations(ordinary_picture()).items():
            before, picture = explanation.maps.clone(), ordinary_picture()
            first, second = self.drawn(explanation, kind), self.drawn(explanation, kind)
            if not torch.equal(before, explanation.maps):
                raise self.fault(f"changes the map that it draws ({kind})", "work on a copy: maps.clone()")
            if explanation.pictures[0] != picture:
                raise self.fault(f"draws into the picture itself ({kind})", "work on a copy: picture.copy()")
            if first != second:
                raise self.fault(f"draws {kind} otherwise the second time", "leave out what is random")

    def drawn(self, explanation: Explanation, about: str) -> Image.Image:
        """Draw a map.

        Args:
            explanation: Of one picture and one target.
            about: What it is, for messages.

        Returns:
            The drawing, RGB.

        Raises:
            AssertionError: The view raises, or gives something else than a picture.
        """
        try:
            return draw(self.selected, explanation)
        except Exception as error:  # a view may raise anything
            raise self.fault(f"cannot draw {about} ({describe(error)})", "give every map a picture") from error


def explanations(picture: Any) -> Mapping[str, Explanation]:
    """Give explanations of one picture and one target with maps of every kind.

    Args:
        picture: As for a call of an explainer.
    """
    found = wrap(tiny_cnn())(picture, [0], method="gradcam")
    rows = noise(1, 6)[:, :1]
    return {kind: replace(found, maps=maps) for kind, maps in _maps(rows).items()}


def _maps(signed: Tensor) -> Mapping[str, Tensor]:
    left = torch.zeros_like(signed)
    left[..., :2] = 1
    return {
        "a map of two signs": signed,
        "a map without negative values": signed.abs(),
        "a map of negative values": -signed.abs() - 1,
        "a map of zeros": torch.zeros_like(signed),
        "a map of ones": torch.ones_like(signed),
        "heat on the left": left,
    }
