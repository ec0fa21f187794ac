"""The dataset of pictures with mask pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from explainer.bench.sample import Sample
from explainer.naming import counted
from explainer_plugins.masks.classes import VOID, Classes, read_classes
from explainer_plugins.masks.pairs import Pair, find_pairs
from explainer_plugins.masks.places import DataError
from explainer_plugins.masks.reading import Numbers, read_numbers, written
from explainer_plugins.masks.upright import is_drawn_turned, open_drawn, open_file

if TYPE_CHECKING:
    from explainer_plugins.masks import Voc

_MANY: Final = 4


@dataclass(frozen=True)
class _Entry:
    pair: Pair
    turned: bool


class VocDataset:
    """Pictures and masks of a folder.

    Names, text files and the heads of pictures are read and checked when it is made, pixels when they are asked for.

    Args:
        config: Where they are, and what their numbers mean.

    Raises:
        DataError: Something about the folder is not as it should be.
    """

    def __init__(self, config: Voc) -> None:
        folder = find_pairs(config)
        classes = read_classes(config.classes, folder.source, folder.is_voc)
        if classes is None:
            raise DataError(_nameless(folder.source, folder.pairs[0].mask))
        self._classes, self._void = classes, config.void
        self._known = frozenset((*range(len(classes.labels) + 1), *_given(config.void)))
        self._entries = [_Entry(pair, _turned(pair)) for pair in folder.pairs]
        self._name = f"voc:{folder.source.resolve().name}" + (f":{config.split}" if config.split else "")

    @property
    def name(self) -> str:
        """Such as "voc:VOC2012:val"."""
        return self._name

    @property
    def labels(self) -> Sequence[str]:
        """The names of the classes, in the order of their numbers."""
        return self._classes.labels

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: int, /) -> Sample:
        """Read a picture and its mask.

        Raises:
            ExplainerError: One of them cannot be read, or the mask holds a number without a name.
        """
        entry = self._entries[index]
        numbers = self._named(read_numbers(entry.pair.mask, self._classes, self._known), entry.pair.mask)
        picture = open_drawn(entry.pair.picture, entry.turned)
        present: list[int] = np.unique(numbers).tolist()
        masks = {self.labels[number - 1]: numbers == number for number in present if number not in (0, self._void)}
        valid = numbers != self._void if self._void in present else None
        return Sample(entry.pair.picture.stem, picture, masks, valid, counted(len(masks), "object"))

    def _named(self, numbers: Numbers, path: Path) -> Numbers:
        """Check that every number has a name; of one class without void also 255 is number 1."""
        present: set[int] = set(np.unique(numbers).tolist())
        if len(self.labels) == 1 and VOID in present and 1 not in present:
            if self._void == VOID and present <= self._known:
                raise DataError(
                    f"the mask '{path}' holds {VOID} but not 1: where {VOID} is the object ({self.labels[0]!r}), say "
                    "--set data.void=null; where it marks what is left undecided, nothing of the object is left, so "
                    "take the picture out"
                )
            if self._void is None:
                numbers, present = np.where(numbers == VOID, 1, numbers), present - {VOID} | {1}
        if present <= self._known:
            return numbers
        raise DataError(_unnamed(path, sorted(present - self._known), self._classes))


def build(config: Voc) -> VocDataset:
    """Build the dataset that a `Voc` describes.

    Raises:
        ExplainerError: Something about the folder is not as it should be.
    """
    return VocDataset(config)


def _given(number: int | None) -> tuple[int, ...]:
    return () if number is None else (number,)


def _turned(pair: Pair) -> bool:
    with open_file(pair.mask, "mask") as mask:
        return is_drawn_turned(pair.picture, mask.size, f"the mask '{pair.mask}'")


def _unnamed(path: Path, unnamed: list[int], classes: Classes) -> str:
    count = len(classes.labels)
    named = f"1 has a name ({classes.labels[0]!r}, from" if count == 1 else f"1 to {count} have names (from"
    numbers = f"the number{'s' if len(unnamed) > 1 else ''} {written(unnamed)}"
    message = f"the mask '{path}' holds {numbers}, but only {named} {classes.origin})"
    if unnamed == [VOID]:
        return f"{message}; say --set data.void={VOID} where it marks what is left undecided"
    if len(unnamed) >= _MANY and count == 1:
        return (
            f"{message}; numbers in between are soft edges, which drawing or resizing leaves; save the mask with two "
            "values only"
        )
    return f"{message}; name every number with the setting classes, or in classes.txt in the folder"


def _nameless(source: Path, mask: Path) -> str:
    message = (
        f"nothing names the classes in '{source}'; give them with the setting classes, such as "
        "--set data.classes=[dog,cat] "
        "where dogs are 1 in the masks and cats 2, or in a file classes.txt there, one on each line"
    )
    try:
        present = np.unique(read_numbers(mask, Classes((), ""), ())).tolist()
    except DataError:
        return message
    example = " (then --set data.classes=[dog] --set data.void=null)" if present == [0, VOID] else ""
    return f"{message}; the first mask, {mask.name}, holds {written(present)}{example}"
