"""Measure what the shipped model recognises, on drawings by the hand that it never saw.

    python training/stickers/evaluate.py

Prints how often the top word names the only object, the mean average precision of presence in scenes of one to four
objects, and the nouns that are hardest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torchmetrics.functional.classification import multilabel_average_precision

import explainer
from explainer.pictures import read
from explainer_plugins.stickers.dataset import photographs
from explainer_plugins.stickers.drawings import drawings
from explainer_plugins.stickers.scenes import Scene, draw

EACH, SEVERAL, SEED = 20, 1000, 3000
"""Scenes of each noun alone, scenes of one to four, and their seed, which no other scenes have."""
BATCH = 100


def main() -> None:
    """Measure and print."""
    own, photos = drawings(), photographs()
    nouns = list(own)
    alone = [
        draw(np.random.default_rng([SEED, i, j]), {noun: own[noun]}, photos, 1)
        for i, noun in enumerate(nouns)
        for j in range(EACH)
    ]
    logits, truth = answers(alone, nouns)
    right = truth.gather(1, logits.argmax(dim=1, keepdim=True)).float()
    print(f"top word right, {len(alone)} scenes of one object, {len(nouns)} nouns: {interval(right[:, 0])}")
    several = [draw(np.random.default_rng([SEED + 1, i]), own, photos, 1 + i % 4) for i in range(SEVERAL)]
    logits, truth_of_several = answers(several, nouns)
    top = truth_of_several.gather(1, logits.argmax(dim=1, keepdim=True)).float()
    precision = multilabel_average_precision(logits, truth_of_several.long(), num_labels=len(nouns), average="macro")
    print(f"top word in the picture, {SEVERAL} scenes of 1 to 4 objects: {interval(top[:, 0])}")
    print(f"mean average precision of presence, the same scenes: {precision:.3f}")
    hardest(nouns, *answers(alone, nouns))


def answers(scenes: list[Scene], nouns: list[str]) -> tuple[Tensor, Tensor]:
    """Ask the model about every noun.

    Returns:
        Logits and whether the noun is there, both [scenes, nouns].
    """
    asked = explainer.wrap("stickers")
    truth = torch.tensor([[noun in scene.masks for noun in nouns] for scene in scenes])
    return torch.cat(list(batches(asked, scenes, nouns))), truth


def batches(asked: explainer.Explainer, scenes: list[Scene], nouns: list[str]) -> Iterator[Tensor]:
    """Yield the logits of some scenes at a time."""
    encoder = asked.encoder
    directions = torch.stack([target.direction for target in encoder.resolve([f"a {noun}" for noun in nouns])])
    for start in range(0, len(scenes), BATCH):
        images = read([scene.picture for scene in scenes[start : start + BATCH]], encoder).images
        with encoder.session() as hooks, torch.no_grad():
            outputs = encoder.forward(images, hooks)
            yield encoder.logits(outputs, directions.expand(len(images), -1, -1))


def interval(values: Tensor) -> str:
    """Write a mean with its 95 % interval by the normal approximation."""
    half = 1.96 * float(values.std()) / len(values) ** 0.5
    return f"{float(values.mean()):.3f} +- {half:.3f}"


def hardest(nouns: list[str], logits: Tensor, truth: Tensor) -> None:
    """Print the nouns that are named least often, with what is said in their place."""
    said = [nouns[i] for i in logits.argmax(dim=1).tolist()]
    there = [nouns[i] for i in truth.float().argmax(dim=1).tolist()]
    shares = {noun: np.mean([s == t for s, t in zip(said, there, strict=True) if t == noun]) for noun in nouns}
    for noun in sorted(nouns, key=lambda noun: shares[noun])[:20]:
        wrong = Counter(s for s, t in zip(said, there, strict=True) if t == noun and s != t)
        print(f"{shares[noun]:5.0%}  {noun}: {', '.join(f'{word} {n}' for word, n in wrong.most_common(3))}")


if __name__ == "__main__":
    main()
