"""Pictures with true masks: what a dataset gives and a metric gets. Importing this imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from PIL.Image import Image
    from torch import Tensor


@dataclass(frozen=True)
class Sample:
    """A picture and where its objects are.

    Attributes:
        name: For messages and file names.
        picture: RGB.
        masks: By label, the pixels of all objects of that label, [H, W] of the picture's size, never empty.
        valid: Pixels that count, [H, W]; None for all of them.
        group: What results are also shown by, such as "3 objects"; empty for nothing.
    """

    name: str
    picture: Image
    masks: Mapping[str, npt.NDArray[np.bool_]]
    valid: npt.NDArray[np.bool_] | None = None
    group: str = ""


class Dataset(Protocol):
    """Pictures with true masks; the same picture each time for the same number."""

    @property
    def name(self) -> str:
        """What results call it."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """Every label that a mask can have."""
        ...

    def __len__(self) -> int:
        """Number of pictures."""
        ...

    def __getitem__(self, index: int, /) -> Sample:
        """Give one picture."""
        ...


@dataclass(frozen=True)
class Truth:
    """What a map is measured against.

    Attributes:
        mask: [H, W], True on the object that was asked about.
        valid: [H, W], True where pixels count.
    """

    mask: Tensor
    valid: Tensor
