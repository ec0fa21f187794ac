"""What a benchmark found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from explainer.bench.statistics import Figure
from explainer_registry import ExplainerError


class BenchError(ExplainerError):
    """A benchmark that cannot be carried out, or a dataset or metric that breaks its promises."""


@dataclass(frozen=True)
class MethodResult:
    """What became of one method, or of a control.

    Attributes:
        name: The method, with those of its settings that were given.
        settings: All of its settings; None for a control.
        figures: By metric and group; no metric where the method failed on every picture.
        objects: How many maps were measured.
        constant: How many of them were constant; they count as they are, which is chance.
        failures: By reason, the pictures on which the method failed.
        above_controls: The metrics whose interval lies above those of all controls.
    """

    name: str
    settings: Mapping[str, Any] | None
    figures: Mapping[str, Mapping[str, Figure]]
    objects: int
    constant: int
    failures: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    above_controls: frozenset[str] = frozenset()

    @property
    def control(self) -> bool:
        """Whether this is a control, which never looks at the picture."""
        return self.settings is None

    @property
    def failed(self) -> int:
        """On how many pictures the method failed."""
        return sum(map(len, self.failures.values()))


@dataclass(frozen=True)
class Recognition:
    """How well a model knows what is in the pictures, whatever a map says.

    Attributes:
        top: By group, how often the best of all labels is in the picture.
        precision: The average precision of a label's presence, averaged over labels.
        labels: How many labels compete for the best.
        shown: How many of them are in a picture; the average precision is about these.
    """

    top: Mapping[str, Figure]
    precision: Figure
    labels: int
    shown: int


@dataclass(frozen=True)
class EncoderResult:
    """What became of one model.

    Attributes:
        name: The model.
        weights: Where its weights come from.
        size: Height and width of its input.
        recognition: How well it knows what is there.
        methods: The methods and controls, the best first.
        objects: How many objects were asked about.
        unseen: How many were left out because the model sees nothing of them.
        filling: How many were left out because they fill all that the model sees.
        unknown: The labels that the model cannot be asked about.
        warnings: What whoever reads the figures must know, one sentence each.
    """

    name: str
    weights: str
    size: tuple[int, int]
    recognition: Recognition
    methods: tuple[MethodResult, ...]
    objects: int
    unseen: int
    filling: int
    unknown: tuple[str, ...]
    warnings: tuple[str, ...]

    def __getitem__(self, method: str) -> MethodResult:
        """Get a method by its name."""
        for result in self.methods:
            if result.name == method:
                return result
        raise KeyError(method)


@dataclass(frozen=True)
class Time:
    """How long a method took.

    Attributes:
        encoder: Name of the model.
        method: Name of the method.
        call: Median seconds of a call, from the picture to the maps of all labels in it.
        forward: Median seconds of a plain forward, from the picture to the output.
        calls: How many calls.
    """

    encoder: str
    method: str
    call: float
    forward: float
    calls: int

    @property
    def ratio(self) -> float:
        """The call's time in plain forwards."""
        return self.call / self.forward


@dataclass(frozen=True)
class Results:
    """What a benchmark found; all but `times` is the same again for the same seed.

    Attributes:
        dataset: Name of the dataset.
        pictures: How many pictures were looked at.
        metrics: By name, with their settings, what was measured; the first says which method is the best.
        definitions: Of these, what they measure and who defined it.
        settings: Everything else that the figures depend on.
        versions: Of the distributions that the figures depend on.
        encoders: What became of each model.
        times: How long each method took on each model.
    """

    dataset: str
    pictures: int
    metrics: Mapping[str, Mapping[str, Any]]
    definitions: Mapping[str, str]
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    encoders: tuple[EncoderResult, ...]
    times: tuple[Time, ...]

    def __getitem__(self, encoder: str) -> EncoderResult:
        """Get a model's result by the model's name."""
        for result in self.encoders:
            if result.name == encoder:
                return result
        raise KeyError(encoder)

    @property
    def failed(self) -> bool:
        """Whether a method failed on a picture."""
        return any(method.failed for encoder in self.encoders for method in encoder.methods)

    def time(self, encoder: str, method: str) -> Time | None:
        """Get how long a method took; None for a control, and where every call failed."""
        found = [time for time in self.times if (time.encoder, time.method) == (encoder, method)]
        return found[0] if found else None

    def save(self, folder: str | Path) -> list[Path]:
        """Write scores.md, scores.csv, scores.json and times.csv.

        Args:
            folder: Where; it is made where it is missing.

        Returns:
            The files. All but times.csv are the same again for the same seed.

        Raises:
            BenchError: They cannot be written.
        """
        from explainer.bench.writing import write

        return write(self, Path(folder))
