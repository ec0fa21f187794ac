"""Hooks: the typed face of pluggy.

A pluggy call is untyped, and loses the plugin at fault when one of them raises. So each hook is called by a
method of its own, one implementation at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import pluggy

from explainer_registry import hookspecs
from explainer_registry.errors import RegistryError, describe, did_you_mean, listed, shown
from explainer_registry.specs import SPECS, Spec

if TYPE_CHECKING:
    from explainer_registry.plugin import PluginInfo

HOOKS = tuple(sorted(name for name in vars(hookspecs) if name.startswith("explainer_")))
"""The names of all hooks."""


class Hooks:
    """The plugins that are registered, and the calls to their hooks."""

    def __init__(self) -> None:
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._infos: dict[str, PluginInfo] = {}

    @property
    def relay(self) -> pluggy.HookRelay:
        """The hooks as pluggy offers them."""
        return self._manager.hook

    def register(self, info: PluginInfo, plugin: object) -> None:
        """Add a plugin after checking its hooks; one that fails leaves no trace.

        Args:
            info: Who it is; it is registered under ``info.id``.
            plugin: The module or object that carries the hook implementations.

        Raises:
            RegistryError: It has no hook, a misspelt hook, a wrapper or an argument with a default, or is
                registered already.
            pluggy.PluginValidationError: A hook implementation has an argument that its hook does not pass.
        """
        holder = info.id if self._manager.has_plugin(info.id) else self._manager.get_name(plugin)
        if holder is not None:
            raise RegistryError(f"is the same plugin as {self._infos[holder].source}, which is loaded already")
        self._infos[info.id] = info
        try:
            self._manager.register(plugin, info.id)
            self._check(plugin)
        except Exception:
            self.unregister(info)
            raise

    def unregister(self, info: PluginInfo) -> None:
        """Take a plugin out again, with all its hook implementations."""
        self._manager.unregister(name=info.id)
        del self._infos[info.id]

    def declarations(self, info: PluginInfo) -> list[Spec]:
        """Call the declaring hooks of one plugin: ``explainer_methods``, ``explainer_encoders`` and so on.

        Raises:
            RegistryError: The plugin raised, or returned something that is no list of declarations.
        """
        hooks = {kind: getattr(self.relay, f"explainer_{kind}") for kind in SPECS}
        return [spec for kind, caller in hooks.items() for spec in self._declared(caller, info, SPECS[kind])]

    def before_explanation(self, request: object) -> None:
        """Call ``explainer_before_explanation`` of every plugin.

        Raises:
            RegistryError: A plugin raised; the message names it.
        """
        self._announce(self.relay.explainer_before_explanation, request=request)

    def after_explanation(self, explanation: object) -> None:
        """Call ``explainer_after_explanation`` of every plugin.

        Raises:
            RegistryError: A plugin raised; the message names it.
        """
        self._announce(self.relay.explainer_after_explanation, explanation=explanation)

    def after_job(self, outcome: object) -> None:
        """Call ``explainer_after_job`` of every plugin.

        Raises:
            RegistryError: A plugin raised; the message names it.
        """
        self._announce(self.relay.explainer_after_job, outcome=outcome)

    def _check(self, plugin: object) -> None:
        callers = self._manager.get_hookcallers(plugin) or []
        if not callers:
            raise RegistryError(f"implements no hook: mark one with @hookimpl (hooks: {listed(HOOKS)})")
        for caller in callers:
            for impl in caller.get_hookimpls():
                if impl.plugin is plugin:
                    _check_impl(caller, impl)

    def _declared(self, caller: pluggy.HookCaller, info: PluginInfo, kind: type[Spec]) -> list[Spec]:
        specs: list[Spec] = []
        for impl in caller.get_hookimpls():
            if impl.plugin_name != info.id:
                continue
            try:
                returned = impl.function()
                # A hook may be a generator, whose body runs, and raises, only here.
                items = list(cast("Iterable[object]", returned)) if _is_collection(returned) else None
            except RegistryError:
                raise
            except Exception as cause:
                raise RegistryError(f"{caller.name}() raised {describe(cause)}") from cause
            if items is None:
                raise RegistryError(f"{caller.name}() returned {shown(returned)}, expected a list of {kind.__name__}")
            for item in items:
                if not isinstance(item, kind):
                    raise RegistryError(
                        f"{caller.name}() returned a list with {shown(item)} in it, expected {kind.__name__}"
                    )
                specs.append(item)
        return specs

    def _announce(self, caller: pluggy.HookCaller, **context: object) -> None:
        for impl in caller.get_hookimpls():
            try:
                impl.function(*(context[name] for name in impl.argnames))
            except Exception as cause:
                source = self._infos[impl.plugin_name].source
                raise RegistryError(f"{source}: {caller.name}() raised {describe(cause)}") from cause


def _check_impl(caller: pluggy.HookCaller, impl: pluggy.HookImpl) -> None:
    # The same question as PluginManager.check_pending, which offers no nearest hook.
    if not caller.has_spec() and not impl.optionalhook:
        raise RegistryError(f"unknown hook '{caller.name}'{did_you_mean(caller.name, HOOKS)} (hooks: {listed(HOOKS)})")
    if impl.wrapper or impl.hookwrapper:
        raise RegistryError(f"{caller.name}() is a hook wrapper; write an ordinary @hookimpl")
    if impl.kwargnames:
        raise RegistryError(
            f"{caller.name}() gives a default to {listed(impl.kwargnames)}, "
            f"which would hide the value that is passed; remove the default"
        )


def _is_collection(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str)
