"""Which labels a model can be asked about, and what counts on a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import torch
from PIL import ExifTags
from torch import Tensor

from explainer.bench.results import BenchError
from explainer.bench.sample import Dataset, Sample, Truth
from explainer.encoder import Encoder
from explainer.frame import Frame
from explainer.heat import seen
from explainer.target import Target, TargetError


@dataclass(frozen=True)
class Vocabulary:
    """What a model can be asked.

    Attributes:
        targets: By label.
        unknown: By label that it cannot be asked about, why not.
    """

    targets: Mapping[str, Target]
    unknown: Mapping[str, str]

    @property
    def directions(self) -> Tensor:
        """[1, L, D], the directions of the known labels."""
        return torch.stack([target.direction for target in self.targets.values()])[None]


def vocabulary(encoder: Encoder, dataset: Dataset, templates: str | Sequence[str] | None) -> Vocabulary:
    """Find out which labels a model can be asked about.

    Args:
        encoder: The model.
        dataset: Whose labels.
        templates: Prompt templates, for models that read text.

    Raises:
        BenchError: The model cannot be asked about any of them.
    """
    labels = list(dataset.labels)
    if not labels:
        raise BenchError(f"the dataset '{dataset.name}' has no labels, so there is nothing to ask")
    try:
        return Vocabulary(dict(zip(labels, encoder.resolve(labels, templates), strict=True)), {})
    except TargetError:  # which of them it was is found one by one
        targets: dict[str, Target] = {}
        unknown: dict[str, str] = {}
    for label in labels:
        try:
            (targets[label],) = encoder.resolve([label], templates)
        except TargetError as error:
            unknown[label] = str(error)
    if not targets:
        label, reason = next(iter(unknown.items()))
        raise BenchError(
            f"{encoder.name} cannot be asked about any of the {len(labels)} labels of the dataset '{dataset.name}'; "
            f"of '{label}' it says: {reason}"
        )
    return Vocabulary(targets, unknown)


def check(sample: Sample, labels: Set[str], dataset: str) -> None:
    """Check that a sample is what a dataset has to give.

    Args:
        sample: The sample.
        labels: The dataset's labels.
        dataset: Its name.

    Raises:
        BenchError: A mask or a label is not what it has to be.
    """
    about, size = f"the dataset '{dataset}', sample '{sample.name}'", sample.picture.size[::-1]
    turned: int = sample.picture.getexif().get(ExifTags.Base.Orientation, 1)
    if turned != 1:
        raise BenchError(
            f"{about}: the picture is stored turned (EXIF orientation {turned}), and masks lie on what is seen; give "
            "ImageOps.exif_transpose(picture)"
        )
    masks = {f"the mask of '{label}'": mask for label, mask in sample.masks.items()}
    for what, mask in {**masks, "valid": sample.valid}.items():
        if mask is not None and (mask.dtype != np.bool_ or mask.shape != size):
            raise BenchError(
                f"{about}: {what} has to be bool of the picture's height and width {list(size)}; it is {mask.dtype} of "
                f"shape {list(mask.shape)}"
            )
    for label, mask in sample.masks.items():
        if not mask.any():
            raise BenchError(f"{about}: the mask of '{label}' is empty; leave out what is not in the picture")
        if label not in labels:
            raise BenchError(f"{about}: '{label}' is not among the dataset's labels")


@dataclass(frozen=True)
class Objects:
    """What a picture is measured with.

    Attributes:
        truths: By label.
        unseen: How many known labels were left out because the model sees none of their pixels.
        filling: How many were left out because they fill all that the model sees.
    """

    truths: Mapping[str, Truth]
    unseen: int
    filling: int


def objects(sample: Sample, known: Mapping[str, object], frame: Frame) -> Objects:
    """Find the objects that maps of a picture can be measured against.

    Pixels that the model never saw do not count: no map says anything about them.

    Args:
        sample: The picture and its masks.
        known: The labels that the model can be asked about.
        frame: What the model sees of the picture.
    """
    valid = seen([frame], frame.size, torch.device("cpu"))[0, 0]
    if sample.valid is not None:
        valid &= torch.tensor(sample.valid)
    inside = int(valid.sum())
    truths: dict[str, Truth] = {}
    unseen = filling = 0
    for label, mask in sample.masks.items():
        if label not in known:
            continue
        visible = torch.tensor(mask) & valid
        count = int(visible.sum())
        if count == 0:
            unseen += 1
        elif count == inside:
            filling += 1
        else:
            truths[label] = Truth(visible, valid)
    return Objects(truths, unseen, filling)
