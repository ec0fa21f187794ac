"""The result of explaining: maps, and every way to look at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from explainer import regions, storage, views
from explainer.checks import check, constant_maps
from explainer.drawn import picture as picture_of
from explainer.frame import Frame
from explainer.heat import Interpolation, Normalisation, lay
from explainer.naming import counted, listing, place, target_place
from explainer.provenance import Provenance
from explainer.selection import select
from explainer_registry import ExplainerError, Selected

_SHOWN = 8  # warnings or columns shown of a long list


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """Why a model said something about B pictures, for each of T targets.

    `e[0]` is the explanation of the first picture, `e["a bus"]` that of one target; both are
    explanations again. `len(e)` is the number of pictures, and a loop goes over pictures. Two
    explanations are equal when all but their pictures are equal, on whatever device.

    Args:
        maps: [B, T, h, w], float32, raw and signed, on the model's device.
        names: The T targets as they were asked for.
        labels: B x T texts: what each map is about.
        scores: [B, T], the explained scores, kept as float32; None where the method needs none.
        pictures: The B originals in RGB; None where a preprocessed tensor was given.
        inputs_size: Height and width of the model's input.
        frames: Where each of the B inputs lies on its picture.
        method: Name of the method.
        provenance: How the maps came about.

    Raises:
        ExplainerError: The fields do not fit each other, or a map holds NaN or infinity.
    """

    maps: Tensor
    names: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    scores: Tensor | None
    pictures: tuple[Image.Image | None, ...]
    inputs_size: tuple[int, int]
    frames: tuple[Frame, ...]
    method: str
    provenance: Provenance

    def __post_init__(self) -> None:
        if self.scores is not None:
            object.__setattr__(self, "scores", self.scores.float())
        check(self)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What the reader of the maps must know: the provenance's warnings and constant maps."""
        return (*self.provenance.warnings, *constant_maps(self))

    def heat(
        self,
        size: tuple[int, int] | None = None,
        normalize: Normalisation | None = None,
        *,
        mode: Interpolation = "bilinear",
    ) -> Tensor:
        """Lay the maps on the pictures.

        Nothing of this size is kept; each call computes it anew.

        Args:
            size: Height and width of the result. By default those of the picture, or of the model's
                input where tensors were explained.
            normalize: None keeps the maps' values, comparable between maps. "minmax" takes each map to
                [0, 1]; "symmetric" divides it by its largest absolute value, so that sign and zero
                stay. Both look at the part the model saw, after interpolation; a constant map gives
                zeros.
            mode: "bilinear" or "nearest".

        Returns:
            [B, T, H, W], float32, on the maps' device. Where the model never looked (outside a centre
            crop) the heat is 0.

        Raises:
            ExplainerError: The pictures differ in size and no size is given, or an argument is not one
                of the above.
        """
        return lay(self.maps, self.frames, size or self._size("heat"), normalize, mode)

    def overlay(
        self,
        target: int | str | None = None,
        picture: int = 0,
        *,
        alpha: float = 0.5,
        colormap: str | None = None,
        normalize: Normalisation | None = None,
    ) -> Image.Image:
        """Draw one map over its picture; see `explainer.views.overlay` for how.

        Args:
            target: Name or number of the target; None is the first.
            picture: Number of the picture.
            alpha: Share of the colour in the blend where it is strongest, 0 to 1.
            colormap: Name of a colour map of the `cmap` library; None chooses by the map's sign.
            normalize: "minmax" or "symmetric"; None chooses by the map's sign.

        Returns:
            An RGB picture of the original's size.

        Raises:
            ExplainerError: There is no such target, picture, colour map or normalisation.
        """
        return views.overlay(self, target, picture, alpha=alpha, colormap=colormap, normalize=normalize)

    def draw(
        self, view: str | Selected, target: int | str | None = None, picture: int = 0, **options: Any
    ) -> Image.Image:
        """Draw one map by a view; see `explainer views`.

        Args:
            view: Name of the view, such as "spotlight", or a selection of one.
            target: Name or number of the target; None is the first.
            picture: Number of the picture.
            **options: Settings of the view.

        Returns:
            An RGB picture.

        Raises:
            ExplainerError: There is no such view, setting, target or picture, or the view draws something else.
        """
        return picture_of(select("views", view, options), self.one(target, picture))

    def one(self, target: int | str | None = None, picture: int = 0) -> Explanation:
        """Take one picture and one target.

        Args:
            target: Name or number of the target; None is the first.
            picture: Number of the picture.

        Raises:
            ExplainerError: There is no such target or picture.
        """
        t, b = target_place(self.names, target, self.labels), place("picture", picture, len(self))
        return self._part([b], [t])

    def grid(self, *, picture: int = 0, width: int = 224) -> Image.Image:
        """Draw a picture and the overlays of all targets side by side.

        Args:
            picture: Number of the picture.
            width: Width of each drawing in pixels.

        Returns:
            An RGB picture. `explainer.views.grid` puts several methods below each other.
        """
        return views.grid([self], picture=picture, width=width)

    def mask(
        self,
        threshold: float | None = None,
        *,
        quantile: float | None = None,
        size: tuple[int, int] | None = None,
    ) -> Tensor:
        """Mark the pixels of high heat.

        Args:
            threshold: Marks a pixel whose min-max normalised heat is at least this, 0 to 1; 0.5 where
                no quantile is given either.
            quantile: Marks a pixel whose heat is at least that of this share of the pixels that the
                model saw: 0.9 marks the hottest tenth.
            size: Height and width, as for `heat`.

        Returns:
            [B, T, H, W], bool, on the maps' device. False where the model never looked and all over a
            constant map.

        Raises:
            ExplainerError: Both a threshold and a quantile are given, one is outside 0 to 1, or the
                pictures differ in size and no size is given.
        """
        size = size or self._size("mask")
        return regions.mask(self.maps.detach(), self.frames, size, threshold, quantile)

    def boxes(
        self,
        threshold: float | None = None,
        *,
        quantile: float | None = None,
        min_area: float = 0.0,
    ) -> list[list[list[regions.Box]]]:
        """Put boxes around the connected regions of the masks, diagonal neighbours being connected.

        Args:
            threshold: As for `mask`.
            quantile: As for `mask`.
            min_area: Leaves out regions smaller than this share of the picture, 0 to 1.

        Returns:
            For each of the B pictures, for each of the T targets, boxes (left, top, right, bottom,
            score) in pixels of the picture, the highest mean heat first. A constant map has none.

        Raises:
            ExplainerError: As for `mask`, or min_area is outside 0 to 1.
        """
        pairs = zip(self.maps, self.frames, strict=True)
        return [regions.boxes(maps, frame, threshold, quantile, min_area) for maps, frame in pairs]

    def save(self, path: str | Path) -> list[Path]:
        """Write the explanation to disk, making folders as needed.

        Args:
            path: A name that ends in .npz is one file that `load` reads. Anything else is a folder, for
                an overlay (PNG) of each picture and target and an explanation.npz.

        Returns:
            The files written. Each appears whole or not at all.

        Raises:
            ExplainerError: The path names a picture, or a file where a folder is meant.
        """
        return storage.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Explanation:
        """Read what `save` wrote.

        Args:
            path: The .npz file, or the folder that holds an explanation.npz.

        Returns:
            An equal explanation, on the CPU and without pictures.

        Raises:
            ExplainerError: There is no such file, or `save` did not write it.
        """
        return cls(**storage.read(Path(path)))

    def __len__(self) -> int:
        return len(self.maps)

    def __iter__(self) -> Iterator[Explanation]:
        return (self[b] for b in range(len(self)))

    def __getitem__(self, key: int | slice | str) -> Explanation:
        pictures, targets = range(len(self)), range(len(self.names))
        if isinstance(key, str):
            return self._part(pictures, [target_place(self.names, key, self.labels)])
        if isinstance(key, int):
            return self._part([place("picture", key, len(self))], targets)
        if not isinstance(key, slice):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ExplainerError(
                f"an explanation is indexed by a picture's number, a slice of pictures or a target's name; got {key!r}"
            )
        if not pictures[key]:
            raise ExplainerError(f"{key} picks no picture; there are {len(self)}")
        return self._part(pictures[key], targets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanation):
            return NotImplemented
        plain = ("names", "labels", "inputs_size", "frames", "method", "provenance")
        return (
            all(getattr(self, name) == getattr(other, name) for name in plain)
            and torch.equal(self.maps.cpu(), other.maps.cpu())
            and _same(self.scores, other.scores)
        )

    def __repr__(self) -> str:
        (b, t, h, w), source = self.maps.shape, self.provenance
        asked = f"{counted(b, 'picture')} x {counted(t, 'target')}"
        lines = [f"Explanation of {asked} by {self.method} on {source.encoder}"]
        lines += [f"  maps     {h} x {w}, {self.maps.device}", f"  targets  {listing(self._told())}"]
        lines += [f"  warning  {text}" for text in self.warnings[:_SHOWN]]
        if len(self.warnings) > _SHOWN:
            lines.append(f"  and {counted(len(self.warnings) - _SHOWN, 'more warning')}: see .warnings")
        return "\n".join(lines)

    def _told(self) -> list[str]:
        """Name the targets, with what each picture's map is about where that is something else."""
        told: list[str] = []
        for t, name in enumerate(self.names):
            about = dict.fromkeys(row[t] for row in self.labels)
            told.append(name if set(about) == {name} else f"{name} ({', '.join(about)})")
        return told

    def _repr_png_(self) -> bytes:
        """Draw the first picture with its first targets, for notebooks."""
        stream = BytesIO()
        self._part([0], range(len(self.names))[:_SHOWN]).grid().save(stream, format="PNG")
        return stream.getvalue()

    def _size(self, wanted: str) -> tuple[int, int]:
        """Give the pictures' common height and width."""
        sizes = dict.fromkeys(frame.size for frame in self.frames)
        if len(sizes) > 1:
            given = ", ".join(f"{height} x {width}" for height, width in sizes)
            raise ExplainerError(
                f"the pictures differ in size (height x width: {given}), so their {wanted} does not fit one "
                f"tensor; pass size=(height, width), or take one picture at a time: e[0].{wanted}()"
            )
        return next(iter(sizes))

    def _part(self, pictures: Sequence[int], targets: Sequence[int]) -> Explanation:
        """Pick some pictures and targets."""
        b, t = list(pictures), list(targets)
        return replace(
            self,
            maps=self.maps[b][:, t],
            names=tuple(self.names[i] for i in t),
            labels=tuple(tuple(self.labels[i][j] for j in t) for i in b),
            scores=None if self.scores is None else self.scores[b][:, t],
            pictures=tuple(self.pictures[i] for i in b),
            frames=tuple(self.frames[i] for i in b),
        )


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return torch.equal(one.cpu(), other.cpu())
