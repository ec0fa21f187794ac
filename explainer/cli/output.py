"""Writing to the terminal, or to a file in its place."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


class Bar:
    """A progress bar; one that is not drawn where there is no terminal.

    Args:
        progress: What draws it.
        task: Which bar it is there.
    """

    def __init__(self, progress: Progress | None = None, task: TaskID | None = None) -> None:
        self._progress, self._task = progress, task

    def begin(self, what: str, total: int) -> None:
        """Say what is counted now, and how far."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=what, total=total)

    def advance(self) -> None:
        """Count one more."""
        if self._progress is not None and self._task is not None:
            self._progress.advance(self._task)


@contextmanager
def progress(what: str) -> Generator[Bar]:
    """Show on the standard error stream that something takes long.

    Args:
        what: What is being done at first, before there is anything to count.

    Yields:
        The bar.
    """
    if not sys.stderr.isatty():
        yield Bar()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    # Lines that go to the same terminal are written above the bar; a file gets them as they are.
    to_terminal = sys.stdout.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=to_terminal) as drawn:
        yield Bar(drawn, drawn.add_task(what, total=None))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: drawn in a terminal, otherwise one aligned line for each row.

    Args:
        headings: A word above each column.
        rows: As many texts each.
    """
    if sys.stdout.isatty():
        from rich.console import Console

        draw(headings, rows, Console())
        return
    for line in aligned([headings, *rows]):
        click.echo(line)


def draw(headings: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """Draw a table.

    Args:
        headings: A word above each column.
        rows: As many texts each; square brackets in them are no markup.
        console: Where it is drawn.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(*headings, box=SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        drawn.add_row(*map(Text, row))
    console.print(drawn)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Write rows with their columns below each other.

    Args:
        rows: As many texts each.

    Returns:
        One line for each row.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def warn(text: str) -> None:
    """Print a warning to the standard error stream."""
    click.echo(f"warning: {text}", err=True)
