"""A plugin whose methods, scores, metrics and views each break one promise; the tests of the kit catch each of them."""

from __future__ import annotations

import torch
from PIL import Image
from pydantic import Field

from explainer.maps import cells_to_maps, measured_map
from explainer_plugins.similarity.similarity import run as similarity
from explainer_plugins.torch import Torch
from explainer_plugins.torch.encoder import TorchEncoder
from explainer_plugins.torch.encoder import build as build_torch
from explainer_registry import EncoderSpec, MethodSpec, MetricSpec, Schema, ScoreSpec, ViewSpec, hookimpl
from explainer_registry.source import ModelSource


class Plain(Schema):
    """No settings."""


class Undescribed(Schema):
    """A setting that nobody explains."""

    depth: int = 3


class Lenient(Schema, extra="ignore"):
    """Takes every word for a setting."""


class Unwritable(Schema):
    """A setting that JSON does not know."""

    rule: object = Field(len, description="A function.")


def leaks_hook(config, encoder, images, targets):
    encoder.model.register_forward_hook(lambda *_: None)
    return similarity(config, encoder, images, targets)


def changes_a_flag_on_failure(config, encoder, images, targets):
    first = next(module for module in encoder.model.modules() if type(module) is torch.nn.Conv2d)
    first.note = 1
    maps = similarity(config, encoder, images, targets)
    del first.note
    return maps


def seeds(config, encoder, images, targets):
    torch.manual_seed(0)
    return similarity(config, encoder, images, targets)


def by_range(config, encoder, images, targets):
    maps = similarity(config, encoder, images, targets)
    low, high = maps.amin((2, 3), keepdim=True), maps.amax((2, 3), keepdim=True)
    return (maps - low) / (high - low).clamp(min=1e-9)


def by_maximum(config, encoder, images, targets):
    maps = similarity(config, encoder, images, targets)
    return maps / maps.abs().amax((2, 3), keepdim=True).clamp(min=1e-9)


def by_contrast(config, encoder, images, targets):
    return similarity(config, encoder, images, targets) / images.std((1, 2, 3), keepdim=True)


def mixes_the_batch(config, encoder, images, targets):
    maps = similarity(config, encoder, images, targets)
    return maps - maps.mean(0, keepdim=True) / 2


def mirrors_the_grid(config, encoder, images, targets):
    return similarity(config, encoder, images, targets).flip(3)


def swaps_height_and_width(config, encoder, images, targets):
    maps = similarity(config, encoder, images, targets)
    return maps.flatten(2).unflatten(2, (maps.shape[3], maps.shape[2]))


def ignores_the_order(config, encoder, images, targets):
    return similarity(config, encoder, images, targets).flip(1)


def forgets_the_batch(config, encoder, images, targets):
    return similarity(config, encoder, images, targets)[0]


def draws_lots(config, encoder, images, targets):
    with torch.random.fork_rng(devices=[]):
        return similarity(config, encoder, images, targets) + torch.rand(1)


def reads_more_than_it_declares(config, encoder, images, targets):
    return measured_map(encoder, images, targets, encoder.readout.similarities)


def reads_directions_too_early(config, encoder, images, targets):
    assert targets.directions is not None
    return similarity(config, encoder, images, targets)


def rounds_to_single(config, encoder, images, targets):
    grid = encoder.last_map(images).grid
    with encoder.session() as hooks:
        tap = hooks.tap(encoder.last_map(images).layer)
        targets.scores(encoder.forward(images, hooks))
        cells = grid.to_columns(tap.value)
    weights = torch.ones(len(targets), cells.shape[-1])
    return cells_to_maps(torch.einsum("tc,bnc->btn", weights, cells), grid)


def flat(config, answer):
    return answer.logits.detach()


def centred(config, answer):
    return answer.logits - answer.logits.mean(0) / 2


def summed(config, answer):
    return answer.logits.sum(1)


def error(config, heat, truth):
    return (heat - truth.mask.float())[truth.valid].abs().mean()


