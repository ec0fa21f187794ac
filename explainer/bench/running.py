"""Carrying out a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from typing import Any

from explainer.bench.asking import check, vocabulary
from explainer.bench.config import BenchRun, dumped, label, portable
from explainer.bench.results import BenchError, Results
from explainer.bench.sample import Dataset
from explainer.bench.statistics import LEVEL, RESAMPLES
from explainer.bench.summary import encoder_result, times
from explainer.bench.trial import Trial
from explainer.encoder import Encoder
from explainer.explain import versions, wrap
from explainer.inspection import fits, misfit, suited
from explainer.job import Names
from explainer.naming import counted
from explainer.selection import select, with_defaults
from explainer_registry import Selected, registry


class Bench:
    """A benchmark that is ready to start: models and data are loaded, and what is asked fits them.

    Args:
        run: What to do.
        dataset: Pictures and masks, in place of those that are described.

    Attributes:
        dataset: The pictures and masks.
        pictures: How many of them are looked at.
        trials: The models under test.

    Raises:
        ExplainerError: Something asked for does not exist, or does not fit a model.
    """

    def __init__(self, run: BenchRun, dataset: Dataset | None = None) -> None:
        self.run = run
        if run.out.exists() and not run.out.is_dir():
            raise BenchError(f"'{run.out}' is a file; the results need a folder")
        chosen = run.metrics or [select("metrics", name) for name in registry().metrics]
        self._metrics = {label(metric): metric for metric in chosen}
        self._given = dataset is not None
        self.dataset: Dataset = dataset if dataset is not None else _load(run.data)
        if not len(self.dataset):
            raise BenchError(f"the dataset '{self.dataset.name}' holds no pictures")
        self.pictures = min(len(self.dataset), run.pictures or len(self.dataset))
        names = Names()
        self.trials = [self._trial(model, names) for model in run.encoders]

    @property
    def steps(self) -> int:
        """How often `results` tells that something is done."""
        return len(self.trials) * self.pictures

    def results(self, advance: Callable[[], None] = lambda: None) -> Results:
        """Measure everything.

        Args:
            advance: Called whenever a picture is done by a model.

        Raises:
            ExplainerError: A sample or a metric breaks its promises, or nothing could be measured.
        """
        labels = frozenset(self.dataset.labels)
        for number in range(self.pictures):
            sample = self.dataset[number]
            check(sample, labels, self.dataset.name)
            for trial in self.trials:
                trial.observe(number, sample)
                advance()
        return Results(
            dataset=self.dataset.name,
            pictures=self.pictures,
            metrics={name: {"name": metric.name, **dumped(metric)} for name, metric in self._metrics.items()},
            definitions={name: _definition(metric) for name, metric in self._metrics.items()},
            settings=self._settings(),
            versions={**versions(), **{name: version(name) for name in ("numpy", "torchmetrics")}},
            encoders=tuple(
                encoder_result(trial, list(self._metrics), self.run.seed, _unknown(trial)) for trial in self.trials
            ),
            times=tuple(time for trial in self.trials for time in times(trial)),
        )

    def _trial(self, model: Selected, names: Names) -> Trial:
        explainer = wrap(model)
        encoder = explainer.encoder
        metrics = {
            name: partial(registry().metrics.load(metric.name), metric.options)
            for name, metric in self._metrics.items()
        }
        return Trial(
            name=names.unique(encoder.name),
            explainer=explainer,
            vocabulary=vocabulary(encoder, self.dataset, self.run.templates),
            methods=self._methods(encoder),
            metrics=metrics,
            templates=self.run.templates,
            seed=self.run.seed,
        )

    def _methods(self, encoder: Encoder) -> Mapping[str, Selected]:
        if self.run.methods is not None:
            for method in self.run.methods:
                if reason := misfit(method.name, encoder):
                    raise BenchError(reason)
            return {label(method): _suited(method, encoder) for method in self.run.methods}
        schemas = {name: spec.schema for name, spec in registry().methods.items()}
        ready = [fit.name for fit in fits(encoder) if fit.fits and not _needs_settings(schemas[fit.name])]
        return {name: _suited(select("methods", name), encoder) for name in ready}

    def _settings(self) -> dict[str, Any]:
        data = {"name": self.run.data.name, **dumped(self.run.data)}
        return {
            "data": {"name": self.dataset.name} if self._given else portable(data),
            "pictures": self.pictures,
            "templates": self.run.templates,
            "seed": self.run.seed,
            "resamples": RESAMPLES,
            "level": LEVEL,
        }


def run(described: BenchRun, dataset: Dataset | None = None) -> Results:
    """Carry out a benchmark.

    Args:
        described: What to do; nothing is written to its folder before `Results.save`.
        dataset: Pictures and masks, in place of those that are described.

    Raises:
        ExplainerError: Something asked for does not exist, does not fit a model, or breaks its promises.
    """
    return Bench(described, dataset).results()


def dataset(given: object, **settings: Any) -> Dataset:
    """Open a dataset.

    Args:
        given: "stickers", "voc:FOLDER", "coco:FILE.json", or a path of pictures and masks.
        **settings: Its settings.

    Returns:
        The samples, and all labels that masks may have.

    Raises:
        ExplainerError: There is no such dataset or setting, or its files are not what they should be.
    """
    return _load(select("datasets", given, settings))


def _suited(method: Selected, encoder: Encoder) -> Selected:
    """Fill in what suits the model, as a call does, so that results tell it."""
    return with_defaults(method, suited(method.name, encoder))


def _load(data: Selected) -> Dataset:
    return registry().datasets.load(data.name)(data.options)


def _definition(metric: Selected) -> str:
    spec = registry().metrics.get(metric.name)
    return f"{spec.summary} ({spec.reference})"


def _needs_settings(schema: Any) -> bool:
    return any(field.is_required() for field in schema.model_fields.values())


def _unknown(trial: Trial) -> list[str]:
    unknown = trial.vocabulary.unknown
    if not unknown:
        return []
    words = ", ".join(f"'{name}'" for name in unknown)
    reason = next(iter(unknown.values()))
    return [
        f"{trial.name} cannot be asked about {counted(len(unknown), 'label')}, which "
        f"{'is' if len(unknown) == 1 else 'are'} left out: {words} (of the first it says: {reason})"
    ]
