"""What a timm head makes of one cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from explainer.geometry import Choice, Geometry
from explainer.layout import Grid, Layout
from explainer.probe import entrance
from explainer.readout import Readout, agree
from explainer.session import session

Head = Callable[[Tensor], Tensor]
"""Takes maps, laid out as the model's features are, to [n, E]."""

_TRIED = 8  # classes that are compared


def head_readout(model: nn.Module, features: Geometry) -> Readout | None:
    """Read cells through a timm model's own head.

    Args:
        model: A timm model.
        features: Geometry of its ``forward_features``.

    Returns:
        The readout; None where the model has no head that takes single cells.
    """
    run: Any = getattr(model, "forward_head", None)
    if run is None:
        return None
    rows = _classifier_rows(model)
    if rows is not None:
        read = cell_readout(
            lambda maps: run(maps, pre_logits=True),
            features,
            model,
            lambda directions: directions.to(rows().dtype) @ rows(),
        )
        if read is not None and _gives_logits(read, run, features, model):
            return read
    # The classifier is more than rows behind the features (a norm of its own, several heads), so that cells are
    # only comparable as logits.
    whole = cell_readout(run, features, model, lambda directions: directions)
    return whole and dataclasses.replace(whole, embed=_without_bias(whole.embed))


def _without_bias(embed: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda columns: embed(columns) - embed(torch.zeros_like(columns[:1, :1]))


def cell_readout(head: Head, features: Geometry, model: nn.Module, rows: Callable[[Tensor], Tensor]) -> Readout | None:
    """Read cells through a head that takes the features.

    The head is run on a map on which every cell is the same, so any pooling (average, class token, attention)
    passes the cell on as it is; norms, MLPs and convolutions between pooling and output then apply. Whether that
    is exact is tried out with random cells.

    Args:
        head: What follows the features.
        features: Geometry of the part of the model that gives them.
        model: Holds the head; it is put in the state in which models are looked at.
        rows: As for :class:`Readout`.

    Returns:
        The readout; None where the head takes something else than the last map, or more than single cells.
    """
    door = _door(features, model)
    if door is None:
        return None

    def embed(columns: Tensor) -> Tensor:
        batch, cells, _ = columns.shape
        uniform = columns.flatten(0, 1)[:, None].expand(-1, door.prefix + 1, -1)
        return head(door.enter(uniform)).reshape(batch, cells, -1)

    tokens = _random_cells(features, model, door.prefix + 2)
    try:
        with session(model), torch.no_grad():
            alone, together = embed(tokens)[0], head(door.enter(tokens)).flatten()
    except Exception:  # a head that takes something else, or maps of one size, fails in its own way
        return None
    averaged = agree(together, alone[door.prefix :].mean(dim=0))
    by_token = door.prefix > 0 and agree(together, alone[0])
    return Readout(embed, rows, exact=not door.partial and (averaged or by_token))


def _gives_logits(read: Readout, head: Head, features: Geometry, model: nn.Module) -> bool:
    """Whether the contributions of a cell are its logits, up to a bias that is the same for every cell."""
    cells = _random_cells(features, model, 2)
    whole = cell_readout(head, features, model, lambda directions: directions)
    if whole is None:
        return False
    with session(model), torch.no_grad():
        given = whole.embed(cells)[0]
        logits = given.float()
        classes = torch.eye(min(_TRIED, logits.shape[1]), logits.shape[1], device=logits.device)[None]
        if read.embed(cells).shape[-1] != read.rows(classes).shape[-1]:
            return False
        contributions = read.contributions(cells, classes)[0].T
    ours, theirs = contributions[0] - contributions[1], (logits[0] - logits[1])[:_TRIED]
    # Compared to the precision that the model computes in, which autocast may have lowered.
    return agree(ours.to(given.dtype), theirs.to(given.dtype))


@dataclasses.dataclass(frozen=True)
class _Door:
    """How cells of the last map enter the head.

    Attributes:
        enter: Takes tokens [n, m, C], prefix tokens first, to what the head takes.
        prefix: Number of prefix tokens.
        partial: Whether the head takes other maps too.
    """

    enter: Callable[[Tensor], Any]
    prefix: int
    partial: bool = False


def _door(features: Geometry, model: nn.Module) -> _Door | None:
    """Find out how the last map enters the head; None where the head takes something else."""
    if features.last is None:
        return None
    taken = features.probe.output[1:]
    if features.probe.output == (0,):
        return _among_others(features, features.last, model)
    if (layout := _layout(taken, features.last)) is not None:
        grid = _relaid(features.last.grid, layout)
        return _Door(lambda tokens: _laid(tokens, grid), grid.prefix)
    prefix, norm = features.last.grid.prefix, features.prefix_norm
    if prefix and taken == (prefix, features.last.channels) and norm is not None:
        return _Door(lambda tokens: model.get_submodule(norm)(tokens[:, :prefix]), prefix)
    return None


def _among_others(features: Geometry, last: Choice, model: nn.Module) -> _Door | None:
    """Let the last map enter a head that takes a list of maps; the others are zero."""
    example = torch.zeros(1, 3, *features.probe.size).to(entrance(model))
    with session(model), torch.no_grad():
        taken: Any = cast("Any", model).forward_features(example)
    if not isinstance(taken, (list, tuple)):
        return None
    maps = cast("Sequence[Any]", taken)
    layouts = [_layout(tuple(each.shape[1:]), last) if isinstance(each, Tensor) else None for each in maps]
    place = max((index for index, layout in enumerate(layouts) if layout is not None), default=None)
    if place is None or not all(isinstance(each, Tensor) for each in maps):
        return None
    grid = _relaid(last.grid, cast("Layout", layouts[place]))

    def enter(tokens: Tensor) -> list[Tensor]:
        filled = [tokens.new_zeros(len(tokens), *each.shape[1:]) for each in maps]
        filled[place] = _laid(tokens, grid)
        return filled

    return _Door(enter, grid.prefix, partial=True)


def _layout(taken: tuple[int, ...], last: Choice) -> Layout | None:
    """How the last map is laid out where the head takes it; None where the head takes something else."""
    cells, channels = (last.grid.height, last.grid.width), last.channels
    tokens = last.grid.prefix + cells[0] * cells[1]
    shapes: dict[Layout, tuple[int, ...]] = {
        "NCHW": (channels, *cells),
        "NHWC": (*cells, channels),
        "NLC": (tokens, channels),
        "NCL": (channels, tokens),
    }
    # As many tokens as channels can be read in two ways; the head takes the map as the layer gave it.
    if shapes[last.grid.layout] == taken:
        return last.grid.layout
    return next((layout for layout, shape in shapes.items() if shape == taken), None)


def _relaid(grid: Grid, layout: Layout) -> Grid:
    return dataclasses.replace(grid, layout=layout, prefix=grid.prefix if layout in ("NLC", "NCL") else 0)


def _laid(tokens: Tensor, grid: Grid) -> Tensor:
    """Lay tokens [n, m, C] out as small maps: [n, C, 1, m], [n, 1, m, C], [n, m, C] or [n, C, m]."""
    if grid.layout == "NCHW":
        return tokens.transpose(1, 2)[:, :, None]
    if grid.layout == "NHWC":
        return tokens[:, None]
    return tokens if grid.layout == "NLC" else tokens.transpose(1, 2)


def _random_cells(features: Geometry, model: nn.Module, count: int) -> Tensor:
    assert features.last is not None  # noqa: S101  only called where there is a last map
    generator = torch.Generator().manual_seed(0)
    cells = torch.randn(1, count, features.last.channels, generator=generator, device="cpu")
    return cells.to(entrance(model))


def _classifier_rows(model: nn.Module) -> Callable[[], Tensor] | None:
    """Give the rows [K, E] of the last linear layer, read anew each time; None where it is not one."""
    if not hasattr(model, "get_classifier"):
        return None
    found = cast("Any", model).get_classifier()
    layers: list[Any] = list(found) if isinstance(found, (tuple, list, nn.ModuleList)) else [found]
    if not layers or not all(isinstance(layer, (nn.Linear, nn.Conv2d)) for layer in layers):
        return None
    if len({layer.weight.flatten(1).shape for layer in layers}) > 1:
        return None
    # Distilled models average their heads.
    return lambda: torch.stack([layer.weight.flatten(1) for layer in layers]).mean(dim=0)
