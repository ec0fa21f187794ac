"""Cosine between what each patch says in the output space and a direction there."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .towers import Tower, open_clip_tower, original_path, patch_tokens, timm_tower


def cosine_map(features: Tensor, directions: Tensor) -> Tensor:
    """Cosine of every position of [B, D, h, w] with every row of [T, D]: [B, T, h, w]."""
    batch, _, height, width = features.shape
    maps = features.new_zeros(batch, len(directions), height, width)
    for i in range(batch):
        for t, direction in enumerate(directions):
            for y in range(height):
                for x in range(width):
                    z = features[i, :, y, x]
                    maps[i, t, y, x] = (z @ direction) / (z.norm() * direction.norm())
    return maps


def dot_map(features: Tensor, rows: Tensor) -> Tensor:
    """Inner product of every position of [B, D, h, w] with every row of [T, D]: [B, T, h, w]."""
    batch, _, height, width = features.shape
    maps = features.new_zeros(batch, len(rows), height, width)
    for i in range(batch):
        for t, row in enumerate(rows):
            for y in range(height):
                for x in range(width):
                    maps[i, t, y, x] = features[i, :, y, x] @ row
    return maps


@torch.no_grad()
def tower_similarity(tower: Tower, directions: Tensor) -> Tensor:
    """Cosine of readout(last tokens) with the directions, patches only: [B, T, gh, gw]."""
    return cosine_map(patch_tokens(tower.readout(original_path(tower)), tower), directions)


@torch.no_grad()
def patch_text_similarity_open_clip(model: nn.Module, images: Tensor, text_embeddings: Tensor) -> Tensor:
    """l2(ln_post(z) @ proj) . l2(t) for every patch of open_clip's VisionTransformer: [B, T, gh, gw]."""
    return tower_similarity(open_clip_tower(model.visual, images), text_embeddings)


@torch.no_grad()
def patch_text_similarity_open_clip_resnet(model: nn.Module, images: Tensor, text_embeddings: Tensor) -> Tensor:
    """Every column of layer4 through the value path of the attention pool, no position added.

    MaskCLIP (Zhou 2022), ResNet form: c_proj(v_proj(x)) as 1x1 convolutions.
    """
    visual = model.visual
    features = visual.layer4(visual.layer3(visual.layer2(visual.layer1(visual.stem(images)))))
    pool = visual.attnpool
    columns = pool.c_proj(pool.v_proj(features.permute(0, 2, 3, 1)))
    return cosine_map(columns.permute(0, 3, 1, 2), text_embeddings)


@torch.no_grad()
def patch_text_similarity_timm_tower(model: nn.Module, images: Tensor, text_embeddings: Tensor) -> Tensor:
    """The same for open_clip's TimmModel around a class-token ViT: trunk.norm, then the head's projection."""
    trunk, head = model.visual.trunk, model.visual.head
    tower = timm_tower(trunk, images)
    tokens = trunk.head(trunk.fc_norm(trunk.norm(original_path(tower))))
    return cosine_map(patch_tokens(head(tokens), tower), text_embeddings)


@torch.no_grad()
def patch_class_similarity_timm(vit: nn.Module, images: Tensor, rows: Tensor) -> Tensor:
    """l2(fc_norm(norm(z))) . l2(w_c) for every patch of a timm ViT, Eva or Beit: [B, T, gh, gw]."""
    return tower_similarity(timm_tower(vit, images), rows)


@torch.no_grad()
def grid_similarity_timm(model: nn.Module, images: Tensor, rows: Tensor, layout: str = "NCHW") -> Tensor:
    """l2(column of forward_features) . l2(w_c), where the head is average pooling and a linear map."""
    features = model.forward_features(images)
    if layout == "NHWC":
        features = features.permute(0, 3, 1, 2)
    return cosine_map(features, rows)
