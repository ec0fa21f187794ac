"""The assertion that a model's maps lie on the picture."""

from __future__ import annotations

from torch import nn

from explainer.explain import Explainer, wrap
from explainer.proof import Proof


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
