"""From an attention to the residual stream: what it added there, and what other heads would have added.

Families: timm ViT, EVA (post-norm), BEiT (layer scale), relative positions (post-norm), CaiT's talking heads and class
attention, Swin's shifted windows, parallel scaling, LeViT; open_clip blocks (also sequence first, layer scale, its own
class with inner norm); blocks made here that add in place, gate, or add positions inside.
"""

from __future__ import annotations

import pytest
import timm
import torch
from oracles.helpers import CLIPS, built, difference, random_images
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

from core.attentions import FAMILIES, TINY, followed, mirrored, model_of, pictures_of
from core.nets import snapshot
from explainer.attention import AttentionCall
from explainer.hooks import LayerError
from explainer.intercept import StopForward, intercept
from explainer.session import session

# Family: the first block, and its norm behind the attention's residual addition.
BLOCKS = {
    "vit": ("blocks.0", "norm2"),
    "deit distilled": ("blocks.0", "norm2"),
    "eva separate rope": ("blocks.0", "norm2"),
    "dinov3": ("blocks.0", "norm2"),
    "beit": ("blocks.0", "norm2"),
    "relpos": ("blocks.0", "norm2"),
    "eva post-norm": ("blocks.0", "mlp"),
    "relpos post-norm": ("blocks.0", "mlp"),
    "swin": ("layers.0.blocks.0", "norm2"),
    "clip": ("transformer.resblocks.0", "ln_2"),
    "clip sequence first": ("transformer.resblocks.0", "ln_2"),
    "clip custom": ("transformer.resblocks.0", "ln_2"),
}


@pytest.mark.parametrize("family", BLOCKS)
def test_residual_and_increment(family: str) -> None:
    model, images = model_of(family), pictures_of(family)
    block, behind = BLOCKS[family]
    with session(model) as hooks, torch.no_grad():
        tap = intercept(hooks, follow=True)
        entered = hooks.tap(block, of="input")
        gone_on = hooks.tap(f"{block}.{behind}", of="input")
        model(images)
    call = tap.calls[0]
    before, after = (laid(each.value, call.residual, family) for each in (entered, gone_on))
    assert torch.equal(call.residual, before)
    torch.testing.assert_close(call.residual + call.increment, after)
    for each in tap.calls:
        torch.testing.assert_close(each.project(each.output), each.increment)


def laid(value: Tensor, like: Tensor, family: str) -> Tensor:
    return value.transpose(0, 1) if "sequence first" in family else value.reshape(like.shape)


@pytest.mark.parametrize(("family", "place"), [*((family, 0) for family in BLOCKS), ("cait", 0), ("cait", 2)])
@torch.no_grad()
def test_other_heads(family: str, place: int) -> None:
    model, images = model_of(family), pictures_of(family)
    call = followed(model, images).calls[place]
    heads = mirrored(call)
    kept = heads.clone()
    replaced = followed(model, images, rule=lambda each: heads if each.name == call.name else None).calls[place]
    assert difference(call.project(heads), replaced.increment) <= 1e-6
    assert difference(replaced.increment, call.increment) > 1e-2
    assert torch.equal(heads, kept)


def test_layer_scale_of_open_clip() -> None:
    model = built(CLIPS["small_layer_scale"]).visual
    call = followed(model, random_images(2, 32)).calls[0]
    block = model.transformer.resblocks[0]
    expected = block.ls_1(block.attn.out_proj(call.output.transpose(1, 2).flatten(2)))
    torch.testing.assert_close(call.increment, expected)
    assert call.increment.shape == call.residual.shape == (2, 17, 64)


class Attention(nn.Module):
    """Two heads of two channels; `also` is added to what it gives, inside."""

    def __init__(self, also: str = "") -> None:
        super().__init__()
        self.out = nn.Linear(4, 4)
        self.also = also

    def forward(self, x: Tensor) -> Tensor:
        heads = x.unflatten(2, (2, 2)).transpose(1, 2)
        y = F.scaled_dot_product_attention(heads, heads, heads)
        if self.also == "in place":
            y *= 2
        y = y.transpose(1, 2).flatten(2)
        if self.also == "position":
            y = y + x.cumsum(dim=1)
        return self.out(y)


class Block(nn.Module):
    """One of the ways of adding an attention to the residual stream, then an MLP."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.attn = Attention(how)
        self.gate, self.mlp = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.added(x)
        return x + self.mlp(x)

    def added(self, x: Tensor) -> Tensor:
        y = self.attn(x)
        if self.how == "into the stream":
            x = x.clone()
            x += y
            return x
        if self.how == "into the increment":
            y += x
            return y
        if self.how == "by torch.add":
            return torch.add(y, x)
        if self.how == "gated":
            return x + y * self.gate(x).sigmoid()
        if self.how == "scaled in place":
            return x + y.mul_(0.5)
        if self.how == "weighted":
            return torch.add(x, y, alpha=3)
        return x + y + self.gate.bias if self.how == "with a parameter" else x + y


def tower_of(*how: str) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*[Block(each) for each in how])


def cells() -> Tensor:
    return torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))


def factor(how: str, block: Block, x: Tensor) -> Tensor:
    return {"gated": block.gate(x).sigmoid(), "scaled in place": torch.tensor(0.5)}.get(how, torch.tensor(1.0))


WAYS = [
    "plainly",
    "into the stream",
    "into the increment",
    "by torch.add",
    "gated",
    "scaled in place",
    "position",
    "in place",
    "with a parameter",
]


@pytest.mark.parametrize("how", WAYS)
def test_ways_of_adding(how: str) -> None:
    model, x = tower_of(how, how), cells()
    block = model[0]
    tap = followed(model, x)
    call = tap.calls[0]
    with torch.no_grad():
        expected = block.attn(x) * factor(how, block, x)
        torch.testing.assert_close(call.residual, x)
        torch.testing.assert_close(call.increment, expected)
        torch.testing.assert_close(tap.calls[1].residual, block(x))
        heads = torch.randn(2, 2, 5, 2, generator=torch.Generator().manual_seed(1))
        kept = heads.clone()
        found = call.project(heads), call.project(heads)
        mixed = (heads * 2 if how == "in place" else heads).transpose(1, 2).flatten(2)
        mixed = mixed + x.cumsum(dim=1) if how == "position" else mixed
        projected = block.attn.out(mixed) * factor(how, block, x)
    for each in found:
        torch.testing.assert_close(each, projected)
    assert torch.equal(heads, kept)


class Turning(nn.Module):
    """Turns its stream only for an attention that takes the sequence first."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attn = nn.MultiheadAttention(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = x.transpose(0, 1)
        return x + self.attn(y, y, y)[0].transpose(0, 1)


