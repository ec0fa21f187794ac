"""Layers that are asked for by name, chosen, or refused; and whether the chosen ones can be explained.

Modules made here, small timm ViTs and CaiT, an open_clip ViT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracles.helpers import SMALL, FakeTokenizer, built, clip
from torch import Tensor, nn
from torch.nn import functional as F

import explainer
from core.attentions import TINY, model_of
from core.nets import snapshot
from core.weightless import geometry_of, weightless
from explainer.geometry import Geometry
from explainer.hooks import LayerError
from explainer.layout import Grid
from explainer.probe import probe


class Tokens(nn.Module):
    """A map, tokens, something flat, and a module that does not run."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Conv2d(3, 4, 2, 2), nn.Conv2d(4, 6, 2, 2)
        self.tokens, self.unused, self.head = nn.Identity(), nn.Identity(), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.tokens(self.layer2(self.layer1(x)).flatten(2))
        return self.head(tokens.mean(dim=2))


def toy(**options: Any) -> Geometry:
    found = probe(Tokens(), lambda model, images, _hooks: model(images), (16, 16))
    return Geometry(found, class_token_pooled=False, **options)


def test_layers_in_the_order_in_which_they_run() -> None:
    assert toy().layers == ("layer1", "layer2", "tokens")
    assert toy().grid("tokens") == Grid(4, 4, "NCL")
    assert toy().blocks == ()


def test_a_layer_that_is_given() -> None:
    last = toy(layer="layer1").last
    assert last is not None
    assert (last.layer, last.grid, last.channels, last.why) == ("layer1", Grid(8, 8, "NCHW"), 4, "given")
    last = toy(layer="layer1", layout="NCHW").last
    assert last is not None
    assert (last.grid, last.why) == (Grid(8, 8, "NCHW"), "given, with layout NCHW")
    last = toy(layer="tokens", layout="NCL").last
    assert last is not None
    assert (last.grid, last.channels) == (Grid(4, 4, "NCL"), 6)


class Ambiguous(nn.Module):
    """Eight channels on 8 x 8 cells, channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.head = nn.Conv2d(3, 8, 2, 2), nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.stem(x).permute(0, 2, 3, 1)).mean(dim=(1, 2)))


def test_a_layout_that_the_shape_does_not_tell() -> None:
    model = built(Ambiguous)
    ex = explainer.wrap(model, size=(16, 16), layer="norm", layout="NHWC")
    pictures = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    cells = F.layer_norm(model.stem(pictures).permute(0, 2, 3, 1), (8,), model.norm.weight, model.norm.bias)
    torch.testing.assert_close(ex.features(pictures), cells.permute(0, 3, 1, 2))


def heads_of_as_many_tokens() -> Geometry:
    """Its heads are 16 wide and there are 17 tokens: q and k look like square maps."""
    return geometry_of(weightless("vit_tiny_patch16_224", qk_norm=True, **TINY))


def test_layers_inside_an_attention() -> None:
    found = heads_of_as_many_tokens()
    assert not any(".attn" in layer for layer in found.layers)
    for layer in ("blocks.1.attn", "blocks.1.attn.qkv", "blocks.1.attn.proj"):
        assert found.grid(layer) == Grid(4, 4, "NLC", 1)


class Pooling(nn.Module):
    """A network that pools by attention in its own forward."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.act, self.head = nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        cells = self.act(self.stem(x)).flatten(2).transpose(1, 2)[:, None]
        return self.head(F.scaled_dot_product_attention(cells.mean(2, keepdim=True), cells, cells)[:, 0, 0])


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_network_that_attends_in_its_own_forward(depth: int) -> None:
    model: nn.Module = Pooling()
    for _ in range(depth):
        model = nn.Sequential(model)
    found = explainer.wrap(model, size=(32, 32)).encoder.geometry((32, 32))
    assert found.last is not None
    assert (found.last.layer, found.last.grid) == ("0." * depth + "act", Grid(8, 8, "NCHW"))


