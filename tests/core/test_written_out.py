"""Attention that a model writes out itself: recognised where it is one, left alone where it is not.

Families of timm: Swin v2 (cosine, learned scale, masks), TNT, LeViT (table of biases), EfficientViT (weights
on the right), ConViT (gates), CaiT (talking heads); and one way after another of writing an attention, of doing more
with its scores, or of writing what only looks like one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import built, difference, random_images
from torch import Tensor, nn
from torch.nn import functional as F

from core.nets import snapshot
from explainer.attention import ordinary
from explainer.intercept import AttentionTap, intercept
from explainer.session import session

SWIN = {"img_size": 64, "embed_dim": 16, "depths": (1, 1, 2, 1), "num_heads": (1, 2, 2, 4)}
# Name and options, the side of the pictures, the number of attentions.
FAMILIES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "swinv2": ("swinv2_tiny_window8_256", SWIN, 64, 5),
    "tnt": ("tnt_s_legacy_patch16_224", {"depth": 2, "img_size": 64}, 64, 4),
    "levit": ("levit_128s", {"img_size": 64}, 64, 11),
    "efficientvit": ("efficientvit_m0", {"img_size": 64}, 64, 24),
    "convit": ("convit_tiny", {"img_size": 64, "depth": 3, "local_up_to_layer": 1}, 64, 3),
}
ALTERED_IN = {"convit": [True, False, False]}


def run(model: nn.Module, images: Tensor, **options: Any) -> tuple[Tensor, AttentionTap]:
    with session(model) as hooks:
        tap = intercept(hooks, **options)
        output = model(images)
    return output.detach(), tap


@pytest.mark.parametrize("family", FAMILIES)
def test_family(family: str) -> None:
    name, options, side, count = FAMILIES[family]
    model = built(lambda: timm.create_model(name, num_classes=3, **options))
    images = random_images(2, side)
    plain = model.eval()(images).detach()
    before = snapshot(model)
    for watching in ({}, {"rule": ordinary}, {"weights": True}, {"follow": True}):
        output, tap = run(model, images, **watching)
        assert [call.altered for call in tap.calls] == ALTERED_IN.get(family, [False] * count)
        assert difference(output, plain) <= 1e-5
        for call in tap.calls:
            torch.testing.assert_close(call.weights.sum(dim=-1), torch.ones(call.query.shape[:-1]))
    assert snapshot(model) == before


@pytest.mark.parametrize("family", ["swinv2", "tnt"])
def test_gradients_reach_the_weights(family: str) -> None:
    name, options, side, _ = FAMILIES[family]
    model, images = built(lambda: timm.create_model(name, num_classes=3, **options)), random_images(2, side)
    formed: list[Tensor] = []
    handles = [
        module.register_forward_hook(lambda _module, _args, output: formed.append(output))
        for path, module in model.named_modules()
        if path.endswith("attn_drop")
    ]
    expected = torch.autograd.grad(model(images)[:, 0].sum(), formed)
    for handle in handles:
        handle.remove()
    with session(model) as hooks:
        tap = intercept(hooks, weights=True)
        output = model(images)
        found = torch.autograd.grad(output[:, 0].sum(), [call.weights for call in tap.calls])
    for ours, theirs, call, written in zip(found, expected, tap.calls, formed, strict=True):
        assert difference(call.weights.detach(), written.detach()) <= 1e-5
        assert difference(ours, theirs) <= 1e-4


HEADS, TOKENS, WIDTH = 3, 5, 4
MASK = torch.arange(25).reshape(5, 5) % 3 == 1
BIAS = torch.arange(25.0).reshape(5, 5).sin()
Rule = Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]


class Written(nn.Module):
    """An attention whose rule is given."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rule, self.drop, self.softmax = rule, nn.Dropout(0.1), nn.Softmax(dim=-1)
        self.qkv, self.mix, self.out = nn.Linear(12, 36), nn.Linear(3, 3), nn.Linear(12, 12)
        self.query = nn.Parameter(torch.randn(1, HEADS, 1, WIDTH))
        self.memory = nn.Parameter(torch.randn(TOKENS, HEADS * WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).reshape(2, TOKENS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
        return x + self.out(self.rule(self, query * 2, key * 2, value).transpose(1, 2).flatten(2))


def product(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1)


def folded(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Heads in the batch, and back for the mask: as the first transformers were written."""
    query, key, value = (each.flatten(0, 1) for each in (query, key, value))
    scores = torch.bmm(query, key.transpose(1, 2)).view(2, HEADS, TOKENS, TOKENS) + BIAS
    weights = module.drop(F.softmax(scores.view(2 * HEADS, TOKENS, TOKENS), dim=-1))
    return torch.bmm(weights, value).view(2, HEADS, TOKENS, WIDTH)


def masked_in_place(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = product(query, key).mul_(0.3)
    scores += BIAS
    scores.masked_fill_(MASK, -math.inf)
    return module.softmax(scores) @ value


def partly_set(_module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = product(query, key)
    scores[..., 0] = 1
    return scores.softmax(-1) @ value


RECOGNISED: dict[str, Rule] = {
    "plain": lambda _m, q, k, v: product(q, k).softmax(-1) @ v,
    "scaled queries": lambda _m, q, k, v: product(q * 0.5, k).softmax(dim=-1) @ v,
    "scaled": lambda _m, q, k, v: torch.softmax(0.5 * product(q, k), -1) @ v,
    "divided": lambda _m, q, k, v: F.softmax(product(q, k) / WIDTH**0.5, dim=3) @ v,
    "scale per head": lambda _m, q, k, v: (product(q, k) * torch.tensor([1.0, 2, 3]).view(3, 1, 1)).softmax(-1) @ v,
    "cosine": lambda _m, q, k, v: product(F.normalize(q, dim=-1), F.normalize(k, dim=-1)).softmax(-1) @ v,
    "biased": lambda m, q, k, v: m.drop(m.softmax(product(q, k) * 0.5 + BIAS)) @ v,
    "weighted bias": lambda _m, q, k, v: torch.add(product(q, k), BIAS, alpha=3).softmax(-1) @ v,
    "masked": lambda m, q, k, v: m.softmax(product(q, k).masked_fill(MASK, -math.inf)) @ v,
    "masked in place": masked_in_place,
    "partly set": partly_set,
    "in double": lambda _m, q, k, v: product(q, k).softmax(-1, dtype=torch.float64).float() @ v,
    "by matmul": lambda _m, q, k, v: torch.matmul(torch.matmul(q, k.mT).softmax(-1), v),
    "folded": folded,
    "from the right": lambda _m, q, k, v: (v.mT @ product(q, k).softmax(-1).transpose(-2, -1)).mT,
}


def changed_after(change: Callable[[Tensor], Any]) -> Rule:
    def rule(_module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        weights = product(query, key).softmax(-1)
        change(weights)
        return weights @ value

    return rule


def refolded(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = (product(query, key) + BIAS).view(2 * HEADS, TOKENS, TOKENS)
    return module.softmax(scores).view(2, HEADS, TOKENS, TOKENS) @ value


def mixed(module: nn.Module, weights: Tensor) -> Tensor:
    return module.mix(weights.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


ALTERED: dict[str, Rule] = {
    "talking heads before": lambda m, q, k, v: mixed(m, product(q, k)).softmax(-1) @ v,
    "talking heads after": lambda m, q, k, v: mixed(m, product(q, k).softmax(-1)) @ v,
    "renormalised": lambda _m, q, k, v: (lambda w: w / w.sum(-2, keepdim=True))(product(q, k).softmax(-1)) @ v,
    "thresholded": lambda _m, q, k, v: F.threshold(product(q, k).softmax(-1), 0.2, 0) @ v,
    "masked after": lambda _m, q, k, v: product(q, k).softmax(-1).masked_fill(MASK, 0) @ v,
    "scaled in place after": changed_after(lambda weights: weights.mul_(torch.rand(5, 5) + 1)),
    "divided in place after": changed_after(lambda weights: weights.div_(weights.sum(-2, keepdim=True))),
    "added to in place after": changed_after(lambda weights: weights.add_(0.1)),
    "partly set after": changed_after(lambda weights: weights.__setitem__((..., 0), 0)),
    "a view changed after": changed_after(lambda weights: weights[..., 0].zero_()),
    "scaled behind the bias": lambda _m, q, k, v: ((product(q, k) + BIAS) * 0.3).softmax(-1) @ v,
    "clamped": lambda _m, q, k, v: product(q, k).clamp(-1, 1).softmax(-1) @ v,
    "capped": lambda _m, q, k, v: (3 * torch.tanh(product(q, k) / 3)).softmax(-1) @ v,
    "masked by a choice": lambda _m, q, k, v: torch.where(MASK, product(q, k), -math.inf).softmax(-1) @ v,
    "normalised over both": lambda _m, q, k, v: (product(q, k).softmax(-1) * product(q, k).softmax(-2)) @ v,
    "turned before the softmax": lambda _m, q, k, v: product(q, k).transpose(-2, -1).softmax(-1) @ v,
    "gated": lambda m, q, k, v: (0.7 * product(q, k).softmax(-1) + 0.3 * BIAS.softmax(-1)) @ v,
    "folded only for the softmax": refolded,
}


def of_a_memory(module: nn.Module, query: Tensor, _key: Tensor, _value: Tensor) -> Tensor:
    """Keys and values that are the same for all pictures."""
    weights = (query.transpose(1, 2).flatten(2) @ module.memory.t()).softmax(-1)
    return (weights @ module.memory.detach()).unflatten(2, (HEADS, WIDTH)).transpose(1, 2)


def routed(module: nn.Module, query: Tensor, _key: Tensor, _value: Tensor) -> Tensor:
    """A mixture of experts, of which a softmax chooses."""
    x = query.transpose(1, 2).flatten(2)
    chosen, experts = module.memory[:3].mm(x.flatten(0, 1).t()).t().softmax(-1), torch.stack([x, 2 * x, 3 * x], dim=-2)
    mixed = (chosen.reshape(2, TOKENS, 1, 3) @ experts).squeeze(-2)
    return mixed.unflatten(2, (HEADS, WIDTH)).transpose(1, 2)


LEFT_ALONE: dict[str, Rule] = {
    "normalised over the queries": lambda _m, q, k, v: product(q, k).softmax(-2) @ v,
    "normalised over everything": lambda _m, q, k, v: product(q, k).flatten(2).softmax(-1).view(2, 3, 5, 5) @ v,
    "without a softmax": lambda _m, q, k, v: (product(q, k) / TOKENS) @ v,
    "linear": lambda _m, q, k, v: q.softmax(-1) @ (k.softmax(-2).mT @ v),
    "linear, keys first": lambda _m, q, k, v: product(q.softmax(-1), k.softmax(-1)) @ v,
    "of tokens that say it themselves": lambda m, q, k, v: (
        m.out(q.transpose(1, 2).flatten(2))[:, None, :, :TOKENS].softmax(-1) @ v
    ),
    "of parameters": lambda m, q, k, v: product(m.query, k).softmax(-1).expand(2, -1, 5, -1) @ v,
    "of a memory": of_a_memory,
    "a mixture of experts": routed,
}


def tokens() -> Tensor:
    return torch.randn(2, TOKENS, HEADS * WIDTH, generator=torch.Generator().manual_seed(2))


def outputs(model: nn.Module, **options: Any) -> tuple[Tensor, AttentionTap]:
    torch.manual_seed(3)
    return run(model, tokens(), **options)


@pytest.mark.parametrize("way", RECOGNISED)
def test_ways_of_writing_it(way: str) -> None:
    model = Written(RECOGNISED[way]).eval()
    plain = model(tokens()).detach()
    for options in ({}, {"rule": ordinary}, {"weights": True}):
        output, tap = outputs(model, **options)
        (call,) = tap.calls
        assert call.name == ""
        torch.testing.assert_close(output, plain)
        torch.testing.assert_close(ordinary(call), call.output)
        torch.testing.assert_close(call.weights.sum(-1), torch.ones(call.query.shape[:-1]))
        assert torch.equal(call.input, tokens())


def parts(model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as the rule receives them."""
    query, key, value = model.qkv(tokens()).reshape(2, TOKENS, 3, HEADS, WIDTH).permute(2, 0, 3, 1, 4)
    return query * 2, key * 2, value


def applied(model: nn.Module) -> Tensor:
    """The weights as they are applied: what the rule makes of the unit matrix as its values."""
    query, key, _ = parts(model)
    torch.manual_seed(3)
    return model.rule(model, query, key, torch.eye(TOKENS).expand(2, HEADS, -1, -1)).detach()


@pytest.mark.parametrize("way", ALTERED)
def test_more_is_done_with_the_scores(way: str) -> None:
    model = Written(ALTERED[way]).eval()
    torch.manual_seed(3)
    plain, weights = model(tokens()).detach(), applied(model)
    some = torch.tensor([[0, 4], [3, 3]])
    for options in ({}, {"rule": ordinary}, {"weights": True}, {"follow": True}):
        output, tap = outputs(model, **options)
        (call,) = tap.calls
        assert (call.name, call.altered, call.bias) == ("", True, None)
        torch.testing.assert_close(output, plain)
        torch.testing.assert_close(call.weights, weights)
        torch.testing.assert_close(ordinary(call), call.output)
        torch.testing.assert_close(call.rows(some), torch.stack([weights[i][:, some[i]] for i in range(2)]))
        assert torch.equal(call.input, tokens())


@pytest.mark.parametrize("way", ALTERED)
def test_gradients_reach_the_weights_as_applied(way: str) -> None:
    model = Written(ALTERED[way]).eval()
    weights, value = applied(model).requires_grad_(), parts(model)[2].detach()
    score = model.out((weights @ value).transpose(1, 2).flatten(2)).square().sum()
    (expected,) = torch.autograd.grad(score, weights)
    torch.manual_seed(3)
    with session(model) as hooks:
        tap = intercept(hooks, weights=True)
        score = (model(tokens()) - tokens()).square().sum()
        (found,) = torch.autograd.grad(score, tap.calls[0].weights)
    assert expected.abs().max() > 1e-3
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("way", [*RECOGNISED, *ALTERED])
def test_replacing_it(way: str) -> None:
    model = Written({**RECOGNISED, **ALTERED}[way]).eval()
    output, _ = outputs(model, rule=lambda call: call.value.mean(dim=-2, keepdim=True).expand_as(call.value))
    value = model.qkv(tokens()).reshape(2, TOKENS, 3, HEADS, WIDTH)[:, :, 2].mean(dim=1, keepdim=True)
    expected = tokens() + model.out(value.flatten(2)).expand(-1, TOKENS, -1)
    torch.testing.assert_close(output, expected.detach())


@pytest.mark.parametrize("way", LEFT_ALONE)
def test_what_is_no_attention(way: str) -> None:
    model = Written(LEFT_ALONE[way]).eval()
    torch.manual_seed(3)
    plain = model(tokens()).detach()
    for options in ({}, {"rule": ordinary}, {"weights": True}, {"follow": True}):
        output, tap = outputs(model, **options)
        assert tap.calls == []
        assert torch.equal(output, plain)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_wherever_the_caller_is(mode: Any) -> None:
    model = Written(masked_in_place).eval().requires_grad_(False)
    with mode():
        plain = model(tokens())
        with session(model) as hooks, mode():
            tap = intercept(hooks, rule=ordinary)
            output = model(tokens())
    torch.testing.assert_close(output, plain)
    assert len(tap.calls) == 1


class Residual(nn.Module):
    """A block around an attention that is written out."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.attn = Written(rule)

    def forward(self, x: Tensor) -> Tensor:
        return x + 2 * self.attn(x)


def test_following_it() -> None:
    model = Residual(RECOGNISED["biased"]).eval()
    _, tap = outputs(model, follow=True)
    (call,) = tap.calls
    assert torch.equal(call.residual, tokens())
    torch.testing.assert_close(call.increment, 2 * model.attn(tokens()))
    torch.testing.assert_close(call.project(call.output), call.increment)


@pytest.mark.parametrize("way", ["from the right", "talking heads after"])
def test_following_it_from_the_right_and_altered(way: str) -> None:
    model = Residual({**RECOGNISED, **ALTERED}[way]).eval()
    _, tap = outputs(model, follow=True)
    (call,) = tap.calls
    torch.testing.assert_close(call.increment, 2 * model.attn(tokens()).detach())
    heads = torch.randn(call.output.shape, generator=torch.Generator().manual_seed(4))
    projected = 2 * (tokens() + model.attn.out(heads.transpose(1, 2).flatten(2))).detach()
    torch.testing.assert_close(call.project(heads), projected)
