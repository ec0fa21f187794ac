"""The command that scores methods on pictures with true masks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from explainer.bench.config import BenchRun, make_bench
from explainer.cli.output import progress, table, warn
from explainer.cli.settings import choose_methods, settings_by_owner
from explainer.naming import counted
from explainer.selection import select

if TYPE_CHECKING:
    from explainer.bench.results import Results

_ALL = "all"
_SOME_FAILED = 1


@click.command()
@click.option(
    "--encoder",
    "--model",
    "encoders",
    multiple=True,
    required=True,
    metavar="NAME",
    help="The model, such as stickers or open_clip:ViT-B-16/laion2b_s34b_b88k. Can be repeated.",
)
@click.option(
    "--methods",
    "--method",
    "methods",
    multiple=True,
    metavar="M,M",
    help="Methods; see `explainer methods`. Can be repeated. By default all that fit a model.",
)
@click.option(
    "--data",
    default="stickers",
    show_default=True,
    metavar="DATA",
    help="Pictures and masks: stickers, voc:FOLDER, coco:FILE.json, or the path alone; see `explainer datasets`.",
)
@click.option(
    "--metrics",
    "--metric",
    "metrics",
    multiple=True,
    metavar="M,M",
    help="What is measured; see `explainer metrics`. The first decides which method is the best. By default all.",
)
@click.option(
    "--pictures", "--scenes", type=click.IntRange(min=1), metavar="N", help="Only the first N pictures. By default all."
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the methods, or, as model.KEY=VALUE, of the models, or, as data.KEY=VALUE, of the data. Can be "
    "repeated.",
)
@click.option(
    "--templates",
    metavar="TEXT",
    help="For models that read text: a template with {} in the place of the label, or the name of a set.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Of the random control and of the intervals.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("explainer-bench"),
    show_default=True,
    metavar="DIR",
    help="Folder for the results.",
)
def bench(
    encoders: tuple[str, ...],
    methods: tuple[str, ...],
    data: str,
    metrics: tuple[str, ...],
    pictures: int | None,
    settings: tuple[str, ...],
    templates: str | None,
    seed: int,
    out: Path,
) -> None:
    """Score methods by how well their maps lie on the true masks of pictures.

    Beside the methods stand two controls that never look at the picture: random values, and the centre.
    """
    own = settings_by_owner(settings, ("model", "data"))
    fields = {
        "encoders": [select("encoders", name, own["model"]) for name in encoders],
        "methods": choose_methods(_names(methods, "--methods"), own[""]),
        "data": select("datasets", data, own["data"]),
        "metrics": _names(metrics, "--metrics") or None,
        "pictures": pictures,
        "templates": templates,
        "seed": seed,
        "out": out,
    }
    _carry_out(make_bench(fields, "explainer bench"))


def _names(given: Sequence[str], option: str) -> list[str]:
    """Split names at commas; nothing where all are wanted."""
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    if names == [_ALL]:
        return []
    if _ALL in names:
        raise click.BadParameter(f"'{_ALL}' stands alone; leave the other names out", param_hint=f"'{option}'")
    return names


def _carry_out(described: BenchRun) -> None:
    with progress("loading the models") as bar:
        from explainer.bench.running import Bench

        ready = Bench(described)
        bar.begin("measuring", ready.steps)
        results = ready.results(bar.advance)
    files = results.save(described.out)
    _tell(results)
    click.echo(f"in {described.out}: {', '.join(file.name for file in files)}")
    if results.failed:
        click.get_current_context().exit(_SOME_FAILED)


def _tell(results: Results) -> None:
    from explainer.bench import report

    click.echo(f"{results.dataset}: {counted(results.pictures, 'picture')}")
    click.echo("does the model know what is in them?")
    table(*report.recognition(results))
    for encoder in results.encoders:
        click.echo(f"{report.heading(encoder)}: maps of {counted(encoder.objects, 'object')}")
        table(*report.scores(results, encoder, times=True))
        for note in report.notes(encoder):
            warn(note)
    click.echo(report.LEGEND)
