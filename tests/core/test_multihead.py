"""``torch.nn.MultiheadAttention``, ``TransformerEncoder`` and the function below them, in every variant.

Batch first or not, without a batch, packed and separate projections, added keys, every kind of mask, with and
without weights, the fast paths.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from oracles.helpers import difference
from torch import Tensor, nn
from torch.nn import functional as F

from explainer.attention import ordinary
from explainer.hooks import HookManager
from explainer.intercept import intercept
from explainer.session import session


def attention(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, 2, **options).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def tokens(module: nn.MultiheadAttention, queries: int = 4, keys: int = 5, batch: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    widths = (module.embed_dim, module.kdim, module.vdim)
    made = [
        torch.randn(batch, n, width, generator=generator)
        for n, width in zip((queries, keys, keys), widths, strict=True)
    ]
    return made if module.batch_first else [each.transpose(0, 1) for each in made]


VARIANTS: dict[str, dict[str, Any]] = {
    "packed": {},
    "separate": {"kdim": 6, "vdim": 7},
    "no bias": {"bias": False},
    "bias_kv": {"add_bias_kv": True},
    "zero_attn": {"add_zero_attn": True},
    "bias_kv and zero_attn": {"add_bias_kv": True, "add_zero_attn": True},
}
PADDING = torch.tensor([[False] * 5, [False, False, True, False, True], [False] * 4 + [True]])
BOOLEAN = torch.tensor([[j > i + 1 for j in range(5)] for i in range(4)])
FLOATING = torch.arange(20.0).reshape(4, 5).sin()
MASKS: dict[str, dict[str, Any]] = {
    "unmasked": {},
    "padding": {"key_padding_mask": PADDING},
    "boolean": {"attn_mask": BOOLEAN},
    "floating": {"attn_mask": FLOATING},
    "floating padding": {"key_padding_mask": PADDING.float() * -2, "attn_mask": FLOATING},
    "per head": {"attn_mask": FLOATING + torch.arange(6.0).reshape(6, 1, 1)},
    "both": {"attn_mask": BOOLEAN, "key_padding_mask": PADDING & ~torch.eye(5, dtype=torch.bool)[:3]},
}


WATCHING: dict[str, dict[str, Any]] = {"read": {}, "replaced": {"rule": ordinary}, "formed": {"weights": True}}


@pytest.mark.parametrize("grad", [True, False], ids=["gradients on", "no gradients"])
@pytest.mark.parametrize("need", ["averaged", "per head", "no weights"])
@pytest.mark.parametrize("batch_first", [True, False], ids=["batch first", "sequence first"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_multihead_attention(variant: str, batch_first: bool, need: str, grad: bool) -> None:
    module = attention(**VARIANTS[variant], batch_first=batch_first)
    given = tokens(module)
    wanted = {"need_weights": need != "no weights", "average_attn_weights": need == "averaged"}
    for masks, watching in itertools.product(MASKS.values(), WATCHING.values()):
        plain, shown = module(*given, **masks, **wanted)
        _, full = module(*given, **masks, average_attn_weights=False)
        with HookManager(module) as hooks, torch.set_grad_enabled(grad):
            tap = intercept(hooks, **watching)
            output, weights = module(*given, **masks, **wanted)
        assert difference(output.detach(), plain.detach()) <= 1e-5
        (call,) = tap.calls
        torch.testing.assert_close(call.weights, full, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights, shown, rtol=1e-4, atol=1e-5)
        assert call.input.shape[0] == 3


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("need", [True, False])
def test_multihead_attention_without_a_batch(batch_first: bool, need: bool, average: bool) -> None:
    module = attention(batch_first=batch_first)
    generator = torch.Generator().manual_seed(1)
    query, key = torch.randn(4, 8, generator=generator), torch.randn(5, 8, generator=generator)
    options = {"need_weights": need, "average_attn_weights": average, "attn_mask": FLOATING}
    plain, shown = module(query, key, key, **options)
    with HookManager(module) as hooks:
        tap = intercept(hooks, rule=ordinary)
        output, weights = module(query, key, key, **options)
    torch.testing.assert_close(output, plain)
    assert (weights is None) is not need
    if need:
        torch.testing.assert_close(weights, shown)
    assert tap.calls[0].query.shape == (1, 2, 4, 4)
    assert torch.equal(tap.calls[0].input, query)


@pytest.mark.parametrize("need", [True, False])
def test_multihead_attention_that_is_causal(need: bool) -> None:
    module = attention(batch_first=True)
    (query, *_), mask = tokens(module), nn.Transformer.generate_square_subsequent_mask(4)
    options = {"attn_mask": mask, "is_causal": True, "need_weights": need}
    plain, _ = module(query, query, query, **options)
    with HookManager(module) as hooks:
        tap = intercept(hooks, rule=ordinary)
        output, _ = module(query, query, query, **options)
    torch.testing.assert_close(output, plain)
    assert torch.equal(tap.calls[0].weights > 0, torch.ones(3, 2, 4, 4, dtype=torch.bool).tril())


def test_gradients_reach_weights_that_the_model_shows() -> None:
    module = attention(batch_first=True)
    given = tokens(module)
    with session(module) as hooks:
        tap = intercept(hooks, weights=True)
        output, shown = module(*given, need_weights=True, average_attn_weights=False)
    (gradient,) = torch.autograd.grad(shown.sum() + 0 * output.sum(), tap.calls[0].weights)
    assert torch.equal(gradient, torch.ones_like(gradient))


class Grouped(nn.Module):
    """Calls torch's function with each of its options."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, key.cos(), **self.options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.1},
        {"enable_gqa": True},
        {"attn_mask": BOOLEAN.logical_not()},
        {"attn_mask": torch.zeros(4, 5, dtype=torch.bool)},
        {"attn_mask": FLOATING, "scale": 2.0},
    ],
    ids=lambda options: " ".join(options) or "plain",
)
@pytest.mark.parametrize("weights", [True, False])
def test_every_option_of_the_function(options: dict[str, Any], weights: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    heads = 1 if "enable_gqa" in options else 4
    query = torch.randn(2, 4, 4, 8, generator=generator)
    key = torch.randn(2, heads, 5, 8, generator=generator)
    module = Grouped(**options)
    expected = module(query, key)
    with HookManager(module) as hooks:
        tap = intercept(hooks, rule=None if weights else ordinary, weights=weights)
        output = module(query, key)
    torch.testing.assert_close(output, expected)
    assert tap.calls[0].weights.shape == (2, 4, 4, 5)
    assert tap.calls[0].key.shape == (2, 4, 5, 8)


def layer() -> nn.TransformerEncoderLayer:
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_the_fast_paths_of_transformer_encoders(mode: Any, padding: bool) -> None:
    for module in (layer(), nn.TransformerEncoder(layer(), 2).eval()):
        given = torch.randn(3, 5, 8, generator=torch.Generator().manual_seed(1))
        mask = {"src_key_padding_mask": PADDING} if padding else {}
        with mode():
            plain = module(given, **mask)
            with session(module) as hooks, mode():
                tap = intercept(hooks, rule=ordinary)
                output = module(given, **mask)
        kept = ~PADDING if padding else torch.ones_like(PADDING)
        torch.testing.assert_close(output[kept], plain[kept], rtol=1e-4, atol=1e-5)
        assert len(tap.calls) == (1 if isinstance(module, nn.TransformerEncoderLayer) else 2)
        torch.testing.assert_close(tap.calls[0].weights.sum(-1), torch.ones(3, 2, 5))


class Quitter(nn.Module):
    """Attends, and raises on the way; the second attention is tried again after the first failed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = attention(batch_first=True), attention(batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        try:
            return self.first(x, x, x[:, :2], need_weights=False)[0]
        except AssertionError:
            return self.second(x, x, x, need_weights=False)[0]


def test_an_attention_that_fails_and_is_caught() -> None:
    model = Quitter()
    with session(model) as hooks:
        tap = intercept(hooks)
        model(torch.randn(2, 4, 8))
    assert [call.name for call in tap.calls] == ["second"]
