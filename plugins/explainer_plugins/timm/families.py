"""What the layers of a timm model do not show of themselves, one line for each family."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Family:
    """Facts about the models of one class.

    Attributes:
        why: What the layers do not show.
        only_last_cells: Whether only the layers with as many cells as the last map are in the order of the picture.
        scales: Whether a picture of any size is brought to the model's own inside, so that the cells stay the same.
    """

    why: str
    only_last_cells: bool = False
    scales: bool = False


_STATES = Family("the norms before the last one are over hidden states, not over cells", only_last_cells=True)
FAMILIES = {
    "CrossVit": Family("each branch scales the picture to its own size first", scales=True),
    "EfficientViM": _STATES,
    "EfficientViMDistilled": _STATES,
    "Hiera": Family("the tokens of the earlier stages are kept mask unit by mask unit", only_last_cells=True),
    "Nest": Family("the earlier levels are kept block by block", only_last_cells=True),
}
_ORDINARY = Family("everything is seen in a run")


def family_of(model: nn.Module) -> Family:
    """Return what is known of the family of a model.

    Args:
        model: A timm model.
    """
    return FAMILIES.get(type(model).__name__, _ORDINARY)