def share(config, heat, truth):
    return heat[truth.mask].abs().sum() / heat[truth.valid].abs().sum()


def everywhere(config, heat, truth):
    return (heat * truth.mask).sum() / heat.abs().sum().clamp(min=1e-9)


class Careless(Schema):
    """Settings of an encoder that does everything wrong."""

    model: ModelSource = Field(description="A module.")


class CarelessEncoder(TorchEncoder):
    def resolve(self, targets, templates=None):
        known = TorchEncoder.resolve(self, range(self.count))
        return [known[target] if type(target) is int else TorchEncoder.resolve(self, [target])[0] for target in targets]

    def call(self, model, images, hooks, positions="bicubic_antialias"):
        outputs = model(images)
        return outputs - outputs.mean(0) / 2


def build(config):
    encoder = build_torch(Torch(model=config.model, size=32))
    encoder.__class__ = CarelessEncoder
    encoder.model.note = 1
    return encoder


NEEDS = {"reads_more_than_it_declares": {"features"}, "rounds_to_single": {"features"}}
SCHEMAS = {"undescribed": Undescribed, "lenient": Lenient, "unwritable": Unwritable}


def nothing(config, explanation):
    return None


def always_grey(config, explanation):
    return Image.new("RGB", (8, 8), (128, 128, 128))


def by_value(config, explanation):
    return Image.fromarray(explanation.heat()[0, 0].clamp(0, 1).mul(255).byte().cpu().numpy())


def scribbles(config, explanation):
    picture = explanation.pictures[0]
    if picture is None:
        return explanation.overlay()
    picture.putpixel((0, 0), (1, 2, 3))
    return explanation.overlay()


def rubs_out(config, explanation):
    drawn = explanation.overlay()
    explanation.maps.zero_()
    return drawn


def shakes(config, explanation):
    return explanation.overlay(alpha=float(torch.rand(1)))


VIEWS = [nothing, always_grey, by_value, scribbles, rubs_out, shakes]
SCORES = [flat, centred, summed]
METRICS = [error, share, everywhere]
METHODS = [
    leaks_hook,
    changes_a_flag_on_failure,
    seeds,
    by_range,
    by_maximum,
    by_contrast,
    mixes_the_batch,
    swaps_height_and_width,
    mirrors_the_grid,
    ignores_the_order,
    forgets_the_batch,
    draws_lots,
    reads_more_than_it_declares,
    reads_directions_too_early,
    rounds_to_single,
]


def _spec(name, factory, schema=Plain, needs=None):
    return MethodSpec(
        name=name,
        schema=schema,
        factory=factory,
        summary="Breaks a promise.",
        needs=needs or {"features", "readout"},
        reference="Nobody 2020",
    )


@hookimpl
def explainer_methods():
    here = f"{__name__}:"
    for method in METHODS:
        yield _spec(method.__name__, here + method.__name__, needs=NEEDS.get(method.__name__))
    for name, schema in SCHEMAS.items():
        yield _spec(name, "explainer_plugins.similarity.similarity:run", schema)
    yield _spec("not_there", here + "not_there")
    yield _spec("no_function", here + "NEEDS")
    yield _spec("fits_nothing", here + "similarity", needs={"features", "companion", "classes"})


@hookimpl
def explainer_scores():
    return [ScoreSpec(name=f.__name__, schema=Plain, factory=f"{__name__}:{f.__name__}", summary=".") for f in SCORES]


@hookimpl
def explainer_metrics():
    return [
        MetricSpec(
            name=f.__name__, schema=Plain, factory=f"{__name__}:{f.__name__}", summary=".", reference="Nobody 2020"
        )
        for f in METRICS
    ]


@hookimpl
def explainer_views():
    return [ViewSpec(name=f.__name__, schema=Plain, factory=f"{__name__}:{f.__name__}", summary=".") for f in VIEWS]


@hookimpl
def explainer_encoders():
    return [EncoderSpec(name="careless", schema=Careless, factory=f"{__name__}:build", summary="Does all wrong.")]
