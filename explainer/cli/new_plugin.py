"""The command that writes a plugin to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from explainer.cli.output import aligned
from explainer.newplugin import KINDS, new_plugin


@click.command("new-plugin")
@click.argument("name")
@click.option(
    "--kind",
    default="method",
    show_default=True,
    metavar="KIND",
    help=f"What it adds: {', '.join(KINDS)}.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the package, which must not exist yet.  [default: explainer-NAME]",
)
def new_plugin_command(name: str, kind: str, out: Path | None) -> None:
    """Write a plugin to begin with: a package that installs, works and has tests.

    Its code is a copy of the smallest of the kind that comes with explainer, under the new name.
    """
    plugin = new_plugin(name, kind)
    folder = out or Path(plugin.distribution)
    plugin.write(folder)
    click.echo(f"wrote {folder}: the {kind} {name}, which does what {plugin.built_in.name} does until you change it")
    told = {f"{plugin.package}/__init__.py": "its name and settings", f"{plugin.package}/{name}.py": "its code"}
    for line in aligned([(file, told.get(file, "")) for file in plugin.files]):
        click.echo(f"  {line}")
    click.echo("next:")
    for line in (f"cd {shlex.quote(str(folder))}", 'pip install -e ".[test]"', f"explainer {plugin.kind}"):
        click.echo(f"  {line}")
    click.echo(f"  {plugin.usage}")
    click.echo("  pytest")
