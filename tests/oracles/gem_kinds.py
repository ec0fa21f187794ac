"""GEM beyond the plain ViT: maps as streams, attentions side by side, models that go on behind the last block.

What GEM needs of a block, and nothing else, is written down for each kind: the tokens that its attentions receive,
their q, k and v from the weights, and what their heads add to the stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import plain_attention, self_self
from .gem import inverse_temperature
from .similarity import dot_map

Heads = tuple[Tensor, Tensor, Tensor]


def _same(stream: Tensor) -> Tensor:
    return stream


@dataclass(frozen=True)
class Branch:
    """One attention of a block."""

    tokens: Callable[[Tensor], Tensor]  # stream -> what it receives, [B, N, C]
    qkv: Callable[[Tensor], Heads]  # [B, N, C] -> [B, H, N, d] each
    added: Callable[[Tensor], Tensor]  # heads [B, H, N, d] -> what comes onto the stream


@dataclass(frozen=True)
class Stage:
    """One block: its attentions are added at once, to what the block carries over."""

    branches: Sequence[Branch]
    run: Callable[[Tensor], Tensor]  # the whole block, as the model has it
    carried: Callable[[Tensor], Tensor] = _same


@torch.no_grad()
def gem_path(
    stages: Sequence[Stage], stream: Tensor, count: int, iterations: int = 1, temperature: float | None = None
) -> Tensor:
    """The GEM path behind the last stage, of which the last `count` attentions take part, block after block.

    Of a block whose attentions only partly take part, the others give what they ordinarily do.
    """
    total = sum(len(stage.branches) for stage in stages)
    path, place = None, 0
    for stage in stages:
        part = [place + i >= total - count for i in range(len(stage.branches))]
        place += len(part)
        if any(part):
            path = stage.carried(stream) if path is None else stage.carried(path)
            for branch, takes_part in zip(stage.branches, part, strict=True):
                path = path + _branch(branch, stream, takes_part, iterations, temperature)
        stream = stage.run(stream)
    return path


def _branch(branch: Branch, stream: Tensor, takes_part: bool, iterations: int, temperature: float | None) -> Tensor:
    tokens = branch.tokens(stream)
    q, k, v = branch.qkv(tokens)
    if not takes_part:
        return branch.added(plain_attention(q, k, v, q.shape[-1] ** -0.5))
    beta = inverse_temperature(tokens, q.shape[-1]) if temperature is None else temperature
    return branch.added(sum(self_self(start, v, beta, iterations) for start in (v, k, q)) / 3)


def linear_heads(attn: nn.Module) -> Callable[[Tensor], Heads]:
    """q, k, v by one linear layer, side by side in this order, heads in blocks of channels."""

    def heads(tokens: Tensor) -> Heads:
        joined = tokens @ attn.qkv.weight.T + attn.qkv.bias
        width = joined.shape[2] // 3
        d = width // attn.num_heads
        parts = [joined[:, :, i * width : (i + 1) * width] for i in range(3)]
        return tuple(
            torch.stack([part[:, :, h * d : (h + 1) * d] for h in range(attn.num_heads)], dim=1) for part in parts
        )

    return heads


def side_by_side(heads: Tensor) -> Tensor:
    """[B, H, N, d] to [B, N, H d]."""
    return torch.cat([heads[:, h] for h in range(heads.shape[1])], dim=2)


def rows_map(features: Tensor, model: nn.Module, classes: Sequence[int]) -> Tensor:
    """Contributions [B, T, h, w] of the cells of [B, C, h, w] to the logits of a linear head."""
    classifier = model.get_classifier()
    return dot_map(features, getattr(classifier, "fc", classifier).weight[list(classes)])


@torch.no_grad()
def gem_swin(model: nn.Module, images: Tensor, classes: Sequence[int], count: int, *options: float | None) -> Tensor:
    """Swin whose last stage is one window: an NHWC stream, then the final norm."""
    stream = model.patch_embed(images)
    for layer in model.layers[:-1]:
        stream = layer(stream)
    stream = model.layers[-1].downsample(stream)

    def stage(block: nn.Module) -> Stage:
        attn = block.attn

        def added(heads: Tensor) -> Tensor:
            out = side_by_side(heads) @ attn.proj.weight.T + attn.proj.bias
            return out.reshape(stream.shape)

        return Stage([Branch(lambda x: block.norm1(x).flatten(1, 2), linear_heads(attn), added)], block)

    path = gem_path([stage(block) for block in model.layers[-1].blocks], stream, count, *options)
    return rows_map(model.norm(path).permute(0, 3, 1, 2), model, classes)


@torch.no_grad()
def gem_coatnet(model: nn.Module, images: Tensor, classes: Sequence[int], count: int, *options: float | None) -> Tensor:
    """CoAtNet's last stage: an NCHW stream whose first block carries over a smaller map of more channels."""
    stream = model.stem(images)
    for layer in model.stages[:-1]:
        stream = layer(stream)

    def stage(block: nn.Module) -> Stage:
        attn = block.attn

        def heads(tokens: Tensor) -> Heads:
            joined = tokens @ attn.qkv.weight.flatten(1).T + attn.qkv.bias
            d = attn.dim_head
            # Head by head, and within a head first q, then k, then v.
            at = [[(3 * h + i) * d for h in range(attn.num_heads)] for i in range(3)]
            return tuple(torch.stack([joined[:, :, a : a + d] for a in starts], dim=1) for starts in at)

        def added(given: Tensor) -> Tensor:
            out = side_by_side(given) @ attn.proj.weight.flatten(1).T + attn.proj.bias
            side = round(out.shape[1] ** 0.5)
            return out.transpose(1, 2).reshape(len(out), -1, side, side)

        branch = Branch(lambda x: block.norm1(x).flatten(2).transpose(1, 2), heads, added)
        return Stage([branch], block, block.shortcut)

    path = gem_path([stage(block) for block in model.stages[-1].blocks], stream, count, *options)
    return rows_map(model.norm(path), model, classes)


