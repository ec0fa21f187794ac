"""One model under test: picture by picture, every method and every control."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from explainer.bench.asking import Vocabulary, objects
from explainer.bench.controls import CONTROLS, Blind
from explainer.bench.results import BenchError
from explainer.bench.sample import Sample, Truth
from explainer.bench.statistics import Floats
from explainer.explain import Explainer
from explainer.explanation import Explanation
from explainer.heat import flat
from explainer.pictures import Batch, read
from explainer_registry import ExplainerError, Selected
from explainer_registry.errors import shown

_random: Any = torch.random  # which declares no types

Metric = Callable[[Tensor, Truth], Tensor]
"""A metric with its settings: (heat [H, W], truth) to a value or a row of values in [0, 1]."""


@dataclass
class Tally:
    """What is known so far of one method.

    Attributes:
        values: By metric, a row of values for each object.
        pictures: For each object, the number of its picture.
        groups: For each object, the group of its picture.
        constant: How many maps were constant.
        failures: By reason, the pictures on which the method failed.
        seconds: Of each call.
    """

    values: dict[str, list[Floats]]
    pictures: list[int] = field(default_factory=list[int])
    groups: list[str] = field(default_factory=list[str])
    constant: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    seconds: list[float] = field(default_factory=list[float])


class Trial:
    """One model under test.

    Args:
        name: What results call the model.
        explainer: The model.
        vocabulary: What it can be asked.
        methods: By the name that results give them.
        metrics: By the name that results give them.
        templates: Prompt templates, for models that read text.
        seed: Of the random control, and of methods that draw random numbers.

    Attributes:
        tallies: By method.
        controls: The same by control.
        logits: A row for each picture that shows a known label: the raw score of each of them.
        shown: In the same order, which labels are there.
        groups: In the same order, the group.
        seconds: Of each plain forward.
        objects: How many objects were asked about.
        unseen: How many were left out because the model sees nothing of them.
        filling: How many were left out because they fill all that the model sees.
    """

    def __init__(
        self,
        name: str,
        explainer: Explainer,
        vocabulary: Vocabulary,
        methods: Mapping[str, Selected],
        metrics: Mapping[str, Metric],
        templates: str | Sequence[str] | None,
        seed: int,
    ) -> None:
        self.name = name
        self.explainer = explainer
        self.vocabulary = vocabulary
        self.methods = methods
        self.tallies = {name: Tally({metric: [] for metric in metrics}) for name in methods}
        self.controls = {name: Tally({metric: [] for metric in metrics}) for name in CONTROLS}
        self.logits: list[list[float]] = []
        self.shown: list[list[bool]] = []
        self.groups: list[str] = []
        self.seconds: list[float] = []
        self.objects = self.unseen = self.filling = 0
        self._metrics = metrics
        self._templates = templates
        self._seed = seed

    def observe(self, number: int, sample: Sample) -> None:
        """Measure every method and control on one picture.

        Args:
            number: Of the sample in its dataset.
            sample: The picture and its masks.

        Raises:
            BenchError: A metric gives something else than values in [0, 1].
        """
        try:
            batch = self._forward(sample)
        except ExplainerError as error:
            for name in self.methods:
                self.tallies[name].failures.setdefault(str(error), []).append(sample.name)
            return
        (frame,) = batch.frames
        found = objects(sample, self.vocabulary.targets, frame)
        self.objects += len(found.truths)
        self.unseen += found.unseen
        self.filling += found.filling
        if not found.truths:
            return
        for name, method in self.methods.items():
            tally = self.tallies[name]
            try:
                heat = self._heat(method, number, sample, list(found.truths), tally)
            except ExplainerError as error:
                tally.failures.setdefault(str(error), []).append(sample.name)
            else:
                self._measure(tally, number, sample, heat, found.truths)
        grid = self.explainer.encoder.last_map(batch.images).grid
        for name, control in CONTROLS.items():
            blind = [Blind(self._seed, number, label, frame, (grid.height, grid.width)) for label in found.truths]
            self._measure(self.controls[name], number, sample, list(map(control, blind)), found.truths)

    def _forward(self, sample: Sample) -> Batch:
        """Run the model once, as anybody would; keep what it says of the labels."""
        encoder, directions = self.explainer.encoder, self.vocabulary.directions
        with encoder.session() as hooks, torch.no_grad():
            start = time.perf_counter()
            batch = read(sample.picture, encoder)
            outputs = encoder.forward(batch.images, hooks)
            outputs.cpu()  # which waits until it is computed
            self.seconds.append(time.perf_counter() - start)
            logits = encoder.logits(outputs, directions)
        there = [label in sample.masks for label in self.vocabulary.targets]
        if any(there):
            self.logits.append([float(logit) for logit in logits[0]])
            self.shown.append(there)
            self.groups.append(sample.group)
        return batch

    def _heat(self, method: Selected, number: int, sample: Sample, labels: list[str], tally: Tally) -> Sequence[Tensor]:
        """Explain one picture; give a heat for each label."""
        # A method may draw random numbers; they are the same again whatever ran before, and the user's stay untouched.
        with _random.fork_rng(devices=range(torch.cuda.device_count())):
            _random.manual_seed(self._seed + number)
            start = time.perf_counter()
            explanation = self.explainer(sample.picture, labels, method=method, templates=self._templates)
            explanation.maps.cpu()
            seconds = time.perf_counter() - start
        _check_maps(explanation, labels)
        tally.seconds.append(seconds)
        return explanation.heat()[0].cpu().unbind()

    def _measure(
        self, tally: Tally, number: int, sample: Sample, heat: Sequence[Tensor], truths: Mapping[str, Truth]
    ) -> None:
        for one, (label, truth) in zip(heat, truths.items(), strict=True):
            # What differs by rounding alone is no order of pixels.
            constant = bool(flat(one[truth.valid][None]))
            measured = torch.zeros_like(one) if constant else one
            for name, metric in self._metrics.items():
                row = _row(metric(measured, truth), f"metric '{name}', of '{label}' in sample '{sample.name}'")
                rows = tally.values[name]
                if rows and len(rows[0]) != len(row):
                    raise BenchError(
                        f"metric '{name}' gave {len(rows[0])} values and now {len(row)}; they must be as many each time"
                    )
                rows.append(row)
            tally.constant += constant
            tally.pictures.append(number)
            tally.groups.append(sample.group)


def _check_maps(explanation: Explanation, labels: list[str]) -> None:
    count = explanation.maps.shape[1]
    if count != len(labels):
        raise BenchError(
            f"it gives {count // len(labels)} maps for each label, and one can be measured; say which with its settings"
        )


def _row(measured: Tensor, about: str) -> Floats:
    row = measured.detach().cpu().double().reshape(-1).numpy()
    if measured.dim() > 1 or not row.size or not ((row >= 0) & (row <= 1)).all():  # which NaN is not
        values: list[float] = row.tolist()
        got = f"shape {list(measured.shape)}" if measured.dim() > 1 else shown(values if measured.dim() else values[0])
        raise BenchError(f"{about}: it has to give a value in 0..1, or a row of such values; it gave {got}")
    return row