def vit_of_two() -> Geometry:
    return geometry_of(weightless("vit_tiny_patch16_224", **TINY))


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: toy().grid("layer3"),
            "layer 'layer3' gives no map of the picture, or does not exist; nearest layers that do: layer2, layer1",
        ),
        (
            lambda: toy().grid("unused"),
            "layer 'unused' gives no map of the picture, or does not exist; "
            "nearest layers that do: layer1, layer2, tokens",
        ),
        (
            lambda: toy().grid("head"),
            "layer 'head' gives 3 per picture, which does not lie on the picture; "
            "nearest layers that do: layer1, layer2, tokens",
        ),
        (
            lambda: toy(layer="head"),
            "layer 'head' gives 3 per picture, which does not lie on the picture; "
            "nearest layers that do: layer1, layer2, tokens",
        ),
        (
            lambda: toy(layer="head", layout="NCHW"),
            "an output of shape [2, 3] cannot have the layout NCHW",
        ),
        (
            lambda: toy(layer="layer1", layout="NLC"),
            "an output of shape [2, 4, 8, 8] cannot have the layout NLC",
        ),
        (
            lambda: toy(layer="layer1", layout="nchw"),
            "no layout named 'nchw'; did you mean 'NCHW'? (available: NCHW, NHWC, NLC, NCL)",
        ),
        (
            lambda: vit_of_two().block(2),
            "there is no attention block 2; this model has 2 over its patch tokens, numbered 0 to 1, "
            "or -1 for the last",
        ),
        (
            lambda: vit_of_two().last_blocks(3),
            "3 attention blocks were asked for, but this model has 2 over its patch tokens; ask for at most 2",
        ),
        (
            lambda: heads_of_as_many_tokens().grid("blocks.0.attn.q_norm"),
            "layer 'blocks.0.attn.q_norm' gives 4 x 17 x 16 per picture, which does not lie on the picture; "
            "nearest layers that do: blocks.0.norm2, blocks.0.norm1, blocks.0.mlp.norm",
        ),
    ],
)
def test_error(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(LayerError) as raised:
        ask()
    assert str(raised.value) == message


def test_blocks_by_their_place() -> None:
    found = vit_of_two()
    assert [found.block(index).name for index in (0, 1, -1)] == ["blocks.0.attn", "blocks.1.attn", "blocks.1.attn"]
    assert [block.name for block in found.last_blocks(1)] == ["blocks.1.attn"]
    assert found.last_blocks(0) == ()


def test_why_a_layer_was_chosen() -> None:
    found = vit_of_two()
    assert found.last is not None
    assert found.gradient is not None
    assert found.last.why == "the last layer that still lies on the picture, before the model pools"
    assert found.gradient.why == (
        "the last layer before 'blocks.1.attn': behind it the model only reads its class token, "
        "so patches have no gradient there"
    )


def test_a_model_without_a_map() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    found = probe(model, lambda running, images, _hooks: running(images), (4, 4))
    geometry = Geometry(found, class_token_pooled=True)
    assert (geometry.last, geometry.gradient, geometry.blocks, geometry.final_norm) == (None, None, (), None)


@pytest.mark.parametrize("family", ["vit", "cait", "clip"])
def test_the_cells_of_the_gradient_layer_all_have_one(family: str) -> None:
    model = model_of(family)
    wrapped = model if family != "clip" else built(lambda: clip({**SMALL, "layers": 2}))
    ex = explainer.wrap(wrapped, **({"tokenizer": FakeTokenizer()} if family == "clip" else {}))
    before, pictures = snapshot(wrapped), torch.randn(2, 3, *ex.encoder.preprocess.size)
    chosen = ex.encoder.gradient_map(pictures)
    with ex.encoder.session() as hooks:
        tap = hooks.tap(chosen.layer, differentiable=True)
        output = ex.encoder.forward(pictures, hooks)
        gradients = tap.gradients(output[:, :1])
    assert (chosen.grid.to_map(gradients[0]).abs().amax(dim=1) > 0).all()
    assert snapshot(wrapped) == before
