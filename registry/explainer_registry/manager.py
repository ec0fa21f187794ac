"""Registry: the plugins that are in force, and what they offer together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from explainer_registry.catalogue import Catalogue, Offer
from explainer_registry.discovery import find_plugins, switched_off
from explainer_registry.errors import RegistryError, describe
from explainer_registry.hooks import Hooks
from explainer_registry.plugin import PluginInfo, Problem
from explainer_registry.specs import DatasetSpec, EncoderSpec, MethodSpec, MetricSpec, ScoreSpec, Spec, ViewSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.metadata import EntryPoint

    from pluggy import HookRelay

SpecT = TypeVar("SpecT", bound=Spec)

Kind = Literal["methods", "encoders", "scores", "metrics", "datasets", "views"]


class Registry:
    """What a set of plugins offers; made by `Registry.discover`.

    Args:
        hooks: The plugins that loaded.
        plugins: All plugins that were found, in the order of loading.
        offers: What the loaded plugins declare.
    """

    def __init__(
        self,
        hooks: Hooks | None = None,
        plugins: Sequence[PluginInfo] = (),
        offers: Sequence[Offer[Spec]] = (),
    ) -> None:
        self._hooks = hooks or Hooks()
        self._plugins = tuple(plugins)
        unavailable = _unavailable(plugins)
        self._methods = Catalogue("method", _only(MethodSpec, offers), unavailable)
        self._encoders = Catalogue("encoder", _only(EncoderSpec, offers), unavailable)
        self._scores = Catalogue("score", _only(ScoreSpec, offers), unavailable)
        self._metrics = Catalogue("metric", _only(MetricSpec, offers), unavailable)
        self._datasets = Catalogue("dataset", _only(DatasetSpec, offers), unavailable)
        self._views = Catalogue("view", _only(ViewSpec, offers), unavailable)

    @classmethod
    def discover(
        cls,
        *,
        disabled: Iterable[str] = (),
        strict: bool = False,
        entry_points: Iterable[EntryPoint] | None = None,
    ) -> Registry:
        """Load the plugins, each on its own: one that fails is noted and the others go on.

        Args:
            disabled: Plugins to leave out: ``"distribution:entry_point"``, the name of a distribution, or
                the name of an entry point where only one plugin has it. They are not imported.
            strict: Raise the first problem instead of noting it.
            entry_points: The plugins to load; None loads all that are installed.

        Returns:
            The registry.

        Raises:
            RegistryError: ``disabled`` names no plugin or could mean several; in strict mode any problem.
        """
        found = find_plugins(entry_points)
        off = switched_off(disabled, [info for info, _ in found])
        hooks, plugins, offers = Hooks(), list[PluginInfo](), list[Offer[Spec]]()
        for info, entry_point in found:
            if info.id in off:
                plugins.append(replace(info, enabled=False))
                continue
            try:
                own = _load(info, entry_point, hooks, offers)
            except Exception as cause:  # a plugin may raise anything, and must not take the others along
                problem = Problem(info.source, describe(cause))
                if strict:
                    raise RegistryError(str(problem)) from cause
                plugins.append(replace(info, problem=problem))
            else:
                offers += own
                plugins.append(replace(info, offers=tuple(sorted(offer.label for offer in own))))
        made = cls(hooks, plugins, offers)
        if strict and made.problems:
            raise RegistryError(str(made.problems[0]))
        return made

    @property
    def methods(self) -> Catalogue[MethodSpec]:
        """The methods of explanation."""
        return self._methods

    @property
    def encoders(self) -> Catalogue[EncoderSpec]:
        """The encoders."""
        return self._encoders

    @property
    def scores(self) -> Catalogue[ScoreSpec]:
        """The scores."""
        return self._scores

    @property
    def metrics(self) -> Catalogue[MetricSpec]:
        """The metrics."""
        return self._metrics

    @property
    def datasets(self) -> Catalogue[DatasetSpec]:
        """The datasets."""
        return self._datasets

    @property
    def views(self) -> Catalogue[ViewSpec]:
        """The views."""
        return self._views

    def catalogue(self, kind: Kind) -> Catalogue[Spec]:
        """Get the catalogue of one kind by its name."""
        by_kind: dict[Kind, Catalogue[Spec]] = {
            "methods": self._methods,
            "encoders": self._encoders,
            "scores": self._scores,
            "metrics": self._metrics,
            "datasets": self._datasets,
            "views": self._views,
        }
        return by_kind[kind]

    @property
    def plugins(self) -> tuple[PluginInfo, ...]:
        """All plugins that were found: loaded, failed and switched off, in the order of loading."""
        return self._plugins

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong: first the plugins that failed, then the names that two distributions offer."""
        failed = tuple(info.problem for info in self._plugins if info.problem is not None)
        kinds = (self.catalogue(kind) for kind in get_args(Kind))
        return (*failed, *(problem for catalogue in kinds for problem in catalogue.contests()))

    @property
    def hook(self) -> HookRelay:
        """The hooks as pluggy offers them; those that begin with `notify_` name a plugin that raises."""
        return self._hooks.relay

    def notify_before_explanation(self, request: object) -> None:
        """Tell the plugins that an explanation is about to be computed.

        Raises:
            RegistryError: A plugin raised; the message names it, and its exception is the cause.
        """
        self._hooks.before_explanation(request)

    def notify_after_explanation(self, explanation: object) -> None:
        """Tell the plugins that an explanation has been computed.

        Raises:
            RegistryError: A plugin raised; the message names it, and its exception is the cause.
        """
        self._hooks.after_explanation(explanation)

    def notify_after_job(self, outcome: object) -> None:
        """Tell the plugins that a run over many pictures has ended.

        Raises:
            RegistryError: A plugin raised; the message names it, and its exception is the cause.
        """
        self._hooks.after_job(outcome)


def _load(info: PluginInfo, entry_point: EntryPoint, hooks: Hooks, others: Sequence[Offer[Spec]]) -> list[Offer[Spec]]:
    hooks.register(info, entry_point.load())
    try:
        own: list[Offer[Spec]] = []
        for spec in hooks.declarations(info):
            offer = Offer(info, spec)
            _check_unclaimed(offer, [*others, *own])
            own.append(offer)
    except Exception:
        hooks.unregister(info)
        raise
    return own


def _check_unclaimed(offer: Offer[Spec], others: Sequence[Offer[Spec]]) -> None:
    # Two distributions may claim one name: the catalogue keeps both apart by their distribution. Within one
    # distribution nothing would tell them apart.
    for other in others:
        if (other.qualified, other.label) == (offer.qualified, offer.label):
            if other.plugin == offer.plugin:
                raise RegistryError(f"offers {offer.spec.noun} '{offer.spec.name}' twice")
            raise RegistryError(
                f"offers {offer.spec.noun} '{offer.spec.name}', which {other.plugin.source} offers already"
            )


def _only(kind: type[SpecT], offers: Sequence[Offer[Spec]]) -> list[Offer[SpecT]]:
    return [Offer(offer.plugin, offer.spec) for offer in offers if isinstance(offer.spec, kind)]


def _unavailable(plugins: Sequence[PluginInfo]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for info in plugins:
        if not info.enabled:
            reasons[info.entry_point] = f"the plugin of that name is switched off: {info.source}"
        elif info.problem is not None:
            reasons[info.entry_point] = f"the plugin of that name could not be loaded: {info.problem}"
    return reasons
