"""The main job on the photographs and the network that come with the package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, cast

from explainer.config import make_run
from explainer.job import Job, Result
from explainer_registry import registry

if TYPE_CHECKING:
    from explainer.classifier import Classifier
    from explainer.explain import Explainer

ENCODER = "demo"
BESIDES = {"astronaut": ("space shuttle",)}
"""What else to ask of photographs that show several things, by their file name without the suffix."""

_SHOWN = 5


@dataclass(frozen=True)
class Shown:
    """One photograph, explained.

    Attributes:
        picture: The photograph.
        classes: The best classes, each with its probability, the best first.
        result: What was written.
    """

    picture: Path
    classes: tuple[tuple[str, float], ...]
    result: Result


def photographs() -> tuple[Path, ...]:
    """Find the photographs that come with the demo network.

    Returns:
        Their paths, sorted.

    Raises:
        RegistryError: The plugin of the demo network is not there.
    """
    # They lie beside the network, so that the core needs to know nothing but its name.
    package = registry().encoders.get(ENCODER).factory.partition(":")[0].rpartition(".")[0]
    folder = files(package) / "photos"
    return tuple(sorted(Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".jpg")))


def explain_photographs(out: Path) -> Iterator[Shown]:
    """Explain each photograph by every method that fits.

    The question is the network's own top class; of a photograph that shows several things more is asked.

    Args:
        out: Folder for what is written.

    Yields:
        Each photograph, once its files are written.

    Raises:
        ExplainerError: The network or its weights are not installed, or nothing can be written.
    """
    from explainer.explain import wrap

    pictures = photographs()
    explainer = wrap(ENCODER)
    methods = [fit.name for fit in explainer.methods() if fit.fits]
    for picture in pictures:
        classes = best_classes(explainer, picture)
        fields = {
            "pictures": [str(picture)],
            "model": ENCODER,
            "targets": [classes[0][0], *BESIDES.get(picture.stem, ())],
            "methods": methods,
            "out": out,
        }
        (result,) = Job(make_run(fields), explainer=explainer).results()
        yield Shown(picture, tuple((name, share) for _, name, share in classes), result)


def best_classes(explainer: Explainer, picture: Path) -> list[tuple[int, str, float]]:
    """Classify one picture.

    Args:
        explainer: A classifier.
        picture: Path of the picture.

    Returns:
        Index, name and probability of the best classes, the best first.
    """
    import torch

    from explainer.pictures import read

    encoder = cast("Classifier", explainer.encoder)
    with encoder.session() as hooks, torch.no_grad():
        outputs = encoder.forward(read(picture, encoder).images, hooks)
    best = outputs[0].float().softmax(dim=-1).topk(_SHOWN)
    pairs = zip(map(int, best.indices), map(float, best.values), strict=True)
    return [(index, encoder.name_of(index), share) for index, share in pairs]