@torch.no_grad()
def gem_sam(model: nn.Module, images: Tensor, classes: Sequence[int], count: int, *options: float | None) -> Tensor:
    """The ViT of SAM: an NHWC stream; the last MLP and a neck of convolutions follow, and run on the GEM path."""
    stream = model.patch_embed(images) + model.pos_embed if model.pos_embed is not None else model.patch_embed(images)

    def stage(block: nn.Module) -> Stage:
        attn = block.attn

        def added(heads: Tensor) -> Tensor:
            return (side_by_side(heads) @ attn.proj.weight.T + attn.proj.bias).reshape(stream.shape)

        return Stage([Branch(lambda x: block.norm1(x).flatten(1, 2), linear_heads(attn), added)], block)

    path = gem_path([stage(block) for block in model.blocks], stream, count, *options)
    last = model.blocks[-1]
    return rows_map(model.neck((path + last.mlp(last.norm2(path))).permute(0, 3, 1, 2)), model, classes)


@torch.no_grad()
def gem_parallel(vit: nn.Module, images: Tensor, classes: Sequence[int], count: int, *options: float | None) -> Tensor:
    """A ViT whose blocks have several attentions side by side, and layer scale."""
    patches = vit.patch_embed(images)
    stream = torch.cat([vit.cls_token.expand(len(images), -1, -1), patches], dim=1) + vit.pos_embed

    def branch(module: nn.Module) -> Branch:
        attn = module.attn

        def added(heads: Tensor) -> Tensor:
            return module.ls(side_by_side(heads) @ attn.proj.weight.T + attn.proj.bias)

        return Branch(module.norm, linear_heads(attn), added)

    stages = [Stage([branch(module) for module in block.attns], block) for block in vit.blocks]
    tokens = vit.norm(gem_path(stages, stream, count, *options))[:, 1:]
    side = round(tokens.shape[1] ** 0.5)
    return rows_map(tokens.transpose(1, 2).reshape(len(tokens), -1, side, side), vit, classes)


@torch.no_grad()
def gem_convolved(
    model: nn.Module, images: Tensor, classes: Sequence[int], count: int, *options: float | None
) -> Tensor:
    """A network made for the test: attention blocks on an NCHW map, then convolutions and a mean."""
    stream = model.stem(images)

    def stage(block: nn.Module) -> Stage:
        def added(heads: Tensor) -> Tensor:
            out = side_by_side(heads) @ block.attn.proj.weight.flatten(1).T + block.attn.proj.bias
            return out.transpose(1, 2).reshape(stream.shape)

        def heads(tokens: Tensor) -> Heads:
            joined = tokens @ block.attn.qkv.weight.flatten(1).T + block.attn.qkv.bias
            return tuple(part.unflatten(2, (2, -1)).transpose(1, 2) for part in joined.chunk(3, dim=2))

        return Stage([Branch(lambda x: block.norm(x).flatten(2).transpose(1, 2), heads, added)], block)

    path = gem_path([stage(block) for block in model.blocks], stream, count, *options)
    last = model.blocks[-1]
    features = model.behind(path + last.mlp(path))
    return dot_map(features, model.head.weight[list(classes)])
