"""What tests of models and plugins are made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from explainer.explain import Explainer, wrap
from explainer.proof import Proof

TINY = 2e-3
"""Below this a weight counts as not there: norms that start at zero, layer scales of 1e-5."""

_NOT_SCALES = ("bias", "pos", "token", "embed")


def assert_layout(
    model: Explainer | nn.Module | str, size: int | tuple[int, int] | None = None, layer: str | nn.Module | None = None
) -> Proof:
    """Assert that a model's maps lie on the picture as they are said to; see :func:`explainer.proof.prove`.

    Args:
        model: An explainer, or what ``wrap`` makes one of without settings.
        size: Height and width of the input, or the side of a square. By default the model's own, and where it takes
            them a rectangle and the same rectangle upright.
        layer: Dotted name of one layer, or the module. By default those that methods take.

    Returns:
        The proof, which also says what was not tried.

    Raises:
        AssertionError: It does not hold, or nothing can be told; the message is the report.
        ExplainerError: The model cannot be wrapped, or has no such size or layer.
    """
    explainer = model if isinstance(model, Explainer) else wrap(model)
    proof = explainer.prove(size, layer)
    if not proof.holds:
        raise AssertionError(f"{explainer.encoder.name}\n{proof}")
    return proof


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
