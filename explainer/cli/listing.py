"""The commands that list what is installed."""

from __future__ import annotations

import click

from explainer.cli.output import table, warn
from explainer.config import run_schema
from explainer_registry import PluginInfo, registry
from explainer_registry.errors import listed


@click.command()
def methods() -> None:
    """List the methods, with what each needs of a model."""
    catalogue = registry().methods
    table(
        ("method", "needs", "summary", "reference", "from"),
        [
            (name, listed(sorted(spec.needs)), spec.summary, spec.reference, catalogue.source(name))
            for name, spec in catalogue.items()
        ],
    )
    _warn_of_problems()


@click.command()
def encoders() -> None:
    """List the encoders: where models come from."""
    catalogue = registry().encoders
    table(
        ("encoder", "takes modules of", "summary", "from"),
        [(name, listed(spec.wraps), spec.summary, catalogue.source(name)) for name, spec in catalogue.items()],
    )
    _warn_of_problems()


@click.command()
def scores() -> None:
    """List the scores: the numbers that can be explained."""
    catalogue = registry().scores
    table(
        ("score", "summary", "from"),
        [(name, spec.summary, catalogue.source(name)) for name, spec in catalogue.items()],
    )
    _warn_of_problems()


@click.command()
def metrics() -> None:
    """List the metrics: how a map is measured against a true mask."""
    catalogue = registry().metrics
    table(
        ("metric", "summary", "reference", "from"),
        [(name, spec.summary, spec.reference, catalogue.source(name)) for name, spec in catalogue.items()],
    )
    _warn_of_problems()


@click.command()
def datasets() -> None:
    """List the datasets: where pictures with true masks come from."""
    catalogue = registry().datasets
    table(
        ("dataset", "summary", "from"),
        [(name, spec.summary, catalogue.source(name)) for name, spec in catalogue.items()],
    )
    _warn_of_problems()


@click.command()
def views() -> None:
    """List the views: how a map is drawn."""
    catalogue = registry().views
    table(
        ("view", "summary", "from"),
        [(name, spec.summary, catalogue.source(name)) for name, spec in catalogue.items()],
    )
    _warn_of_problems()


@click.command()
def plugins() -> None:
    """List the plugins: what each offers, and what is wrong with those that failed."""
    found = registry().plugins
    table(
        ("plugin", "version", "state", "offers"),
        [(info.id, info.version, _state(info), listed(info.offers)) for info in found],
    )
    for info in found:
        if not info.enabled:
            click.echo(f"off: {info.source}: switched off by --disable-plugin or EXPLAINER_DISABLE_PLUGINS")
    for problem in registry().problems:
        click.echo(f"problem: {problem}")


@click.command()
def schema() -> None:
    """Print the JSON schema of run files, for editors.

    Write it to a file, and name that in the first line of a run file: # yaml-language-server: $schema=FILE
    """
    click.echo(run_schema())


def _state(info: PluginInfo) -> str:
    if not info.enabled:
        return "off"
    return "on" if info.problem is None else "failed"


def _warn_of_problems() -> None:
    for problem in registry().problems:
        warn(str(problem))
