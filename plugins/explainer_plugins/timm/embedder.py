"""timm models without a classifier: what is explained is their embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from explainer.encoder import EncoderError, observe
from explainer.geometry import Geometry
from explainer.layout import Grid
from explainer.probe import Forward
from explainer.readout import Readout
from explainer_plugins.timm.readout import Head, cell_readout


@dataclass(frozen=True)
class Output:
    """What a model without a classifier gives.

    Attributes:
        shape: Shape of the output, batch first.
        grid: How it lies on the picture where the model does not pool; None where it is [B, D].
    """

    shape: tuple[int, ...]
    grid: Grid | None

    @property
    def width(self) -> int:
        """D, the width of the embedding."""
        first = self.grid is not None and self.grid.layout in ("NCHW", "NCL")
        return self.shape[1 if first else -1]

    def pooled(self, output: Tensor) -> Tensor:
        """Average an output, of any input size, over its cells and without its prefix tokens: [B, D]."""
        if self.grid is None:
            return output
        if self.grid.layout == "NCHW":
            return output.mean(dim=(2, 3))
        if self.grid.layout == "NHWC":
            return output.mean(dim=(1, 2))
        tokens = output.transpose(1, 2) if self.grid.layout == "NCL" else output
        return tokens[:, self.grid.prefix :].mean(dim=1)


def output_of(name: str, model: nn.Module, forward: Forward, size: tuple[int, int]) -> Output:
    """Find out what a model without a classifier gives.

    Args:
        name: Name of the encoder, for messages.
        model: The model.
        forward: Runs all of it.
        size: Height and width of the input.

    Raises:
        EncoderError: It gives no embedding, and no map that could be averaged to one.
    """
    seen = observe(name, model, forward, size)
    if len(seen.output) == 2:
        return Output(seen.output, None)
    grid = next((step.grid for step in reversed(seen.steps) if not step.name), None)
    if grid is None:
        raise EncoderError(
            f"{name} gives an output of shape {list(seen.output)}, which is neither an embedding [B, D] nor a map of "
            "the picture; wrap a module that gives an embedding"
        )
    return Output(seen.output, grid)


def single(output: object, name: str) -> Tensor:
    """Check that a model gives one tensor.

    Raises:
        EncoderError: It gives something else.
    """
    if isinstance(output, Tensor):
        return output
    raise EncoderError(
        f"{name} gives a {type(output).__name__}, where an embedding [B, D] was expected; wrap a module that gives one"
    )


def embedding_readout(model: nn.Module, features: Geometry, output: Output) -> Readout | None:
    """Read cells through what a timm model without a classifier does behind its features.

    Args:
        model: A timm model.
        features: Geometry of its ``forward_features``.
        output: What the model gives.

    Returns:
        The readout; None where a single cell cannot pass, as where cells are merged.
    """
    run: Any = getattr(model, "forward_head", None)
    heads: list[Head] = [lambda maps: output.pooled(run(maps))] if run is not None else []
    if features.probe.output == output.shape:
        heads.append(output.pooled)  # models that give their features have no head, or one that raises
    found = (cell_readout(head, features, model, lambda directions: directions) for head in heads)
    return next((readout for readout in found if readout is not None), None)
