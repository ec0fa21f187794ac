"""A plugin whose methods fail in different ways, and a score that takes a setting."""

from __future__ import annotations

from explainer_registry import ExplainerError, MethodSpec, Schema, ScoreSpec, hookimpl


class Nothing(Schema):
    """No settings."""


class Scaled(Schema):
    """A factor."""

    factor: float = 1.0


def dislikes_dark(config, encoder, images, targets):
    """Refuses a batch that holds a dark picture."""
    with encoder.session() as hooks:
        targets.scores(encoder.forward(images, hooks))
    if (images.mean(dim=(1, 2, 3)) < -0.9).any():
        raise ExplainerError("one of the pictures is too dark")
    ramp = images.new_tensor(range(49)).view(1, 1, 7, 7)
    return ramp.expand(len(images), len(targets), -1, -1)


def flat(config, encoder, images, targets):
    """Gives a map that points nowhere."""
    with encoder.session() as hooks:
        targets.scores(encoder.forward(images, hooks))
    return images.new_zeros(len(images), len(targets), 2, 2)


def refuses(config, encoder, images, targets):
    """Refuses every request."""
    raise ExplainerError("this cannot work")


def breaks(config, encoder, images, targets):
    """Has a bug."""
    raise ZeroDivisionError("a bug")


def stopped(config, encoder, images, targets):
    """Is interrupted."""
    raise KeyboardInterrupt


def two_maps(config, encoder, images, targets):
    """Gives two maps for each target."""
    maps = dislikes_dark(config, encoder, images, targets)
    targets.split(["left", "right"])
    return maps.repeat_interleave(2, dim=1)


def scaled(config, answer):
    """Multiply the logits."""
    return config.factor * answer.logits


@hookimpl
def explainer_methods():
    functions = (dislikes_dark, flat, refuses, breaks, stopped, two_maps)
    return [
        MethodSpec(
            name=function.__name__,
            schema=Nothing,
            factory=f"misbehaving_methods:{function.__name__}",
            summary=function.__doc__,
            needs=frozenset({"gradient"}),
            reference="none",
        )
        for function in functions
    ]


@hookimpl
def explainer_scores():
    return [ScoreSpec(name="scaled", schema=Scaled, factory="misbehaving_methods:scaled", summary="Scaled.")]
