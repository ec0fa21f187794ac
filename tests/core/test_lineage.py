"""What only looks like dense attention over the patches, by its shapes, is no block; what looks odd and is one, is.

Memories and learned queries as many as there are tokens, channels as many as there are tokens, shifted windows, windows
where heads stand elsewhere, modules that run several times, attention of attention; and streams that are none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision.models.swin_transformer import SwinTransformer

from core import deceptive
from core.deceptive import Attention, Block, MapNet, Net, OneModule, Rule, net
from core.weightless import geometry_of, weightless
from explainer.geometry import Geometry
from explainer.layout import Grid
from explainer.probe import probe

BOTH = ["blocks.0.attn", "blocks.1.attn"]


def geometry(model: nn.Module, side: int = 32) -> Geometry:
    found = probe(model.eval(), lambda running, images, _hooks: running(images), (side, side))
    return Geometry(found, class_token_pooled=False)


def blocks(found: Geometry) -> tuple[list[str], list[str]]:
    return [block.name for block in found.blocks], [block.name for block in found.stream]


NO_BLOCKS: dict[str, tuple[Rule, dict[str, Any]]] = {
    "a memory": (deceptive.of_a_memory, {}),
    "learned queries": (deceptive.by_learned_queries, {}),
    "learned tokens": (deceptive.among_learned_tokens, {}),
    "as wide as there are tokens, of channels": (deceptive.of_channels, {"dim": 128}),
    "as wide as there are tokens, of channels, one head": (deceptive.of_channels, {"dim": 64, "heads": 1}),
    "as wide as there are tokens, of channels, written out": (deceptive.of_channels_written_out, {"dim": 128}),
    "shifted around the picture": (deceptive.shifted, {}),
    "attention of attention": (deceptive.twice, {}),
    "dense and to a memory": (deceptive.beside_a_memory, {}),
    "picture by picture": (deceptive.picture_by_picture, {}),
    "picture by picture, more heads": (deceptive.picture_by_picture, {"heads": 4}),
    "heads in the place of pictures": (deceptive.heads_first, {}),
    "heads in the place of pictures, more of them": (deceptive.heads_first, {"heads": 4}),
    "windows in the place of heads": (deceptive.over_windows_of_one_head, {}),
}


@pytest.mark.parametrize("kind", NO_BLOCKS)
def test_no_blocks(kind: str) -> None:
    rule, options = NO_BLOCKS[kind]
    found = geometry(net(rule, **options))
    assert blocks(found) == ([], [])
    assert {step.name for step in found.probe.attentions} == set(BOTH)


@pytest.mark.parametrize(
    ("dim", "heads"), [(32, 2), (64, 1), (128, 2)], ids=["narrow", "as wide as long, one head", "as wide as long"]
)
@pytest.mark.parametrize("written", [False, True])
def test_blocks(dim: int, heads: int, written: bool) -> None:
    def write(module: Attention, x: Tensor) -> Tensor:
        query, key, value = module.parts(x)
        return deceptive.join((query @ key.mT).softmax(-1) @ value)

    found = geometry(net(write if written else deceptive.plainly, dim=dim, heads=heads))
    assert blocks(found) == (BOTH, BOTH)
    assert found.blocks[0].grid == Grid(8, 8, "NLC")


def test_a_module_that_runs_twice() -> None:
    shared = Attention(deceptive.plainly)
    assert blocks(geometry(Net(Block(shared), Block(shared)))) == ([], [])
    block = Block(Attention(deceptive.plainly))
    assert blocks(geometry(Net(block, block))) == ([], [])
    mixed = geometry(Net(block, block, Block(Attention(deceptive.plainly))))
    assert blocks(mixed) == (["blocks.2.attn"], ["blocks.2.attn"])


def test_a_network_that_attends_in_its_own_forward() -> None:
    found = geometry(OneModule())
    assert [step.name for step in found.probe.attentions] == [""] * 3
    assert blocks(found) == ([], [])


@pytest.mark.parametrize("windows", ["in the batch", "in the batch, with heads", "before one head", "as heads"])
def test_windows_of_a_map_as_large_as_the_last_map(windows: str) -> None:
    assert blocks(geometry(MapNet(windows, last=False))) == ([], [])
    found = geometry(MapNet(windows, last=True))
    assert blocks(found) == (["late"], ["late"])
    assert found.blocks[0].grid == Grid(4, 4, "NLC")


EARLIER = ["stages.2.blocks.0.0.attn"]
"""Where the last stage has no attention, the one before it has."""


def of_torchvision() -> nn.Module:
    return SwinTransformer([4, 4], 16, [1, 1, 1, 2], [1, 2, 2, 4], [4, 4], num_classes=5)


@pytest.mark.parametrize(
    ("make", "fitting", "filled", "left"),
    [
        (of_torchvision, 128, 96, []),
        (lambda: timm.create_model("davit_tiny", depths=(1, 1, 1, 1), window_size=2), 64, 32, EARLIER),
        (lambda: timm.create_model("davit_tiny", depths=(1, 1, 1, 1), window_size=4), 128, 64, EARLIER),
    ],
    ids=["a map", "a sequence of one token", "a sequence"],
)
def test_a_window_that_is_filled_up_is_no_grid(
    make: Callable[[], nn.Module], fitting: int, filled: int, left: list[str]
) -> None:
    """4 x 4 tokens, of which 3 x 3 or 2 x 2 are the picture's, pass for a larger grid or for tokens behind a prefix."""
    with torch.device("meta"):
        model = make()
    assert not {block.name for block in geometry(model, fitting).blocks} & set(EARLIER)
    assert [block.name for block in geometry(model, filled).blocks] == left


