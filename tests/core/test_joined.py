"""Attentions that one addition takes into the residual stream: told together, and each by itself.

Families: parallel attentions of ViT, differential attention, the cascaded heads of EfficientViT.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import built, difference, random_images
from torch import Tensor, nn

from core.attentions import TINY, followed, mirrored
from explainer.intercept import intercept
from explainer.session import session

# Name, options, the side of the pictures; the last block that attends, and how many attentions it has.
JOINED: dict[str, tuple[str, dict[str, Any], int, str, int]] = {
    "attentions side by side": ("vit_small_patch16_18x2_224", TINY, 64, "blocks.1", 2),
    "a difference of attentions": ("vit_dwee_patch16_reg1_gap_256", TINY, 64, "blocks.1", 2),
    "cascaded heads": ("efficientvit_m0", {"img_size": 64}, 64, "stages.2.blocks.2.mixer", 4),
}


@lru_cache
def joined(way: str) -> nn.Module:
    name, options, *_ = JOINED[way]
    return built(lambda: timm.create_model(name, num_classes=3, **options))


@pytest.mark.parametrize("way", JOINED)
@torch.no_grad()
def test_attentions_that_one_addition_takes_in(way: str) -> None:
    model, images, (_, _, _, block, count) = joined(way), random_images(2, JOINED[way][2]), JOINED[way]
    with session(model) as hooks, torch.no_grad():
        tap = intercept(hooks, follow=True)
        entered = hooks.tap(block, of="input")
        model(images)
    calls = tap.calls[-count:]
    increment, residual = calls[0].increment, calls[0].residual
    assert all(call.name.startswith(block) for call in calls)
    assert torch.equal(residual, entered.value)
    for call in calls:
        assert call.joined == tuple(calls)
        assert torch.equal(call.residual, residual)
        assert torch.equal(call.increment, increment)
        torch.testing.assert_close(call.project(call.output), increment)


def replacing(model: nn.Module, images: Tensor, heads: dict[int, Tensor]) -> Tensor:
    """What the last attentions add where some of the model's outputs, by their place, are replaced as it runs."""
    places = itertools.count()
    tap = followed(model, images, rule=lambda _call: heads.get(next(places)))
    return tap.calls[-1].increment


@pytest.mark.parametrize("way", ["attentions side by side", "a difference of attentions"])
@torch.no_grad()
def test_other_heads_together_and_singly(way: str) -> None:
    model, images = joined(way), random_images(2, JOINED[way][2])
    tap = followed(model, images)
    places, calls = [len(tap.calls) - 2, len(tap.calls) - 1], tap.calls[-2:]
    heads = [torch.randn(call.output.shape, generator=torch.Generator().manual_seed(i)) for i, call in enumerate(calls)]
    both = replacing(model, images, dict(zip(places, heads, strict=True)))
    torch.testing.assert_close(calls[0].project(dict(zip(calls, heads, strict=True))), both)
    for place, call, own in zip(places, calls, heads, strict=True):
        alone = replacing(model, images, {place: own})
        assert difference(both, alone) > 1e-2
        for given in (own, {call: own}):
            torch.testing.assert_close(call.project(given), alone)


@torch.no_grad()
def test_other_heads_where_one_feeds_the_next() -> None:
    """What follows a replaced head keeps what it made of the original one."""
    model, images = joined("cascaded heads"), random_images(2, 64)
    calls = followed(model, images).calls[-4:]
    projection = model.get_submodule(calls[0].name).proj
    heads = [torch.randn(call.output.shape, generator=torch.Generator().manual_seed(i)) for i, call in enumerate(calls)]
    # One head of [B, N, e] each, laid out as [B, e, h, w].
    maps = torch.cat([each.squeeze(1).transpose(1, 2).unflatten(2, calls[0].residual.shape[2:]) for each in heads], 1)
    torch.testing.assert_close(calls[0].project(dict(zip(calls, heads, strict=True))), projection(maps))


def test_only_one_is_chosen_of_two_side_by_side() -> None:
    model, images = joined("attentions side by side"), random_images(2, 64)
    whole = followed(model, images).calls[-2:]
    (call,) = followed(model, images, only={"blocks.1.attns.1.attn"}).calls
    assert [each.name for each in call.joined] == [each.name for each in whole]
    assert torch.equal(call.increment, whole[1].increment)
    heads = mirrored(call)
    torch.testing.assert_close(call.project(heads), whole[1].project(heads))
