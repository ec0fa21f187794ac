"""What every metric has to keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from explainer.bench.sample import Truth
from explainer.testing.contract import Contract
from explainer_registry import registry
from explainer_registry.errors import describe

_ROUNDING = 1e-6


class MetricContract(Contract):
    """What every metric has to keep; subclass it and name the metric.

    Attributes:
        metric: As a user types it: a name, or a mapping with "name" and settings.
        bounds: The smallest and the largest value. The larger, the better.

    Example::

        class TestPointing(MetricContract):
            metric = "pointing"
    """

    kind = "metrics"
    noun = "metric"
    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)

    def test_values_are_within_bounds(self) -> None:
        """Whatever the map and the mask, also where the map is constant or the object one pixel."""
        low, high = self.bounds
        for what, truth in truths().items():
            for kind, heat in heats(truth).items():
                values = self.values(heat, truth, f"{kind} and {what}")
                if float(values.min()) < low - _ROUNDING or float(values.max()) > high + _ROUNDING:
                    raise self.fault(
                        f"gives {float(values.min()):.4g} to {float(values.max()):.4g} for {kind} and {what}, outside "
                        f"{low:g} to {high:g}",
                        f"set bounds = (smallest, largest) in {type(self).__name__}, if that is right",
                    )

    def test_a_perfect_map_is_the_best(self) -> None:
        """Heat that is the mask itself is worth at least as much as any other, and more than its opposite."""
        for what, truth in truths().items():
            worth = {kind: float(self.values(heat, truth, kind).max()) for kind, heat in heats(truth).items()}
            best = worth[_PERFECT]
            for kind, value in worth.items():
                if value > best + _ROUNDING or (kind == _OPPOSITE and value > best - _ROUNDING):
                    raise self.fault(
                        f"gives {value:.4g} for {kind} and {best:.4g} for {_PERFECT}, with {what}",
                        "let larger values be better; return the negative of an error",
                    )

    def test_only_valid_pixels_count(self) -> None:
        """Heat where the model never looked changes nothing."""
        truth = truths()["an object beside pixels that do not count"]
        for kind, heat in heats(truth).items():
            other = torch.where(truth.valid, heat, heat.max() + 5)
            if not torch.equal(self.values(heat, truth, kind), self.values(other, truth, kind)):
                raise self.fault(
                    f"changes with heat on pixels that do not count, for {kind}",
                    "look only at heat[truth.valid] and truth.mask[truth.valid]",
                )

    def test_the_unit_of_heat_does_not_count(self) -> None:
        """Methods measure in different units, so a thousandfold map is worth the same."""
        for what, truth in truths().items():
            for kind, heat in heats(truth).items():
                one, other = self.values(heat, truth, kind), self.values(heat * 1000, truth, kind)
                if (one - other).abs().max() > 1e-4:
                    raise self.fault(
                        f"changes when heat is multiplied by 1000, for {kind} and {what}",
                        "scale heat by its own range first, or look at its order only",
                    )

    def test_is_the_same_each_time(self) -> None:
        """The same map and mask have the same value, and are left as they are."""
        for truth in truths().values():
            for kind, heat in heats(truth).items():
                before = heat.clone(), truth.mask.clone(), truth.valid.clone()
                first, second = self.values(heat, truth, kind), self.values(heat, truth, kind)
                if not torch.equal(first, second):
                    raise self.fault(f"gives another value the second time for {kind}", "leave out what is random")
                if not all(map(torch.equal, before, (heat, truth.mask, truth.valid))):
                    raise self.fault(
                        f"changes the map or the mask it is given ({kind})", "work on a copy: heat.clone()"
                    )

    def values(self, heat: Tensor, truth: Truth, about: str) -> Tensor:
        """Measure a map.

        Args:
            heat: [H, W].
            truth: The object, and which pixels count.
            about: What they are, for messages.

        Returns:
            [n]; one value, or one for each setting.

        Raises:
            AssertionError: The metric raises, or returns something else.
        """
        try:
            values: object = registry().metrics.load(self.name)(self.selected.options, heat, truth)
        except Exception as error:  # a metric may raise anything
            raise self.fault(f"raises for {about} ({describe(error)})", "give every map and mask a value") from error
        if not isinstance(values, Tensor) or values.dim() > 1 or not values.is_floating_point() or not values.numel():
            got = f"shape {list(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
            raise self.fault(f"gives {got} for {about}", "return a floating-point scalar, or a row for each setting")
        if not values.isfinite().all():
            raise self.fault(f"gives NaN or infinity for {about}", "look for a division by 0: a range, or a count")
        return values.reshape(-1).double()


_PERFECT, _OPPOSITE = "the mask itself as heat", "the opposite of the mask as heat"


def truths() -> Mapping[str, Truth]:
    """Give masks that are ordinary, of one pixel, of all but one, and on a picture that counts in part."""
    everything = torch.ones(12, 18, dtype=torch.bool)
    made: dict[str, Truth] = {}
    boxes = {"an object": (2, 7, 3, 12), "an object of one pixel": (4, 5, 9, 10)}
    for what, (top, bottom, left, right) in boxes.items():
        mask = torch.zeros_like(everything)
        mask[top:bottom, left:right] = True
        made[what] = Truth(mask, everything)
    almost = everything.clone()
    almost[0, 0] = False
    made["an object that leaves one pixel"] = Truth(almost, everything)
    part = everything.clone()
    part[:, 14:] = False
    made["an object beside pixels that do not count"] = Truth(made["an object"].mask & part, part)
    return made


def heats(truth: Truth) -> Mapping[str, Tensor]:
    """Give maps [H, W] for a mask: right, wrong, of noise, and constant.

    Args:
        truth: The object.
    """
    noise = torch.randn(truth.mask.shape, generator=torch.Generator().manual_seed(0), device="cpu")
    return {
        _PERFECT: truth.mask.float(),
        _OPPOSITE: 1 - truth.mask.float(),
        "noise": noise,
        "a map of zeros": torch.zeros_like(noise),
        "a map of ones": torch.ones_like(noise),
        "a negative map": noise.abs().neg(),
    }
