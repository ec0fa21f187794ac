"""One attention, written in every form that models fold their heads and tokens in: always [B, H, N, d] outside.

Einstein sums in many orders, heads folded into the batch, one head, keys and values that the heads share, a single
window with a dimension of its own, modules that receive a map, and ones that are handed queries, keys and values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from explainer.attention import AttentionCall, ordinary, softmax_weights
from explainer.intercept import AttentionTap, intercept
from explainer.session import session

HEADS, SIDE, WIDTH = 3, 3, 4
TOKENS, CHANNELS = SIDE * SIDE, HEADS * WIDTH
BIAS = torch.arange(HEADS * TOKENS * TOKENS).reshape(HEADS, TOKENS, TOKENS).sin()
Form = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes q, k, v as [B, H, N, d] to softmax(q k^T) v as [B, H, N, d], by a way of its own."""


def einstein(scores: str, values: str, laid: Callable[[Tensor], Tensor], back: Callable[[Tensor], Tensor]) -> Form:
    """Two Einstein sums on tensors that `laid` lays out from [B, H, N, d], and `back` back."""

    def form(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = torch.einsum(scores, laid(query), laid(key)).softmax(dim=-1)
        return back(torch.einsum(values, weights, laid(value)))

    return form


def folded(attend: Form) -> Form:
    """Heads in the batch."""
    return lambda q, k, v: attend(*(each.flatten(0, 1) for each in (q, k, v))).unflatten(0, (-1, HEADS))


def windowed(attend: Form, place: int = 2) -> Form:
    """One window, in a dimension of its own."""
    return lambda q, k, v: attend(*(each.unsqueeze(place) for each in (q, k, v))).squeeze(place)


def by_bmm(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.bmm(torch.bmm(query, key.transpose(1, 2)).softmax(-1), value)


def by_matmul(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return (query @ key.mT).softmax(-1) @ value


def fused(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, scale=1.0)


def same(heads: Tensor) -> Tensor:
    return heads


def tokens_first(heads: Tensor) -> Tensor:
    return heads.transpose(1, 2)


def widths_first(heads: Tensor) -> Tensor:
    return heads.transpose(2, 3)


def batch_last(heads: Tensor) -> Tensor:
    return heads.permute(1, 2, 3, 0)


FORMS: dict[str, Form] = {
    "einsum": einstein("bhid,bhjd->bhij", "bhij,bhjd->bhid", same, same),
    "einsum with spaces": einstein("b h i d, b h j d -> b h i j", "b h i j, b h j d -> b h i d", same, same),
    "einsum, tokens before heads": einstein("bihd,bjhd->bhij", "bhij,bjhd->bihd", tokens_first, tokens_first),
    "einsum, widths before tokens": einstein("bhdi,bhdj->bhij", "bhij,bhdj->bhdi", widths_first, widths_first),
    "einsum, batch last": einstein(
        "hidb,hjdb->bhij", "bhij,hjdb->hidb", batch_last, lambda laid: laid.permute(3, 0, 1, 2)
    ),
    "einsum, keys first": lambda q, k, v: torch.einsum("bhjd,bhid->bhij", k, q).softmax(-1) @ v,
    "einsum, values first": lambda q, k, v: torch.einsum("bhjd,bhij->bhid", v, (q @ k.mT).softmax(-1)),
    "einsum for the scores alone": lambda q, k, v: torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1) @ v,
    "einsum, heads in the batch": folded(einstein("bid,bjd->bij", "bij,bjd->bid", same, same)),
    "bmm, heads in the batch": folded(by_bmm),
    "fused, heads in the batch": folded(fused),
    "fused": fused,
    "one window": windowed(by_matmul),
    "one window, fused": windowed(fused),
    "one window before the heads": windowed(by_matmul, 1),
    "one window before the heads, einsum": windowed(
        einstein("bwhid,bwhjd->bwhij", "bwhij,bwhjd->bwhid", same, same), 1
    ),
    "one window, einsum": windowed(einstein("bhwid,bhwjd->bhwij", "bhwij,bhwjd->bhwid", same, same)),
}


class Attention(nn.Module):
    """Makes q, k and v of what it receives, attends in a given form, and adds a way out."""

    def __init__(self, form: Form, receives: str = "tokens", heads: int = HEADS, shared: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.receives, self.heads, self.shared = form, receives, heads, shared
        self.qkv, self.out = nn.Linear(CHANNELS, 3 * CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def parts(self, x: Tensor) -> list[Tensor]:
        """q, k and v of tokens, each [B, H, N, d]; keys and values have one head where they are shared."""
        query, key, value = (
            t.unflatten(2, (self.heads, -1)).transpose(1, 2) for t in (2 * self.qkv(x)).chunk(3, dim=2)
        )
        return [query, key[:, :1], value[:, :1]] if self.shared else [query, key, value]

    def forward(self, x: Tensor) -> Tensor:
        return laid_back(self.out(self.form(*self.parts(columns(x))).transpose(1, 2).flatten(2)), self.receives)


class Block(nn.Module):
    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.attn = attn

    def forward(self, x: Tensor) -> Tensor:
        return x + 2 * self.attn(x)


def columns(x: Tensor) -> Tensor:
    """Lay [B, C, h, w], [B, h, w, C] or [B, N, C] out as the last."""
    if x.dim() == 3:
        return x
    return x.flatten(1, 2) if x.shape[3] == CHANNELS else x.flatten(2).transpose(1, 2)


def laid_back(x: Tensor, receives: str) -> Tensor:
    if receives == "tokens":
        return x
    grid = x.unflatten(1, (SIDE, SIDE))
    return grid if receives == "NHWC" else grid.permute(0, 3, 1, 2)


def received(receives: str = "tokens") -> Tensor:
    tokens = torch.randn(2, TOKENS, CHANNELS, generator=torch.Generator().manual_seed(1))
    return laid_back(tokens, receives)


def watched(attn: Attention, **options: Any) -> tuple[Tensor, AttentionTap]:
    model = Block(attn).eval()
    with session(model) as hooks, torch.no_grad():
        tap = intercept(hooks, **options)
        return model(received(attn.receives)), tap


def check(attn: Attention, name: str = "attn") -> AttentionCall:
    """Hold what is recorded of an attention, replaced and followed against the formula."""
    x = received(attn.receives)
    with torch.no_grad():
        query, key, value = attn.parts(columns(x))
        weights, plain = softmax_weights(query, key, 1.0), x + 2 * attn(x)
    for options in ({}, {"rule": ordinary}, {"weights": True}, {"follow": True}):
        output, tap = watched(attn, **options)
        (call,) = tap.calls
        assert (call.name, call.altered, call.bias) == (name, False, None)
        for found, expected in ((call.query, query), (call.key, key), (call.value, value)):
            assert torch.equal(found, expected.expand_as(found))
            assert found.shape == query.shape
        torch.testing.assert_close(call.weights, weights)
        torch.testing.assert_close(call.output, weights @ value)
        torch.testing.assert_close(output, plain)
        assert torch.equal(call.input, columns(x))
    check_replaced(attn, query)
    return call


def check_replaced(attn: Attention, query: Tensor) -> None:
    """Other heads come out as if the attention had given them, replaced or sent down its way."""
    heads, x = query.sin(), received(attn.receives)
    with torch.no_grad():
        increment = 2 * laid_back(attn.out(heads.transpose(1, 2).flatten(2)), attn.receives)
    output, _ = watched(attn, rule=lambda _call: heads)
    torch.testing.assert_close(output, x + increment)
    _, tap = watched(attn, follow=True)
    torch.testing.assert_close(tap.calls[0].project(heads), increment)
    assert torch.equal(tap.calls[0].residual, x)


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    check(Attention(FORMS[form]))


@pytest.mark.parametrize("receives", ["NCHW", "NHWC"])
@pytest.mark.parametrize("form", ["einsum", "bmm, heads in the batch", "fused", "one window"])
def test_modules_that_receive_a_map(form: str, receives: str) -> None:
    check(Attention(FORMS[form], receives))


@pytest.mark.parametrize("attend", [by_bmm, by_matmul, fused, einstein("bid,bjd->bij", "bij,bjd->bid", same, same)])
def test_one_head_without_a_dimension(attend: Form) -> None:
    form: Form = lambda q, k, v: attend(*(each.squeeze(1) for each in (q, k, v))).unsqueeze(1)  # noqa: E731
    call = check(Attention(form, heads=1))
    assert call.query.shape == (2, 1, TOKENS, CHANNELS)


@pytest.mark.parametrize("attend", [by_matmul, fused])
def test_keys_and_values_that_the_heads_share(attend: Form) -> None:
    call = check(Attention(attend, shared=True))
    assert call.key.shape == (2, HEADS, TOKENS, WIDTH)


@pytest.mark.parametrize("shape", [(2 * HEADS, TOKENS, TOKENS), (1, TOKENS, TOKENS), (TOKENS, TOKENS)])
def test_a_bias_where_heads_are_in_the_batch(shape: tuple[int, ...]) -> None:
    bias = BIAS.repeat(2, 1, 1)[: shape[0]] if len(shape) == 3 else BIAS[0]
    full = BIAS if shape[0] == 2 * HEADS else BIAS[:1]

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.bmm((torch.bmm(query, key.transpose(1, 2)) + bias).softmax(-1), value)

    attn = Attention(folded(attend))
    with torch.no_grad():
        query, key, _ = attn.parts(received())
    for rule in (None, ordinary):
        _, tap = watched(attn, rule=rule)
        torch.testing.assert_close(tap.calls[0].bias.expand(2, HEADS, -1, -1), full.expand(2, HEADS, -1, -1))
        torch.testing.assert_close(tap.calls[0].weights, softmax_weights(query, key, 1.0, full))
    fused_with_it = folded(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0))
    _, tap = watched(Attention(fused_with_it))
    torch.testing.assert_close(tap.calls[0].weights, softmax_weights(query, key, 1.0, full))


OTHER_SUMS: dict[str, Form] = {
    "over the tokens": lambda q, k, v: torch.einsum("bhnd,bhne->bhde", q, k).softmax(-1).mT.sum(-1)[:, :, None] * v,
    "over two letters": lambda q, k, v: torch.einsum("bhid,bhjd->bij", q, k).softmax(-1)[:, None] @ v,
    "of three": lambda q, k, v: torch.einsum("bhid,bhjd,bhje->bhie", q, k, v),
    "without an arrow": lambda q, k, v: torch.einsum("bhid,bhjd", q, k).softmax(-1).sum((-1, -2))[..., None, None] * v,
    "of values and weights by their queries": lambda q, k, v: torch.einsum(
        "bhji,bhjd->bhid", torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1), v
    ),
}


@pytest.mark.parametrize("way", OTHER_SUMS)
def test_other_sums(way: str) -> None:
    attn = Attention(OTHER_SUMS[way])
    with torch.no_grad():
        plain = received() + 2 * attn(received())
    for options in ({}, {"rule": ordinary}, {"follow": True}):
        output, tap = watched(attn, **options)
        assert tap.calls == []
        assert torch.equal(output, plain)


class Core(nn.Module):
    """Attends, and is handed queries, keys and values."""

    def __init__(self, attend: Form) -> None:
        super().__init__()
        self.attend = attend

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return self.attend(query, key, value)


class Cored(Attention):
    """Has a core that attends, and adds positions to what it gives."""

    def __init__(self, attend: Form, turned: bool, positions: bool) -> None:
        super().__init__(self.attend)
        self.core, self.turned, self.positions = Core(attend), turned, positions

    def attend(self, *parts: Tensor) -> Tensor:
        if self.turned:
            return self.core(*(part.transpose(1, 2) for part in parts)).transpose(1, 2)
        return self.core(*parts) + parts[2].cumsum(dim=2) if self.positions else self.core(*parts)


@pytest.mark.parametrize("turned", [False, True])
def test_a_part_that_is_handed_queries_keys_and_values(turned: bool) -> None:
    turn = tokens_first if turned else same
    check(Cored(lambda q, k, v: turn(fused(turn(q), turn(k), turn(v))), turned, positions=False))


def test_positions_that_are_added_behind_such_a_part_are_no_residual_stream() -> None:
    attn = Cored(fused, turned=False, positions=True)
    _, tap = watched(attn, follow=True)
    (call,) = tap.calls
    assert torch.equal(call.residual, received())
    with torch.no_grad():
        torch.testing.assert_close(call.increment, 2 * attn(received()))
