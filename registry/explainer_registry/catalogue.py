"""Catalogue: everything of one kind that the plugins offer, by name."""

from __future__ import annotations

import importlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from explainer_registry.discovery import normal_name
from explainer_registry.errors import RegistryError, describe, did_you_mean, listed
from explainer_registry.plugin import PluginInfo, Problem
from explainer_registry.specs import Spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SpecT = TypeVar("SpecT", bound=Spec, covariant=True)


@dataclass(frozen=True)
class Offer(Generic[SpecT]):
    """A declaration together with the plugin that makes it."""

    plugin: PluginInfo
    spec: SpecT

    @property
    def qualified(self) -> str:
        """The spelling that no other distribution can contest, ``"explainer-gem/gem"``."""
        return f"{self.plugin.distribution}/{self.spec.name}"

    @property
    def label(self) -> str:
        """What it is, ``"method gem"``."""
        return f"{self.spec.noun} {self.spec.name}"


class Catalogue(Generic[SpecT]):
    """The methods, encoders or scores that can be chosen.

    A name that two distributions offer is contested: it is refused, and both are listed and chosen as
    ``"distribution/name"``. That spelling is accepted for every other name as well.

    Args:
        noun: What the things are called in messages: ``"method"``.
        offers: The declarations. Within one distribution their names differ.
        unavailable: Names of plugins that cannot be used, each with the reason as half a sentence.
    """

    def __init__(
        self, noun: str, offers: Iterable[Offer[SpecT]] = (), unavailable: Mapping[str, str] | None = None
    ) -> None:
        self.noun = noun
        self.unavailable = dict(unavailable or {})
        self._by_name: dict[str, list[Offer[SpecT]]] = defaultdict(list)
        self._by_qualified: dict[str, Offer[SpecT]] = {}
        for offer in offers:
            self._by_name[offer.spec.name].append(offer)
            self._by_qualified[offer.qualified] = offer

    def names(self) -> tuple[str, ...]:
        """List the names that can be chosen, sorted; contested ones as ``"distribution/name"``."""
        return tuple(sorted(self._listed()))

    def items(self) -> tuple[tuple[str, SpecT], ...]:
        """List the names that can be chosen with their declarations, sorted by name."""
        return tuple((name, offer.spec) for name, offer in sorted(self._listed().items()))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._by_qualified)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def get(self, name: str) -> SpecT:
        """Look up a declaration.

        Args:
            name: ``"gem"`` or ``"distribution/gem"``.

        Raises:
            RegistryError: There is no such name, or two distributions offer it.
        """
        return self._offer(name).spec

    def load(self, name: str) -> Any:
        """Import the code behind a name.

        Args:
            name: ``"gem"`` or ``"distribution/gem"``.

        Returns:
            The object that the factory of the declaration points at.

        Raises:
            RegistryError: There is no such name, two distributions offer it, or its code cannot be imported.
        """
        offer = self._offer(name)
        module_name, _, attribute = offer.spec.factory.partition(":")
        try:
            module = importlib.import_module(module_name)
        except Exception as cause:  # the code of a plugin may raise anything
            reason = str(cause) if isinstance(cause, ImportError) else describe(cause)
            raise self._not_loaded(offer, reason) from cause
        try:
            return getattr(module, attribute)
        except AttributeError as cause:
            hint = did_you_mean(attribute, vars(module))
            raise self._not_loaded(offer, f"module '{module_name}' has no '{attribute}'{hint}") from cause

    def source(self, name: str) -> str:
        """Say where a name comes from.

        Args:
            name: ``"gem"`` or ``"distribution/gem"``.

        Returns:
            ``"distribution version"``.

        Raises:
            RegistryError: There is no such name, or two distributions offer it.
        """
        return self._offer(name).plugin.release

    def contests(self) -> tuple[Problem, ...]:
        """List the names that more than one distribution offers, as problems that say what to do."""
        return tuple(
            Problem(
                " and ".join(offer.plugin.source for offer in offers),
                f"{len(offers)} distributions offer {self.noun} '{name}'; {self._way_out(offers)}",
            )
            for name, offers in sorted(self._by_name.items())
            if len(offers) > 1
        )

    def _listed(self) -> dict[str, Offer[SpecT]]:
        return {
            offer.spec.name if len(offers) == 1 else offer.qualified: offer
            for offers in self._by_name.values()
            for offer in offers
        }

    def _find(self, name: str) -> Offer[SpecT] | None:
        distribution, slash, bare = name.partition("/")
        if slash:
            return self._by_qualified.get(f"{normal_name(distribution)}/{bare}")
        offers = self._by_name.get(name, [])
        return offers[0] if len(offers) == 1 else None

    def _offer(self, name: str) -> Offer[SpecT]:
        found = self._find(name)
        if found is not None:
            return found
        if name in self._by_name:
            offers = self._by_name[name]
            releases = " and ".join(offer.plugin.release for offer in offers)
            raise RegistryError(f"{self.noun} '{name}' is offered by {releases}; {self._way_out(offers)}")
        if name in self.unavailable:
            raise RegistryError(f"no {self.noun} named '{name}'; {self.unavailable[name]}")
        near = did_you_mean(name, self._by_qualified if "/" in name else {**self._by_name, **self._listed()})
        raise RegistryError(f"no {self.noun} named '{name}'{near} (available: {listed(self.names())})")

    def _way_out(self, offers: list[Offer[SpecT]]) -> str:
        spellings = " or ".join(f"'{offer.qualified}'" for offer in offers)
        return (
            f"say {spellings}, or switch one plugin off with EXPLAINER_DISABLE_PLUGINS: "
            f"{' or '.join(offer.plugin.id for offer in offers)}"
        )

    def _not_loaded(self, offer: Offer[SpecT], reason: str) -> RegistryError:
        return RegistryError(
            f"{self.noun} '{offer.spec.name}' is installed but could not be loaded: {offer.plugin.release}: {reason}"
        )
