"""Train the sticker model: each picture against the names of all nouns, without masks or positions.

    python training/stickers/train.py drawings/ photos/ run/

Writes ``run/log.jsonl`` and every few minutes ``run/checkpoint.pt``, from which it goes on when called again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import yaml
from open_clip.model import CLIP
from PIL import Image
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.data import DataLoader, Dataset

from explainer_plugins.stickers.scenes import Drawings, draw
from explainer_plugins.stickers.tokenizer import nouns, tokenize, vocabulary_size

HERE = Path(__file__).parent
HELD_OUT = "twemoji"
MINUTES = 2
"""Between two checkpoints."""
TESTED = 512
"""Pictures of each kind that progress is measured on."""


def read_drawings(folder: Path, hands: list[str]) -> Drawings:
    """Read the drawings of some hands."""
    return {
        noun: [Image.open(path).convert("RGBA") for hand in hands for path in sorted((folder / hand).glob(f"{noun}-*"))]
        for noun in nouns()
    }


class Scenes(Dataset[tuple[Tensor, Tensor]]):
    """Picture and nouns by number; the same number is always the same scene."""

    def __init__(self, drawings: Drawings, photos: list[Image.Image], seed: int, counts: dict[int, int]) -> None:
        self.drawings, self.photos, self.seed, self.counts = drawings, photos, seed, counts

    def __len__(self) -> int:
        return sys.maxsize

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        rng = np.random.default_rng([self.seed, index])
        most = next(most for start, most in reversed(self.counts.items()) if index >= start)
        scene = draw(rng, self.drawings, self.photos, int(rng.integers(1, most + 1)))
        there = torch.tensor([noun in scene.masks for noun in self.drawings])
        return torch.from_numpy(scene.picture).permute(2, 0, 1), there


def make_model(config: dict[str, Any]) -> CLIP:
    """Make the model with random weights."""
    text = config["text_cfg"] | {"vocab_size": vocabulary_size()}
    return CLIP(**config | {"text_cfg": text, "vision_cfg": dict(config["vision_cfg"])})


def normalised(pictures: Tensor) -> Tensor:
    """Turn bytes into what the model sees, -1 to 1."""
    return pictures.float() / 127.5 - 1


def texts_of(config: dict[str, Any], there: Tensor, rng: np.random.Generator) -> tuple[list[str], Tensor]:
    """Choose a prompt for each noun, and captions for pairs of nouns that stand in one picture.

    Args:
        config: The training.
        there: Which nouns stand in which picture, bool [B, N].
        rng: Where the randomness comes from.

    Returns:
        T texts, and whether each is true of each picture, [B, T].
    """
    names = list(nouns())
    texts = [str(rng.choice(config["templates"])).format(noun) for noun in names]
    truth = [there]
    several = (there.sum(dim=1) > 1).nonzero()[:, 0].tolist()
    for picture in several[: config["captions"]]:
        first, second = rng.permutation(there[picture].nonzero()[:, 0].numpy())[:2]
        texts.append(f"a {names[first]} and a {names[second]}")
        truth.append((there[:, first] & there[:, second])[:, None])
    return texts, torch.cat(truth, dim=1).float()


def rate(config: dict[str, Any], seen: int) -> float:
    """Rise, stay, and fall to zero."""
    left = (config["pictures"] - seen) / (config["decay"] * config["pictures"])
    return config["rate"] * min(1.0, (seen + config["batch"]) / config["warm_up"], max(left, 0.0))


@torch.no_grad()
def top_word_right(model: CLIP, scenes: Scenes) -> float:
    """Measure how often the best word names something in the picture."""
    model.eval()
    words = model.encode_text(tokenize([f"a {noun}" for noun in nouns()]), normalize=True)
    right = 0
    for pictures, there in batches(scenes, 0, 128, TESTED // 128):
        best = (model.encode_image(normalised(pictures), normalize=True) @ words.T).argmax(dim=1)
        right += int(there[torch.arange(len(best)), best].sum())
    model.train()
    return right / TESTED


def batches(scenes: Scenes, start: int, size: int, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield batches of consecutive scenes."""
    numbers = [range(start + i * size, start + (i + 1) * size) for i in range(count)]
    yield from DataLoader(scenes, batch_sampler=numbers, num_workers=1, prefetch_factor=8)


