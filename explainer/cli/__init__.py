"""The command line: `explainer`."""

from __future__ import annotations

import os
import re
from typing import Any

import click

from explainer.cli.bench import bench
from explainer.cli.explaining import explain, run
from explainer.cli.listing import datasets, encoders, methods, metrics, plugins, schema, scores, views
from explainer.cli.looking import demo, inspect
from explainer.cli.new_plugin import new_plugin_command
from explainer_registry import ExplainerError

_DISABLED = "EXPLAINER_DISABLE_PLUGINS"
_BAD_REQUEST = 2
_STOPPED = {"": "stopped; the pictures listed above are complete", "bench": "stopped; nothing is written"}
"""What is said of what is there when a command is ended early, by its name."""
_INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended


class _Refused(click.ClickException):
    """A request that is wrong; click prints the message and ends with this code."""

    exit_code = _BAD_REQUEST


class _Commands(click.Group):
    """Tells what the user can put right in one message, and leaves every other exception its traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ExplainerError as error:
            raise _Refused(_for_a_shell(str(error))) from error
        except KeyboardInterrupt:
            click.echo(_STOPPED.get(ctx.invoked_subcommand or "", _STOPPED[""]), err=True)
            ctx.exit(_INTERRUPTED)


def _for_a_shell(message: str) -> str:
    """Say how the settings that a message speaks of are written on the command line."""
    of_model = re.search(r"(?<![\w.])(checkpoint|pretrained|size|classes|layout|device|num_classes)=", message)
    if of_model is None:
        return message
    return f"{message}\n(on the command line: --set model.{of_model[1]}=...)"


@click.group("explainer", cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--disable-plugin",
    "disabled",
    multiple=True,
    metavar="NAME",
    help="Leave a plugin out: 'distribution:entry_point', or its short name. Can be repeated.",
)
@click.version_option(package_name="vision-explainer", prog_name="explainer")
def main(disabled: tuple[str, ...]) -> None:
    """Why did this vision model say that, and where in the picture?

    Exit codes: 0 done; 1 some pictures failed, the others are written, or a proof does not hold; 2 the request was
    wrong.
    """
    # The registry reads its switches at the first call, which is still to come.
    if disabled:
        os.environ[_DISABLED] = ",".join([*filter(None, [os.environ.get(_DISABLED)]), *disabled])


for _command in (
    *(explain, run, inspect, bench, methods, encoders, scores, metrics, datasets, views, plugins, schema, demo),
    new_plugin_command,
):
    main.add_command(_command)
