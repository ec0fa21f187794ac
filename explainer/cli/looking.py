"""The commands that look at a model, and the demonstration."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from pydantic.fields import FieldInfo
from pydantic_core import to_json

from explainer.cli.explaining import Teller
from explainer.cli.output import aligned, progress, warn
from explainer.cli.settings import settings_by_owner
from explainer.demo import PHOTOGRAPHS, SCENES, Shown, explain_photographs, explain_scenes, load_models
from explainer.job import Drawing, Result
from explainer.naming import counted
from explainer.selection import select
from explainer_registry import MethodSpec, registry
from explainer_registry.errors import listed

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
    own = settings_by_owner(settings, ("model",))
    if own[""]:
        key = next(iter(own[""]))
        raise click.BadParameter(f"'{key}' is no setting of a model; write model.{key}=...", param_hint="'--set'")
    selected = select("encoders", model, own["model"])
    spec = registry().methods.get(method) if method else None
    with progress("loading the model"):
        from explainer.explain import wrap

        explainer = wrap(selected)
        report = str(explainer.inspect())
    click.echo(report)
    if spec is not None:
        from explainer.inspection import lacking, suited

        missing = lacking(spec, explainer.encoder)
        click.echo(f"method {method} {'does not fit: ' + missing if missing else 'fits'}")
        _show_settings(spec, suited(spec.name, explainer.encoder))
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
    """Explain photographs, and prompts on scenes of stickers, with small real models; all come with the package."""
    models, missing = load_models()
    teller, photographs, scenes = Teller("logit"), list[Result](), list[Result]()
    if PHOTOGRAPHS in models:
        for shown in explain_photographs(models[PHOTOGRAPHS], out):
            _tell_best(shown)
            teller.tell(shown.result, "its maps")
            photographs.append(shown.result)
    if SCENES in models:
        for shown in explain_scenes(models[SCENES], out):
            _tell_best(shown)
            teller.tell(replace(shown.result, drawings=()), _summary(shown.result.drawings))
            scenes.append(shown.result)
    click.echo(f"in {out}: a folder for each picture with its overlays, a grid of all and the maps as .npz")
    if photographs:
        click.echo(f"next: look at {photographs[0].grids[0]}, then explain a picture of your own:")
        click.echo(f"  explainer explain PICTURE --model {PHOTOGRAPHS} --out maps")
        click.echo("  explainer inspect timm:resnet50")
    if scenes:
        click.echo(f"next: look at {scenes[0].grids[0]}, then ask a scene for something else:")
        scene = shlex.quote(str(scenes[0].picture))
        click.echo(f'  explainer explain {scene} --model {SCENES} --target "a mouse" --out maps')
    for reason in missing:
        warn(reason)


def _tell_best(shown: Shown) -> None:
    click.echo(shown.picture.name)
    for name, share in shown.classes:
        click.echo(f"  {share:5.1%}  {name}")


def _summary(drawings: Sequence[Drawing]) -> str:
    prompts = listed(dict.fromkeys(drawing.label for drawing in drawings))
    return f"maps of {prompts} by {counted(len({drawing.method for drawing in drawings}), 'method')}"


def _show_settings(spec: MethodSpec, suited: Mapping[str, Any]) -> None:
    rows = [
        (f"{field.alias or name}={suited.get(name, _default(field))}", field.description or "")
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
