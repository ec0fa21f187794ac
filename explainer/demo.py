"""The main job on the photographs, the scenes and the models that come with the package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, cast

from explainer.config import make_run
from explainer.job import Job, JobError, Result, slug
from explainer.selection import select
from explainer_registry import ExplainerError, registry

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor

    from explainer.bench.sample import Dataset
    from explainer.classifier import Classifier
    from explainer.explain import Explainer

PHOTOGRAPHS, SCENES = "demo", "stickers"
"""The models, and what they are asked about."""

BESIDES = {"astronaut": ("space shuttle",)}
"""What else to ask of photographs that show several things, by their file name without the suffix."""

PROMPTS = {
    87_626: ("a cat", "a pizza", "a dog"),
    781: ("a penguin", "a snowman", "a bear"),
    7_373: ("a horse", "a tractor", "a coffee", "an umbrella", "a guitar"),
}
"""What to ask of which scene of seed 0: all that is in it, and at the end something that is not."""

STORY = ("similarity", "gem", "gradcam")
"""The methods at the top of what is drawn of a scene: patches as CLIP leaves them, with GEM, and by gradients."""

_SHOWN = 5
_ENLARGED = 4
"""A scene is as small as the input of its model; it is enlarged so many times to be looked at."""


@dataclass(frozen=True)
class Shown:
    """One picture, explained.

    Attributes:
        picture: The photograph or scene.
        classes: The best classes or nouns, each with its probability, the best first.
        result: What was written.
    """

    picture: Path
    classes: Sequence[tuple[str, float]]
    result: Result


def load_models() -> tuple[dict[str, Explainer], tuple[str, ...]]:
    """Load the models of the demonstration, as many as there are.

    Returns:
        The models by name, and for each that is missing one sentence that says why.

    Raises:
        ExplainerError: None is there.
    """
    from explainer.explain import wrap

    models: dict[str, Explainer] = {}
    reasons: list[str] = []
    for name, what in ((PHOTOGRAPHS, "photographs"), (SCENES, "sticker scenes")):
        try:
            registry().encoders.get(name)  # which knows of plugins that are switched off
            models[name] = wrap(name)
        except ExplainerError as error:
            reasons.append(f"the {what} are left out: {error}")
    if not models:
        raise ExplainerError("\n".join(reasons))
    return models, tuple(reasons)


def photographs() -> tuple[Path, ...]:
    """Find the photographs that come with the demo network.

    Returns:
        Their paths, sorted.

    Raises:
        RegistryError: The plugin of the demo network is not there.
    """
    # They lie beside the network, so that the core needs to know nothing but its name.
    package = registry().encoders.get(PHOTOGRAPHS).factory.partition(":")[0].rpartition(".")[0]
    folder = files(package) / "photos"
    return tuple(sorted(Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".jpg")))


def explain_photographs(explainer: Explainer, out: Path) -> Iterator[Shown]:
    """Explain each photograph by every method that fits.

    The question is the network's own top class; of a photograph that shows several things more is asked.

    Args:
        explainer: The model for photographs.
        out: Folder for what is written.

    Yields:
        Each photograph, once its files are written.

    Raises:
        ExplainerError: Nothing can be written.
    """
    for picture in photographs():
        best = best_classes(explainer, picture)
        targets = (best[0][0], *BESIDES.get(picture.stem, ()))
        shares = [(name, share) for _, name, share in best]
        yield Shown(picture, shares, _explained(explainer, PHOTOGRAPHS, picture, targets, _fitting(explainer), out))


def explain_scenes(explainer: Explainer, out: Path) -> Iterator[Shown]:
    """Ask a few scenes of stickers for what is in them, and for something else, by every method that fits.

    Args:
        explainer: The model for scenes.
        out: Folder for what is written, also the scenes themselves.

    Yields:
        Each scene, once its files are written.

    Raises:
        ExplainerError: Nothing can be written.
    """
    options = select("datasets", SCENES, {"scenes": max(PROMPTS) + 1}).options
    scenes: Dataset = registry().datasets.load(SCENES)(options)
    methods = sorted(_fitting(explainer), key=lambda name: STORY.index(name) if name in STORY else len(STORY))
    for number, prompts in PROMPTS.items():
        scene = scenes[number]
        picture = out / f"{slug(' '.join(scene.masks))}.png"
        _write(scene.picture, picture)
        best = best_nouns(explainer, picture, scenes.labels)
        yield Shown(picture, best, _explained(explainer, SCENES, picture, prompts, methods, out))


def best_classes(explainer: Explainer, picture: Path) -> list[tuple[int, str, float]]:
    """Classify one picture.

    Args:
        explainer: A classifier.
        picture: Path of the picture.

    Returns:
        Index, name and probability of the best classes, the best first.
    """
    encoder = cast("Classifier", explainer.encoder)
    best = _outputs(explainer, picture)[0].float().softmax(dim=-1).topk(_SHOWN)
    pairs = zip(map(int, best.indices), map(float, best.values), strict=True)
    return [(index, encoder.name_of(index), share) for index, share in pairs]


def best_nouns(explainer: Explainer, picture: Path, nouns: Sequence[str]) -> list[tuple[str, float]]:
    """Find what is most likely in one picture.

    Args:
        explainer: A model that reads text.
        picture: Path of the picture.
        nouns: What may be in it.

    Returns:
        Noun and probability of the best, the best first.
    """
    import torch

    encoder = explainer.encoder
    asked = torch.stack([target.direction for target in encoder.resolve(nouns)])
    best = encoder.log_probs(_outputs(explainer, picture), asked[None])[0].exp().topk(_SHOWN)
    return [(nouns[int(place)], float(share)) for place, share in zip(best.indices, best.values, strict=True)]


def _outputs(explainer: Explainer, picture: Path) -> Tensor:
    import torch

    from explainer.pictures import read

    encoder = explainer.encoder
    with encoder.session() as hooks, torch.no_grad():
        return encoder.forward(read(picture, encoder).images, hooks)


def _fitting(explainer: Explainer) -> list[str]:
    return [fit.name for fit in explainer.methods() if fit.fits]


def _explained(
    explainer: Explainer, model: str, picture: Path, targets: Sequence[int | str], methods: Sequence[str], out: Path
) -> Result:
    fields = {"pictures": [str(picture)], "model": model, "targets": targets, "methods": methods, "out": out}
    (result,) = Job(make_run(fields), explainer=explainer).results()
    return result


def _write(scene: Image, picture: Path) -> None:
    from PIL.Image import Resampling

    enlarged = scene.resize((scene.width * _ENLARGED, scene.height * _ENLARGED), Resampling.LANCZOS)
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        enlarged.save(picture)
    except OSError as error:
        raise JobError(f"cannot write to '{picture.parent}': {error.strerror or error}") from error
