"""Small models with weights that hide nothing, and the noise to try them on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

TINY = 2e-3
"""Below this a weight counts as not there: norms that start at zero, layer scales of 1e-5."""

_NOT_SCALES = ("bias", "pos", "token", "embed")


SIDE = 32
"""Height and width of the input of the tiny models."""

_CONTEXT, _WORDS = 12, 100  # tokens of a text, and how many different ones there are


class TinyCNN(nn.Module):
    """Two convolutions, a batch norm and a linear classifier behind an average.

    Args:
        classes: How many.
        head: From the averaged channels [B, 16] to the logits; linear by default.
    """

    def __init__(self, classes: int = 5, head: nn.Module | None = None) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.body = nn.Sequential(nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(inplace=True))
        self.drop = nn.Dropout(0.3)
        self.head = head or nn.Linear(16, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Classify: [B, 3, H, W] to [B, classes]."""
        return self.head(self.drop(self.body(self.stem(images)).mean(dim=(2, 3))))


def tiny_cnn(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build a plain torch classifier of five classes: ``wrap(tiny_cnn(), size=32)``.

    Args:
        seed: Another seed gives other weights.
        dtype: Of the weights. They have the same values in float64, so that results can be compared.

    Returns:
        The module, in evaluation mode; takes [B, 3, H, W], made for 32 x 32.
    """
    return _seeded(TinyCNN, seed, dtype)


def tiny_deep_head(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build a `tiny_cnn` with a hidden layer in its head, so that no cell can be read as the model's output.

    Args:
        seed: As for `tiny_cnn`.
        dtype: As for `tiny_cnn`.
    """
    return _seeded(lambda: TinyCNN(head=nn.Sequential(nn.Linear(16, 12), nn.GELU(), nn.Linear(12, 5))), seed, dtype)


def tiny_vit(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build a vision transformer of timm with five classes, a class token and three blocks: ``wrap(tiny_vit())``.

    Args:
        seed: As for `tiny_cnn`.
        dtype: As for `tiny_cnn`.

    Returns:
        The module, in evaluation mode; made for 32 x 32, with patches of 8 x 8.
    """
    import timm

    create = cast("Callable[..., nn.Module]", timm.create_model)
    size: dict[str, int] = {"img_size": SIDE, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 2}
    return _seeded(lambda: create("vit_tiny_patch16_224", pretrained=False, num_classes=5, **size), seed, dtype)


def tiny_clip(seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Build a CLIP of open_clip: ``wrap(tiny_clip(), tokenizer=tiny_tokenizer)``.

    Args:
        seed: As for `tiny_cnn`.
        dtype: As for `tiny_cnn`.

    Returns:
        The module, in evaluation mode; made for 32 x 32, with patches of 8 x 8 and an embedding of 24.
    """
    import open_clip  # pyright: ignore[reportMissingTypeStubs]

    library: Any = open_clip
    vision = {"layers": 3, "width": 32, "head_width": 16, "patch_size": 8, "image_size": SIDE}
    text = {"context_length": _CONTEXT, "vocab_size": _WORDS, "width": 32, "heads": 2, "layers": 1}

    def make() -> nn.Module:
        return library.CLIP(24, library.CLIPVisionCfg(**vision), library.CLIPTextCfg(**text))

    clip = _seeded(make, seed, dtype)
    look = {"size": SIDE, "mode": "RGB", "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bicubic"}
    library.set_model_preprocess_cfg(clip, {**look, "resize_mode": "shortest", "fill_color": 0})
    return clip


def tiny_tokenizer(texts: str | Sequence[str]) -> Tensor:
    """Turn texts into numbers without a vocabulary, for `tiny_clip`: one for each letter, and one for the end.

    Args:
        texts: One text, or several.

    Returns:
        [n, 12], int64, padded with 0; the end has the highest number.
    """
    several = [texts] if isinstance(texts, str) else texts
    rows = torch.zeros(len(several), _CONTEXT, dtype=torch.int64)
    for row, text in zip(rows, several, strict=True):
        numbers = [*(1 + ord(letter) % (_WORDS - 2) for letter in text[: _CONTEXT - 1]), _WORDS - 1]
        row[: len(numbers)] = torch.tensor(numbers)
    return rows


def noise(batch: int, height: int = SIDE, width: int | None = None, seed: int = 0) -> Tensor:
    """Make preprocessed pictures of noise with a bright square that lies elsewhere in each.

    Args:
        batch: How many.
        height: In pixels.
        width: In pixels; as the height by default.
        seed: Which noise.

    Returns:
        [batch, 3, height, width], standard normal, but for the square.
    """
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(batch, 3, height, width or height, generator=generator, device="cpu")
    down, across = images.shape[2] // 4, images.shape[3] // 4
    for index, image in enumerate(images):
        top, left = index % 4 * down, (index + 1) * 5 % 4 * across
        image[:, top : top + down, left : left + across] += 2
    return images


@contextmanager
def random_numbers(seed: int) -> Generator[None, None, None]:
    """Let torch draw other random numbers on the CPU, and go on afterwards as if nothing had been drawn.

    Args:
        seed: Which.
    """
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _seeded(make: Callable[[], nn.Module], seed: int, dtype: torch.dtype) -> nn.Module:
    """Build a module from a seed, leaving torch's own random numbers as they were."""
    with random_numbers(seed), torch.inference_mode(False):
        return perturb(make(), seed).to(dtype).eval()


@torch.no_grad()
def perturb(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give the weights of a freshly built model that start at one value ordinary values, in place.

    Fresh weights are a poor test: classifiers, biases and the last norms of residual branches are often zero and
    layer scales 1e-5, so that much of the model does nothing. Constant weights are varied by a tenth; those that are
    zero or tiny become 0.5 (scales) or noise (biases, positions, tokens, matrices). Others are left as they are.

    Args:
        model: Any module.
        seed: Which noise.

    Returns:
        The same module.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        if not weight.is_floating_point():
            continue
        noise = torch.randn(weight.shape, generator=generator).to(weight)
        if weight.abs().max() < TINY:
            weight.copy_(_ordinary(name.rpartition(".")[2], noise))
        elif weight.numel() > 1 and weight.min() == weight.max():
            weight.mul_(1 + noise / 10)
    return model


def _ordinary(name: str, noise: Tensor) -> Tensor:
    if any(word in name for word in _NOT_SCALES):
        return noise / 10
    if noise.squeeze().dim() > 1:
        return noise / noise[0].numel() ** 0.5
    return 0.5 + noise / 10
