"""Networks whose attentions look like dense attention over the patches, and are not, or are in an unusual way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SIDE = 8
TOKENS = SIDE * SIDE


def split(tokens: Tensor, heads: int) -> Tensor:
    """[.., N, C] to [.., H, N, d]."""
    return tokens.unflatten(-1, (heads, -1)).transpose(-3, -2)


def join(heads: Tensor) -> Tensor:
    """[.., H, N, d] to [.., N, C]."""
    return heads.transpose(-3, -2).flatten(-2)


def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The function that every attention here ends in."""
    return F.scaled_dot_product_attention(query, key, value)


Rule = Callable[["Attention", Tensor], Tensor]
"""Takes a module and its tokens [B, N, C] to tokens that are then projected."""


class Attention(nn.Module):
    """An attention whose rule is given."""

    def __init__(self, rule: Rule, dim: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.rule, self.heads = rule, heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.memory, self.contents = (nn.Parameter(torch.randn(TOKENS, dim)) for _ in range(2))

    def parts(self, x: Tensor) -> list[Tensor]:
        """q, k and v, [B, H, N, d] each."""
        return [split(each, self.heads) for each in self.qkv(x).chunk(3, dim=-1)]

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.rule(self, x))


class Block(nn.Module):
    """A residual block; `added` says how the attention, and an MLP, come onto the stream."""

    def __init__(self, attn: nn.Module, added: str = "plainly", dim: int = 32) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), attn, nn.LayerNorm(dim)
        self.mlp, self.added = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)), added
        self.register_buffer("positions", torch.randn(1, TOKENS, dim))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        if self.added == "both at once":
            return x + (self.attn(y) + self.mlp(y))
        if self.added == "one after the other":
            return x + self.attn(y) + self.mlp(y)
        if self.added == "with positions":
            x = x + (self.attn(y) + self.positions)
        elif self.added == "without a graph":
            with torch.no_grad():
                x = x + self.attn(y)
        elif self.added == "to a scaled stream":
            x = 1.5 * x + self.attn(y)
        elif self.added == "and halved":
            x = (x + self.attn(y)) / 2
        elif self.added == "and normalised":
            return self.norm2(x + self.attn(y))
        elif self.added == "into a view":
            x = x.clone()
            x[:, :] += self.attn(y)
        else:
            x = x + self.attn(y)
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    """A stem, blocks over 8 x 8 tokens behind some prefix tokens, a norm, a mean and a head."""

    def __init__(self, *blocks: nn.Module, dim: int = 32, prefix: int = 0) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, dim, 4, 4)
        self.prefix = nn.Parameter(torch.randn(1, prefix, dim))
        self.positions = nn.Parameter(torch.randn(1, TOKENS + prefix, dim))
        self.blocks, self.norm, self.head = nn.ModuleList(blocks), nn.LayerNorm(dim), nn.Linear(dim, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.prefix.expand(len(x), -1, -1), x], dim=1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


def net(rule: Rule, added: str = "plainly", dim: int = 32, heads: int = 2, **options: Any) -> Net:
    """Two blocks of one kind."""
    torch.manual_seed(0)
    return Net(*(Block(Attention(rule, dim, heads), added, dim) for _ in range(2)), dim=dim, **options)


def plainly(module: Attention, x: Tensor) -> Tensor:
    """Ordinary attention."""
    return join(attend(*module.parts(x)))


def of_a_memory(module: Attention, x: Tensor) -> Tensor:
    """As many learned keys and values as there are tokens."""
    stored = (split(each.expand(len(x), -1, -1), module.heads) for each in (module.memory, module.contents))
    return join(attend(module.parts(x)[0], *stored))


def by_learned_queries(module: Attention, x: Tensor) -> Tensor:
    """As many learned queries as there are tokens."""
    return join(attend(split(module.memory.expand(len(x), -1, -1), module.heads), *module.parts(x)[1:]))


def among_learned_tokens(module: Attention, x: Tensor) -> Tensor:
    """Learned tokens attend to themselves."""
    return x + join(attend(*module.parts(module.memory.expand(len(x), -1, -1))))


def of_channels(module: Attention, x: Tensor) -> Tensor:
    """Channels attend to channels (XCiT); a head may be as wide as there are tokens."""
    return join(attend(*(part.transpose(-2, -1) for part in module.parts(x))).transpose(-2, -1))


def of_channels_written_out(module: Attention, x: Tensor) -> Tensor:
    """The same, of unit length and written out."""
    query, key, value = (part.transpose(-2, -1) for part in module.parts(x))
    weights = (F.normalize(query, dim=-1) @ F.normalize(key, dim=-1).transpose(-2, -1)).softmax(dim=-1)
    return (weights @ value).permute(0, 3, 1, 2).flatten(2)


