"""The commands that explain pictures."""

from __future__ import annotations

from pathlib import Path

import click

from explainer.cli.output import aligned, progress, warn
from explainer.cli.settings import choose_methods, choose_views, read_target, settings_by_owner
from explainer.config import Run, make_run, read_run
from explainer.job import Drawing, Job, Result
from explainer.naming import counted
from explainer.selection import select

_SOME_FAILED = 1


@click.command()
@click.argument("pictures", nargs=-1, required=True, metavar="PICTURE...")
@click.option("--model", required=True, metavar="NAME", help="The model, such as timm:resnet50 or demo.")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="T",
    help="What to look for: the index of a class or channel, a class name, or a text for models that read text. Can be "
    "repeated. By default the top class, or the whole embedding of a model without classes.",
)
@click.option(
    "--method",
    "methods",
    multiple=True,
    metavar="M",
    help="A method; see `explainer methods`. Can be repeated. By default the best that fits the model.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting of the method, or, as model.KEY=VALUE, score.KEY=VALUE or view.KEY=VALUE, of one of these. Can be "
    "repeated.",
)
@click.option("--score", default="logit", metavar="NAME", help="What is explained; see `explainer scores`.")
@click.option(
    "--view",
    "views",
    multiple=True,
    metavar="V",
    help="How maps are drawn; see `explainer views`. Can be repeated. By default overlay.",
)
@click.option(
    "--templates",
    metavar="TEXT",
    help="For models that read text: a template with {} in the place of the target, or the name of a set.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("explanations"),
    show_default=True,
    metavar="DIR",
    help="Folder for what is written.",
)
def explain(
    pictures: tuple[str, ...],
    model: str,
    targets: tuple[str, ...],
    methods: tuple[str, ...],
    settings: tuple[str, ...],
    score: str,
    views: tuple[str, ...],
    templates: str | None,
    out: Path,
) -> None:
    """Show where in pictures a model found what it said.

    A PICTURE is a file, or a pattern in quotes such as 'street/**/*.jpg'.
    """
    own = settings_by_owner(settings, ("model", "score", "view"))
    fields = {
        "pictures": pictures,
        "model": select("encoders", model, own["model"]),
        "targets": [read_target(text) for text in targets] or None,
        "methods": choose_methods(methods, own[""]),
        "score": {"name": score, **own["score"]},
        "views": choose_views(views, own["view"]),
        "templates": templates,
        "out": out,
    }
    _carry_out(make_run(fields, "explainer explain"), Path())


@click.command()
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE.yaml")
def run(file: Path) -> None:
    """Do what a YAML file describes.

    `explainer schema` describes its fields. Paths in it are relative to its folder.
    """
    _carry_out(read_run(file), file.parent)


class Teller:
    """Prints what became of each picture, and each warning once.

    Args:
        score: Name of the explained score.
    """

    def __init__(self, score: str) -> None:
        self._score = score
        self._said: set[str] = set()

    def tell(self, result: Result, title: str) -> None:
        """Print a result: its files to the standard output, what is wrong to the standard error stream.

        Args:
            result: What became of a picture.
            title: What stands before the name of the folder.
        """
        for text in result.warnings:
            if text not in self._said:
                self._said.add(text)
                warn(text)
        if result.failure:
            click.echo(f"failed: {result.failure}", err=True)
            return
        click.echo(f"{title}, in {result.folder}")
        for line in aligned([self._row(drawing) for drawing in result.drawings]):
            click.echo(f"  {line}")

    def _row(self, drawing: Drawing) -> tuple[str, ...]:
        score = "" if drawing.score is None else f"{self._score} {drawing.score:.4g}"
        return drawing.method, drawing.label, score, drawing.file.name


def _carry_out(described: Run, folder: Path) -> None:
    with progress("loading the model") as bar:
        job = Job(described, folder)
        bar.begin("explaining", len(job.pictures))
        teller, done = Teller(described.score.name), list[Result]()
        for result in job.results():
            teller.tell(result, str(result.picture))
            bar.advance()
            if not result.failure:
                done.append(result)
    click.echo(f"explained {len(done)} of {counted(len(job.pictures), 'picture')}")
    if done:
        grid, arrays = done[0].grids[0], done[0].arrays[0]
        click.echo(f"in {job.out}: a folder for each picture with its drawings, a grid of all and the maps as .npz")
        click.echo(f"next: look at {grid}; in Python, the maps: explainer.Explanation.load({str(arrays)!r})")
    if len(done) < len(job.pictures):
        click.get_current_context().exit(_SOME_FAILED)