def test_a_stream_that_is_turned_only_for_the_attention() -> None:
    model, x = Turning(), cells()
    (call,) = followed(model, x).calls
    assert torch.equal(call.residual, x)
    torch.testing.assert_close(call.increment, (model(x) - x).detach())
    torch.testing.assert_close(call.project(call.output), call.increment)


def untold(name: str) -> str:
    return (
        f"the output of attention '{name}' could not be followed to a residual stream, so its contribution to the "
        "patch tokens is not known; use a method that only reads attention, such as query_key"
    )


def refused(call: AttentionCall) -> None:
    for read in (lambda: call.residual, lambda: call.increment, lambda: call.project(call.output)):
        with pytest.raises(LayerError) as raised:
            read()
        assert str(raised.value) == untold(call.name)


def test_a_weighted_addition_is_not_guessed_at() -> None:
    tap = followed(tower_of("weighted"), cells())
    refused(tap.calls[0])


def test_an_attention_without_a_residual() -> None:
    torch.manual_seed(0)
    tap = followed(nn.Sequential(Attention(), Attention()), cells())
    for call in tap.calls:
        refused(call)


@pytest.mark.parametrize("name", ["vit_pwee_patch16_reg1_gap_256", "vit_dpwee_patch16_reg1_gap_256"])
def test_attention_that_is_added_in_its_own_module(name: str) -> None:
    model = built(lambda: timm.create_model(name, num_classes=3, **TINY))
    tap = followed(model, random_images(2, 64))
    assert tap.calls
    for call in tap.calls:
        refused(call)
        with pytest.raises(LayerError) as raised:
            _ = call.joined
        assert str(raised.value) == untold(call.name)


def test_an_attention_that_feeds_another_without_being_added() -> None:
    """LeViT's downsampling attends from a smaller grid to a larger one and adds nothing."""
    tap = followed(built(lambda: timm.create_model("levit_128s", num_classes=3, img_size=64)), random_images(2, 64))
    lost = [call.name for call in tap.calls if call.way is None or not call.way.closed]
    assert lost == [name for name in (call.name for call in tap.calls) if name.endswith("downsample.attn_downsample")]
    assert len(lost) == 2


@pytest.mark.parametrize("follow", [True, False], ids=["at the residual addition", "behind the attention"])
@pytest.mark.parametrize("family", ["vit", "clip", "swin"])
def test_leaving_early(family: str, follow: bool) -> None:
    model, images = model_of(family), pictures_of(family)
    before, owners = snapshot(model), FAMILIES[family].owners
    behind = {"vit": "blocks.0.mlp", "clip": "transformer.resblocks.0.mlp", "swin": "layers.0.blocks.0.mlp"}[family]
    with session(model) as hooks, torch.no_grad():
        tap = intercept(hooks, follow=follow, stop_after=owners[0])
        ran = hooks.tap(behind)
        assert tap.run(lambda: model(images)) is None
    assert [call.name for call in tap.calls] == owners[:1]
    assert ran.records == []
    if follow:
        whole = followed(model, images).calls[0]
        assert torch.equal(tap.calls[0].increment, whole.increment)
        assert torch.equal(tap.calls[0].residual, whole.residual)
    assert snapshot(model) == before
    assert _get_current_function_mode_stack() == []


def test_leaving_early_and_running_on() -> None:
    model, images = model_of("vit"), pictures_of("vit")
    plain = model(images).detach()
    with session(model) as hooks, torch.no_grad():
        tap = intercept(hooks, follow=True, stop_after="blocks.1.attn")
        for _ in range(2):
            assert tap.run(lambda: model(images)) is None
    assert [call.name for call in tap.calls] == ["blocks.0.attn", "blocks.1.attn"] * 2
    assert torch.equal(tap.calls[3].increment, tap.calls[1].increment)
    with session(model) as hooks:
        assert torch.equal(intercept(hooks, stop_after="nothing").run(lambda: model(images)), plain)
    assert torch.equal(model(images).detach(), plain)


class Catching(nn.Module):
    """Takes every error of its part for its own."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Attention()

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.part(x)
        except Exception:
            return x


def test_no_model_catches_an_early_leave() -> None:
    with session(Catching()) as hooks:
        tap = intercept(hooks, stop_after="part")
        assert tap.run(lambda: hooks.model(cells())) is None
    assert not issubclass(StopForward, Exception)
