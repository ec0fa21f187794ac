"""The commands that look at a model, and the demonstration."""

from __future__ import annotations

from pathlib import Path

import click
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from explainer.cli.explaining import Teller
from explainer.cli.output import aligned, progress
from explainer.cli.settings import read_settings
from explainer.demo import ENCODER, explain_photographs
from explainer.selection import select
from explainer_registry import MethodSpec, registry

_UNPROVEN = 1


@click.command()
@click.argument("model")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="model.KEY=VALUE",
    help="A setting of the model. Can be repeated.",
)
@click.option("--method", metavar="M", help="Show the settings of this method, and whether it fits the model.")
@click.option("--prove", is_flag=True, help="Prove on noise that maps lie on the picture as they are said to.")
@click.pass_context
def inspect(context: click.Context, model: str, settings: tuple[str, ...], method: str | None, prove: bool) -> None:
    """Report on a model: layers, grid, attention, and which methods fit."""
    of_model, others = read_settings(settings)
    if others:
        key = next(iter(others))
        raise click.BadParameter(f"'{key}' is no setting of a model; write model.{key}=...", param_hint="'--set'")
    selected = select("encoders", model, of_model)
    spec = registry().methods.get(method) if method else None
    with progress("loading the model"):
        from explainer.explain import wrap

        explainer = wrap(selected)
        report = str(explainer.inspect())
    click.echo(report)
    if spec is not None:
        from explainer.inspection import lacking

        missing = lacking(spec, explainer.encoder)
        click.echo(f"method {method} {'does not fit: ' + missing if missing else 'fits'}")
        _show_settings(spec)
    if prove:
        with progress("proving the layout"):
            proof = explainer.prove()
        click.echo(proof)
        if not proof.holds:
            context.exit(_UNPROVEN)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("explainer-demo"),
    show_default=True,
    metavar="DIR",
    help="Folder for what is written.",
)
def demo(out: Path) -> None:
    """Explain three photographs with a small real network; both come with the package."""
    teller, grids = Teller("logit"), list[Path]()
    for shown in explain_photographs(out):
        click.echo(shown.picture.name)
        for name, share in shown.classes:
            click.echo(f"  {share:5.1%}  {name}")
        teller.tell(shown.result, "its maps")
        grids += shown.result.grids
    click.echo(f"in {out}: a folder for each photograph with its overlays, a grid of all and the maps as .npz")
    click.echo(f"next: look at {grids[0]}, then explain a picture of your own:")
    click.echo(f"  explainer explain PICTURE --model {ENCODER} --out maps")
    click.echo("  explainer inspect timm:resnet50")


def _show_settings(spec: MethodSpec) -> None:
    rows = [
        (f"{field.alias or name}={_default(field)}", field.description or "")
        for name, field in spec.schema.model_fields.items()
    ]
    for line in aligned(rows) or ["no settings"]:
        click.echo(f"  {line}")


def _default(field: FieldInfo) -> str:
    """Write the default of a setting as `--set` takes it; a word where it has to be given."""
    if field.is_required():
        return "<required>"
    value: object = field.get_default(call_default_factory=True, validated_data={})
    return value if isinstance(value, str) else to_json(value).decode()