@pytest.mark.parametrize("added", ["plainly", "one after the other", "with positions", "into a view"])
def test_streams(added: str) -> None:
    found = geometry(net(deceptive.plainly, added))
    assert blocks(found) == (BOTH, BOTH)
    assert found.direct


@pytest.mark.parametrize(
    ("added", "direct"), [("to a scaled stream", True), ("and halved", False), ("and normalised", False)]
)
def test_a_stream_goes_on_by_additions_alone(added: str, direct: bool) -> None:
    found = geometry(net(deceptive.plainly, added))
    assert blocks(found) == (BOTH, BOTH[1:])
    assert found.direct is direct


def test_what_is_added_with_something_else_is_not_added_to_the_stream() -> None:
    """x + (attention + MLP): the MLP is no residual stream."""
    assert blocks(geometry(net(deceptive.plainly, "both at once"))) == (BOTH, [])


def test_where_the_model_records_no_graph_nothing_is_ruled_out() -> None:
    assert blocks(geometry(net(deceptive.plainly, "without a graph"))) == (BOTH, BOTH)


class Frozen(nn.Module):
    """A network that runs its part without a graph."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part, self.head = part, nn.Linear(5, 3)

    @torch.no_grad()
    def part_of(self, images: Tensor) -> Tensor:
        return self.part(images)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.part_of(images))


def test_a_part_that_is_frozen() -> None:
    names = [f"part.{name}" for name in BOTH]
    assert blocks(geometry(Frozen(net(deceptive.plainly)))) == (names, names)


@pytest.mark.parametrize("prefix", [1, 5, 16, 20, 50])
def test_any_number_of_prefix_tokens(prefix: int) -> None:
    found = geometry(net(deceptive.plainly, prefix=prefix))
    assert blocks(found) == (BOTH, BOTH)
    assert found.last is not None
    assert found.blocks[0].grid == found.last.grid == Grid(8, 8, "NLC", prefix)
    assert found.direct


class Sum(nn.Module):
    """Adds, as a module of its own."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Adding(Block):
    """Adds its attention to the stream by a module of its own."""

    def __init__(self, attn: nn.Module) -> None:
        super().__init__(attn)
        self.sum = Sum()

    def forward(self, x: Tensor) -> Tensor:
        return self.sum(x, self.attn(self.norm1(x)))


def test_an_addition_in_a_module_of_its_own_is_not_found() -> None:
    found = geometry(Net(*(Adding(Attention(deceptive.plainly)) for _ in range(2))))
    assert blocks(found) == (BOTH, [])


# Model, options, its last map, the blocks on its last stream, and whether the map is that stream or one module of it.
TIMM: dict[str, tuple[dict[str, Any], str, int, bool]] = {
    "vit_tiny_patch16_224": ({"depth": 3}, "norm", 3, True),
    "vit_relpos_small_patch16_rpn_224": ({"depth": 3}, "norm", 3, True),
    "convit_tiny": ({}, "norm", 2, True),  # the class token joins before the last two
    "swin_tiny_patch4_window7_224": ({"depths": (1, 1, 1, 2)}, "norm", 2, True),
    "pvt_v2_b0": ({"depths": (1, 1, 1, 2)}, "stages", 2, False),  # a stage ends with a norm
    "caformer_s18": ({}, "stages", 1, False),  # blocks scale the stream
    "tiny_vit_5m_224": ({"depths": (1, 1, 1, 2)}, "stages", 1, False),  # convolutions take the place of the stream
    "botnet26t_256": ({}, "final_conv", 1, False),  # a ReLU follows the sum
    "nest_tiny": ({}, "norm", 8, False),  # the norm takes it in another layout
    "samvit_base_patch16_224": ({"depth": 3}, "neck", 3, False),
}


@pytest.mark.parametrize("name", TIMM)
def test_streams_of_timm(name: str) -> None:
    options, last, count, direct = TIMM[name]
    found = geometry_of(weightless(name, **options))
    assert found.last is not None
    assert (found.last.layer, len(found.stream), found.direct) == (last, count, direct)