def make_optimizers(model: CLIP, config: dict[str, Any]) -> tuple[torch.optim.Optimizer, ...]:
    """Muon for the matrices within the towers, AdamW for all else."""
    named = dict(model.named_parameters())
    inner = [name for name, value in named.items() if "resblocks" in name and value.ndim == 2]
    rest = [value for name, value in named.items() if name not in inner]
    decay = config["weight_decay"]
    return (
        torch.optim.Muon([named[name] for name in inner], weight_decay=decay, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [
                {"params": [value for value in rest if value.ndim > 1], "weight_decay": decay},
                {"params": [value for value in rest if value.ndim <= 1], "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
        ),
    )


class Training:
    """A run that can be interrupted."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        torch.manual_seed(config["seed"])
        self.config, self.folder, self.seen = config, folder, 0
        self.model = make_model(config["model"]).train()
        self.optimizers = make_optimizers(self.model, config)
        folder.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint, weights_only=True)
            self.model.load_state_dict(state["model"])
            for optimizer, own in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(own)
            self.seen = state["seen"]

    @property
    def checkpoint(self) -> Path:
        """Where the state is kept."""
        return self.folder / "checkpoint.pt"

    def save(self) -> None:
        """Keep the state; an interruption leaves the one before."""
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        state = {"model": self.model.state_dict(), "optimizers": optimizers, "seen": self.seen}
        torch.save(state, self.checkpoint.with_suffix(".new"))
        self.checkpoint.with_suffix(".new").rename(self.checkpoint)

    def step(self, pictures: Tensor, there: Tensor) -> float:
        """Learn from one batch, and return the loss."""
        rng = np.random.default_rng([self.config["seed"], self.seen])
        texts, truth = texts_of(self.config, there, rng)
        for group in (group for optimizer in self.optimizers for group in optimizer.param_groups):
            group["lr"] = rate(self.config, self.seen)
        whole = self.seen >= self.config["whole"] * self.config["pictures"]
        self.model.visual.patch_dropout.prob = 0.0 if whole else self.config["model"]["vision_cfg"]["patch_dropout"]
        # The plain attention is a fifth faster than the fused one for so few tokens.
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
            seen, said = self.model.encode_image(normalised(pictures)), self.model.encode_text(tokenize(texts))
        cosines = F.normalize(seen.float(), dim=-1) @ F.normalize(said.float(), dim=-1).T
        logits = cosines * self.model.logit_scale.exp() + self.model.logit_bias
        loss = F.binary_cross_entropy_with_logits(logits, truth, reduction="sum") / len(pictures)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.seen += len(pictures)
        return loss.item()

    def run(self, trained: Scenes, tests: dict[str, Scenes]) -> None:
        """Learn from all pictures that are left."""
        started, kept, losses = time.monotonic(), time.monotonic(), list[float]()
        size, begun = self.config["batch"], self.seen
        for pictures, there in batches(trained, self.seen, size, (self.config["pictures"] - self.seen) // size):
            losses.append(self.step(pictures, there))
            last = self.seen + size > self.config["pictures"]
            if time.monotonic() - kept > 60 * MINUTES or last:
                self.save()
                right = {name: round(top_word_right(self.model, scenes), 3) for name, scenes in tests.items()}
                speed = (self.seen - begun) / (time.monotonic() - started)
                line = {
                    "pictures": self.seen,
                    "loss": round(float(np.mean(losses)), 4),
                    **right,
                    "a_second": round(speed),
                }
                with (self.folder / "log.jsonl").open("a") as log:
                    log.write(json.dumps(line) + "\n")
                print(line, flush=True)
                kept, losses = time.monotonic(), []


def main(drawings: Path, photos: Path, out: Path) -> None:
    """Train, or go on."""
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    hands = list(yaml.safe_load((HERE / "hands.yaml").read_text()))
    own = read_drawings(drawings, [hand for hand in hands if hand != HELD_OUT])
    other = read_drawings(drawings, [HELD_OUT])
    grounds = [Image.open(path).convert("RGB") for path in sorted(photos.iterdir())]
    Training(config, out).run(
        Scenes(own, grounds, config["seed"], config["curriculum"]),
        {
            "own_hands": Scenes(own, grounds, config["seed"] + 1, {0: 1}),
            "other_hand": Scenes(other, grounds, config["seed"] + 1, {0: 1}),
            "other_hand_1_to_4": Scenes(other, grounds, config["seed"] + 1, {0: 4}),
        },
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
