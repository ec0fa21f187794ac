"""Transformer image towers taken apart: embedding, blocks, read-out.

Only modules without attention (patch embedding, norms, MLPs) are called; q, k and v come straight from the
projection weights and every attention is computed by `attention.plain_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import plain_attention

# Four ways of carrying a learned position embedding to another grid are in use; they are not compatible.
POSITIONS = ("bicubic_antialias", "bilinear", "bicubic_scale", "bicubic")


@dataclass(frozen=True)
class Tower:
    """Tokens that enter the first block, and what is needed to go on from there."""

    tokens: Tensor  # [B, N, C]
    blocks: list[nn.Module]
    grid: tuple[int, int]
    prefix: int
    readout: Callable[[Tensor], Tensor]  # tokens [B, N, C] -> output space [B, N, D]
    rope: Tensor | None = None
    shared_bias: Tensor | None = None


def resized_positions(table: Tensor, old: tuple[int, int], new: tuple[int, int], how: str) -> Tensor:
    """Position embedding [1 + h0*w0, C] on a new grid: class row kept, patch rows interpolated.

    how: "bicubic_antialias" GEM and LeGrad; "bilinear" CLIP Surgery; "bicubic_scale" SCLIP and its heirs
    (DINO's scale factor of (g + 0.1) / g0); "bicubic" Grad-ECLIP and MaskCLIP.
    """
    if old == new:
        return table
    patches = table[1:].reshape(1, *old, -1).permute(0, 3, 1, 2)
    if how == "bicubic_antialias":
        patches = F.interpolate(patches, size=new, mode="bicubic", antialias=True)
    elif how == "bilinear":
        patches = F.interpolate(patches, size=new, mode="bilinear")
    elif how == "bicubic_scale":
        factor = ((new[0] + 0.1) / old[0], (new[1] + 0.1) / old[1])
        patches = F.interpolate(patches, scale_factor=factor, mode="bicubic", recompute_scale_factor=False)
    elif how == "bicubic":
        patches = F.interpolate(patches, size=new, mode="bicubic", align_corners=False)
    else:
        raise KeyError(how)
    return torch.cat([table[:1], patches.permute(0, 2, 3, 1).reshape(new[0] * new[1], -1)])


def open_clip_tower(visual: nn.Module, images: Tensor, pos_interp: str = "bicubic_antialias") -> Tower:
    """open_clip's VisionTransformer: conv1, [CLS; patches] + positions, ln_pre; read-out ln_post, proj."""
    patches = visual.conv1(images)
    batch, width, height, breadth = patches.shape
    patches = patches.reshape(batch, width, height * breadth).permute(0, 2, 1)
    cls = visual.class_embedding.reshape(1, 1, width).repeat(batch, 1, 1)
    positions = resized_positions(visual.positional_embedding, tuple(visual.grid_size), (height, breadth), pos_interp)
    tokens = visual.ln_pre(torch.cat([cls, patches], dim=1) + positions)
    return Tower(
        tokens=tokens,
        blocks=list(visual.transformer.resblocks),
        grid=(height, breadth),
        prefix=1,
        readout=lambda z: visual.ln_post(z) @ visual.proj,
    )


def timm_tower(vit: nn.Module, images: Tensor) -> Tower:
    """timm's VisionTransformer, Eva and Beit: their own embedding; read-out norm, then fc_norm.

    The class rows are applied by the caller, so that a cosine and a logit can both be formed.
    """
    rope = shared_bias = None
    size = vit.patch_embed.patch_size
    grid = (math.ceil(images.shape[2] / size[0]), math.ceil(images.shape[3] / size[1]))
    tokens = vit.patch_embed(images)
    if hasattr(vit, "rel_pos_bias"):  # Beit
        cls = vit.cls_token.repeat(len(images), 1, 1)
        tokens = torch.cat([cls, tokens], dim=1)
        if vit.pos_embed is not None:
            tokens = tokens + vit.pos_embed
        shared_bias = None if vit.rel_pos_bias is None else vit.rel_pos_bias()
    else:
        tokens = vit._pos_embed(tokens)
        if isinstance(tokens, tuple):  # Eva gives the rotation along
            tokens, rope = tokens
        tokens = vit.norm_pre(tokens)
    return Tower(
        tokens=tokens,
        blocks=list(vit.blocks),
        grid=grid,
        prefix=tokens.shape[1] - grid[0] * grid[1],
        readout=lambda z: vit.fc_norm(vit.norm(z)),
        rope=rope,
        shared_bias=shared_bias,
    )


def first_norm(block: nn.Module, x: Tensor) -> Tensor:
    """u = LN1(x), what the attention of the block reads."""
    return block.ln_1(x) if hasattr(block, "ln_1") else block.norm1(x)


def head_dim(attn: nn.Module) -> int:
    """d, the width of one head."""
    if isinstance(attn, nn.MultiheadAttention):
        return attn.embed_dim // attn.num_heads
    weight = attn.qkv.weight if attn.qkv is not None else attn.q_proj.weight.repeat(3, 1)
    return weight.shape[0] // 3 // attn.num_heads


def qkv(block: nn.Module, u: Tensor, tower: Tower) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v of a block, each [B, H, N, d], from the projection weights, after q/k norm and rotation."""
    attn = block.attn
    if isinstance(attn, nn.MultiheadAttention):
        q, k, v = _multihead_projections(attn, u)
    elif attn.qkv is not None:
        q, k, v = _fused_projections(attn, u)
    else:
        q, k, v = attn.q_proj(u), attn.k_proj(u), attn.v_proj(u)
    heads, d = attn.num_heads, head_dim(attn)
    q, k, v = (_by_head(z, heads, d) for z in (q, k, v))
    q, k = getattr(attn, "q_norm", _same)(q), getattr(attn, "k_norm", _same)(k)
    if tower.rope is not None:
        half = getattr(attn, "rotate_half", False)
        q, k = (_rotated(z, tower.rope, tower.prefix, half) for z in (q, k))
    return q, k, v


def additive_bias(block: nn.Module, tower: Tower) -> Tensor | None:
    """What is added to scaled q k^T: Beit's table looked up by relative position, own plus shared."""
    table = getattr(block.attn, "relative_position_bias_table", None)
    if table is None:
        return tower.shared_bias
    index = block.attn.relative_position_index
    bias = table.new_zeros(1, table.shape[1], *index.shape)
    for h in range(table.shape[1]):
        bias[0, h] = table[:, h][index.reshape(-1)].reshape(index.shape)
    return bias if tower.shared_bias is None else bias + tower.shared_bias


def attention_branch(block: nn.Module, per_head: Tensor, u: Tensor) -> Tensor:
    """Heads [B, H, N, d] side by side, output projection, layer scale: what is added to the residual."""
    attn = block.attn
    joined = torch.cat([per_head[:, h] for h in range(per_head.shape[1])], dim=2)
    if isinstance(attn, nn.MultiheadAttention):
        return block.ls_1(joined @ attn.out_proj.weight.T + attn.out_proj.bias)
    joined = getattr(attn, "norm", _same)(joined)
    if getattr(attn, "gate", None) is not None:
        joined = joined * torch.sigmoid(attn.gate(u))
    out = attn.proj(joined)
    if hasattr(block, "ls1"):
        return block.ls1(out)
    return out if block.gamma_1 is None else block.gamma_1 * out


def feed_forward_branch(block: nn.Module, x: Tensor) -> Tensor:
    """MLP(LN2(x)), layer scale: the second thing added to the residual."""
    if hasattr(block, "ln_2"):
        return block.ls_2(block.mlp(block.ln_2(x)))
    out = block.mlp(block.norm2(x))
    if hasattr(block, "ls2"):
        return block.ls2(out)
    return out if block.gamma_2 is None else block.gamma_2 * out


def original_block(block: nn.Module, x: Tensor, tower: Tower) -> Tensor:
    """One ordinary pre-norm block: x + O(softmax(s q k^T + bias) v), then + FFN."""
    u = first_norm(block, x)
    q, k, v = qkv(block, u, tower)
    heads = plain_attention(q, k, v, q.shape[-1] ** -0.5, additive_bias(block, tower))
    x = x + attention_branch(block, heads, u)
    return x + feed_forward_branch(block, x)


def original_path(tower: Tower, count: int | None = None) -> Tensor:
    """Tokens [B, N, C] after the first `count` blocks (all of them by default)."""
    x = tower.tokens
    for block in tower.blocks[:count]:
        x = original_block(block, x, tower)
    return x


def patch_tokens(tokens: Tensor, tower: Tower) -> Tensor:
    """[B, N, D] without the prefix tokens, as [B, D, gh, gw], rows first."""
    patches = tokens[:, tower.prefix :]
    return patches.permute(0, 2, 1).reshape(len(tokens), -1, *tower.grid)


def _same(z: Tensor) -> Tensor:
    return z


def _multihead_projections(attn: nn.MultiheadAttention, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    c = attn.embed_dim
    if attn.in_proj_weight is not None:
        weights = (attn.in_proj_weight[:c], attn.in_proj_weight[c : 2 * c], attn.in_proj_weight[2 * c :])
    else:
        weights = (attn.q_proj_weight, attn.k_proj_weight, attn.v_proj_weight)
    bias = attn.in_proj_bias
    q, k, v = (u @ w.T + bias[i * c : (i + 1) * c] for i, w in enumerate(weights))
    return q, k, v


def _fused_projections(attn: nn.Module, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    weight, bias = attn.qkv.weight, attn.qkv.bias
    if getattr(attn, "q_bias", None) is not None:  # Beit and Eva have no bias on k
        bias = torch.cat([attn.q_bias, torch.zeros_like(attn.q_bias), attn.v_bias])
    joined = u @ weight.T
    if bias is not None:
        joined = joined + bias
    c = weight.shape[0] // 3
    return joined[..., :c], joined[..., c : 2 * c], joined[..., 2 * c :]


def _by_head(z: Tensor, heads: int, d: int) -> Tensor:
    return torch.stack([z[:, :, h * d : (h + 1) * d] for h in range(heads)], dim=1)


def _rotated(z: Tensor, rope: Tensor, prefix: int, half: bool) -> Tensor:
    """Su 2021, eq. 34: every pair of channels of a patch token turned by its angle; prefix tokens are not.

    Pairs are (2i, 2i+1), or (i, i + d/2) where `half`. rope: [N - prefix, 2 d], sines then cosines.
    """
    d = z.shape[-1]
    sin, cos = rope[..., :d], rope[..., d:]
    out = z.clone()
    pairs = [(i, i + d // 2) for i in range(d // 2)] if half else [(2 * i, 2 * i + 1) for i in range(d // 2)]
    for i, j in pairs:
        a, b = z[:, :, prefix:, i], z[:, :, prefix:, j]
        out[:, :, prefix:, i] = a * cos[..., i] - b * sin[..., i]
        out[:, :, prefix:, j] = b * cos[..., j] + a * sin[..., j]
    return out
