"""Small members of every family of attention, and attention written out by the book."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import open_clip
import pytest
import timm
import torch
from oracles.helpers import CLIPS, SMALL, TEXT, built, clip, random_images
from torch import Tensor, nn
from torch.nn import functional as F

from explainer.attention import AttentionCall
from explainer.intercept import AttentionTap, intercept
from explainer.session import session


class Family(NamedTuple):
    """A model, the side of its pictures, and the modules whose attention is expected, each with its calls."""

    make: Callable[[], nn.Module]
    side: int
    owners: list[str]


TINY = {"embed_dim": 64, "depth": 2, "num_heads": 4, "img_size": 64}


def of_timm(name: str, side: int = 64, owners: list[str] | None = None, **options: Any) -> Family:
    found = owners or ["blocks.0.attn", "blocks.1.attn"]
    return Family(lambda: timm.create_model(name, num_classes=7, **{**TINY, "img_size": side, **options}), side, found)


def tower(name: str) -> nn.Module:
    return CLIPS[name]().visual


def custom_tower() -> nn.Module:
    """open_clip's own attention class, with every option that it can run with."""
    model = clip({**SMALL, "layers": 2, "qk_norm": True, "scale_heads": True, "scale_attn_inner": True})
    return model.visual


def coca_tower() -> nn.Module:
    """Blocks that are pooled by queries of another width than the keys and values."""
    config = {**SMALL, "layers": 2, "attentional_pool": True, "attn_pooler_queries": 9, "attn_pooler_heads": 4}
    model = open_clip.CLIP(48, open_clip.CLIPVisionCfg(**config), open_clip.CLIPTextCfg(**TEXT))
    return model.visual


TALKING = ["blocks.0.attn", "blocks.1.attn"]
"""The attentions of CaiT that mix their heads before and after the softmax."""
RESBLOCKS = [f"transformer.resblocks.{i}.attn" for i in range(2)]
WINDOWS = [f"layers.{i}.blocks.0.attn" for i in range(3)]
SWIN = {"embed_dim": 16, "depths": (1, 1, 1, 2), "num_heads": (1, 2, 2, 4)}

FAMILIES: dict[str, Family] = {
    "vit": of_timm("vit_tiny_patch16_224"),
    "vit qk-norm": of_timm("vit_tiny_patch16_224", qk_norm=True),
    "deit distilled": of_timm("deit_tiny_distilled_patch16_224"),
    "dinov2 registers": of_timm("vit_small_patch14_reg4_dinov2", 56),
    "eva separate rope": of_timm("eva02_base_patch16_clip_224"),
    "eva fused rope": of_timm("eva02_base_patch16_clip_224", qkv_fused=True),
    "eva post-norm": of_timm("eva02_base_patch16_clip_224", use_post_norm=True),
    "dinov3": of_timm("vit_small_patch16_dinov3"),
    "beit": of_timm("beit_base_patch16_224"),
    "beitv2": of_timm("beitv2_base_patch16_224"),
    "relpos": of_timm("vit_relpos_small_patch16_224"),
    "relpos post-norm": of_timm("vit_relpos_small_patch16_rpn_224"),
    "cait": of_timm("cait_xxs24_224", owners=[*TALKING, "blocks_token_only.0.attn", "blocks_token_only.1.attn"]),
    "siglip": of_timm("vit_base_patch16_siglip_224", owners=["blocks.0.attn", "blocks.1.attn", "attn_pool"]),
    "swin": Family(
        lambda: timm.create_model("swin_tiny_patch4_window7_224", num_classes=7, img_size=56, **SWIN),
        56,
        [*WINDOWS, "layers.3.blocks.0.attn", "layers.3.blocks.1.attn"],
    ),
    "clip": Family(lambda: clip({**SMALL, "layers": 2}).visual, 32, RESBLOCKS),
    "clip sequence first": Family(
        lambda: tower("small_sequence_first"), 32, [f"transformer.resblocks.{i}.attn" for i in range(7)]
    ),
    "clip custom": Family(custom_tower, 32, RESBLOCKS),
    "clip resnet": Family(lambda: tower("small_resnet"), 96, ["attnpool"]),
    "coca": Family(coca_tower, 32, [*RESBLOCKS, "attn_pool.attn"]),
}


@lru_cache
def model_of(family: str) -> nn.Module:
    """Shared between tests: copy it before changing it."""
    return built(FAMILIES[family].make)


def pictures_of(family: str) -> Tensor:
    return random_images(2, FAMILIES[family].side)


def first(output: Any) -> Tensor:
    """The embedding, where a tower gives tokens beside it."""
    return output[0] if isinstance(output, tuple) else output


def by_the_book(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, Tensor]:
    """softmax(s q k^T + mask) v, and the weights."""
    assert dropout_p == 0
    if enable_gqa:
        groups = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    logits = (query @ key.mT) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        logits = logits.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        logits = logits + attn_mask
    weights = torch.exp(logits - logits.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    return weights @ value, weights


@contextmanager
def eager(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Tensor]]:
    """Let every attention be computed by the book; its weights are part of the graph."""
    weights: list[Tensor] = []

    def attend(*args: Any, **kwargs: Any) -> Tensor:
        output, formed = by_the_book(*args, **kwargs)
        weights.append(formed)
        return output

    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", attend)
        yield weights


def followed(model: nn.Module, images: Tensor, **options: Any) -> AttentionTap:
    """Run a model and follow its attentions to the residual stream."""
    with session(model) as hooks, torch.no_grad():
        tap = intercept(hooks, follow=True, **options)
        model(images)
    return tap


def mirrored(call: AttentionCall) -> Tensor:
    """Other heads, of the same shape."""
    return call.value.mean(dim=2, keepdim=True).expand_as(call.query) - 2 * call.query