def shifted(module: Attention, x: Tensor) -> Tensor:
    """Over one window that is shifted around the picture (Swin), and back behind it."""
    grid = x.unflatten(1, (SIDE, SIDE)).roll((-2, -2), (1, 2)).flatten(1, 2)
    return join(attend(*module.parts(grid))).unflatten(1, (SIDE, SIDE)).roll((2, 2), (1, 2)).flatten(1, 2)


def twice(module: Attention, x: Tensor) -> Tensor:
    """What one attention gives is attended by a second."""
    first = attend(*module.parts(x))
    return join(attend(first, first, first))


def beside_a_memory(module: Attention, x: Tensor) -> Tensor:
    """Dense attention, and another one to four learned tokens."""
    query = module.parts(x)[0]
    stored = (split(each[:4].expand(len(x), -1, -1), module.heads) for each in (module.memory, module.contents))
    return plainly(module, x) + join(attend(query, *stored))


def picture_by_picture(module: Attention, x: Tensor) -> Tensor:
    """One picture after the other, so that heads stand where pictures do."""
    return torch.stack([join(attend(*module.parts(each))) for each in x])


def heads_first(module: Attention, x: Tensor) -> Tensor:
    """[H, B, N, d]: with as many heads as pictures, one passes for the other."""
    return join(attend(*(part.transpose(0, 1) for part in module.parts(x))).transpose(0, 1))


def over_windows_of_one_head(module: Attention, x: Tensor) -> Tensor:
    """Four windows, where heads stand elsewhere."""
    query, key, value = (
        each.unflatten(1, (2, 4, 2, 4)).permute(0, 1, 3, 2, 4, 5).flatten(3, 4).flatten(1, 2)
        for each in module.qkv(x).chunk(3, dim=-1)
    )
    given = attend(query, key, value).unflatten(1, (2, 2)).unflatten(3, (4, 4))
    return given.permute(0, 1, 3, 2, 4, 5).flatten(1, 4)


class MapAttention(nn.Module):
    """Receives a map and attends, within windows laid out as `windows` says or over all of it."""

    def __init__(self, windows: str, side: int = 4, dim: int = 32) -> None:
        super().__init__()
        self.windows, self.side = windows, side
        self.qkv, self.proj = nn.Conv2d(dim, 3 * dim, 1), nn.Conv2d(dim, dim, 1)

    def forward(self, x: Tensor) -> Tensor:
        given = attend(*(self.cut(part) for part in self.qkv(x).chunk(3, dim=1)))
        rows = x.shape[2] // self.side
        if self.windows == "in the batch, with heads":
            given = join(given.unflatten(0, (-1, 2)))
        given = given.reshape(len(x), rows, -1, self.side, self.side, x.shape[1])
        return self.proj(given.permute(0, 5, 1, 3, 2, 4).reshape(x.shape))

    def cut(self, part: Tensor) -> Tensor:
        side = self.side
        cut = part.unflatten(3, (-1, side)).unflatten(2, (-1, side)).permute(0, 2, 4, 3, 5, 1)
        windows = cut.flatten(3, 4).flatten(1, 2)
        if self.windows == "in the batch":
            return windows.flatten(0, 1)
        if self.windows == "in the batch, with heads":
            return split(windows, 2).flatten(0, 2)
        return windows.unsqueeze(2) if self.windows == "before one head" else windows


class MapNet(nn.Module):
    """Attention over a map of 8 x 8, within windows of 4 x 4; then, maybe, over a map of 4 x 4 which is one window."""

    def __init__(self, windows: str, *, last: bool, dim: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.down = nn.Conv2d(3, dim, 4, 4), nn.Conv2d(dim, dim, 2, 2)
        self.early, self.late = MapAttention(windows), MapAttention(windows) if last else None
        self.norm, self.head = nn.BatchNorm2d(dim), nn.Linear(dim, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images)
        x = self.down(x + self.early(x))
        x = x if self.late is None else x + self.late(x)
        return self.head(self.norm(x).mean(dim=(2, 3)))


class OneModule(nn.Module):
    """A transformer of three layers that attends in its own forward."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, dim, 4, 4)
        self.qkv = nn.ModuleList([nn.Linear(dim, 3 * dim) for _ in range(3)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, 5)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        for qkv in self.qkv:
            x = x + join(attend(*(split(each, 2) for each in qkv(x).chunk(3, dim=-1))))
        return self.head(self.norm(x).mean(dim=1))
