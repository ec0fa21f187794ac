"""Reading and replacing attention, against the models themselves and against attention written out by the book.

Families: timm ViT (fused, written out, q/k norm, distilled, registers), EVA (separate and fused projections,
rotary positions, post-norm), DINOv3, BEiT, BEiT v2, relative positions (pre- and post-norm), CaiT's talking heads
and class attention, SigLIP's pooling, Swin's windows; open_clip blocks (packed, sequence first, its own attention
class), its ResNet's pooling and CoCa's pooler (separate projections).
"""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any

import pytest
import torch
from oracles.helpers import difference
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import _get_current_function_mode_stack

from core.attentions import FAMILIES, TALKING, by_the_book, eager, first, model_of, pictures_of
from core.nets import snapshot
from explainer.attention import AttentionCall, ordinary, rows_of, softmax_weights
from explainer.hooks import LayerError
from explainer.intercept import AttentionTap, intercept
from explainer.session import session

# Those of timm whose softmax can be seen from outside; a pooling by queries shows it nowhere.
TIMM = [name for name in FAMILIES if not name.startswith(("clip", "coca", "siglip"))]


def watched(model: nn.Module, images: Tensor, **options: Any) -> tuple[Tensor, AttentionTap]:
    with session(model) as hooks:
        tap = intercept(hooks, **options)
        output = first(model(images))
    return output, tap


@pytest.mark.parametrize("family", FAMILIES)
def test_watching_changes_nothing(family: str) -> None:
    model, images = model_of(family), pictures_of(family)
    before = snapshot(model)
    plain = first(model(images)).detach()
    output, tap = watched(model, images)
    assert [call.name for call in tap.calls] == FAMILIES[family].owners
    assert difference(output, plain) <= 1e-6
    assert snapshot(model) == before
    assert _get_current_function_mode_stack() == []


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("grad", [True, False], ids=["gradients on", "no gradients"])
def test_the_identity_replacement(family: str, grad: bool) -> None:
    model, images = model_of(family), pictures_of(family)
    plain = first(model(images)).detach()
    with torch.set_grad_enabled(grad), session(model) as hooks, torch.set_grad_enabled(grad):
        tap = intercept(hooks, rule=ordinary)
        output = first(model(images))
    assert difference(output, plain) <= 1e-5
    altered = TALKING if family == "cait" else []
    assert [call.name for call in tap.calls if call.altered] == altered
    for call in tap.calls:
        assert call.weights.shape == (*call.query.shape[:3], call.key.shape[2])
        if not call.altered:
            assert torch.allclose(call.weights.sum(dim=-1), torch.ones(()), atol=1e-5)
            torch.testing.assert_close(call.output, by_the_book(*parts(call))[0], rtol=1e-4, atol=1e-5)


def parts(call: AttentionCall) -> tuple[Any, ...]:
    return call.query, call.key, call.value, call.bias, 0.0, False, call.scale


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_reach_the_weights(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = model_of(family), pictures_of(family)
    with eager(monkeypatch) as formed:
        expected = torch.autograd.grad(score(fused(model)(images)), formed)
    output, tap = watched(model, images, weights=True)
    # Those of altered attentions are compared where the model writes them out.
    weights = [call.weights for call in tap.calls if not call.altered]
    found = torch.autograd.grad(score(output), weights)
    assert len(found) == len(expected) == len(FAMILIES[family].owners) - (2 if family == "cait" else 0)
    for ours, theirs, attended, written in zip(found, expected, weights, formed, strict=True):
        assert difference(attended.detach(), written.detach()) <= 1e-5
        assert theirs.abs().max() > 0
        assert difference(ours, theirs) <= 1e-4


def fused(model: nn.Module) -> nn.Module:
    """A copy that takes the fused path, so that replacing torch's function reaches every attention."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = True
    return model


def score(output: Any) -> Tensor:
    return first(output)[:, :3].square().sum()


def written_out(model: nn.Module) -> nn.Module:
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return model


@pytest.mark.parametrize("family", TIMM)
def test_a_model_that_writes_its_softmax_out(family: str) -> None:
    model, images = written_out(model_of(family)), pictures_of(family)
    formed: list[Tensor] = []
    owners = dict.fromkeys(FAMILIES[family].owners)
    handles = [model.get_submodule(name).attn_drop.register_forward_hook(keep(formed)) for name in owners]
    plain = model(images)
    expected = torch.autograd.grad(score(plain), formed)
    for handle in handles:
        handle.remove()
    before = snapshot(model)
    output, tap = watched(model, images, weights=True)
    assert [call.name for call in tap.calls] == FAMILIES[family].owners
    found = torch.autograd.grad(score(output), [call.weights for call in tap.calls])
    assert difference(output.detach(), plain.detach()) <= 1e-5
    for ours, theirs, call, written in zip(found, expected, tap.calls, formed, strict=True):
        assert difference(call.weights.detach(), written.detach()) <= 1e-5
        assert difference(ours, theirs) <= 1e-4
    assert snapshot(model) == before


def keep(formed: list[Tensor]) -> Any:
    return lambda _module, _args, output: formed.append(output)


def uniform(call: AttentionCall) -> Tensor:
    return call.value.mean(dim=2, keepdim=True).expand_as(call.query)


@pytest.mark.parametrize("family", ["vit", "swin", "clip", "clip custom"])
def test_another_rule_in_one_block(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = model_of(family), pictures_of(family)
    chosen, calls = FAMILIES[family].owners[-1], len(FAMILIES[family].owners)
    with session(model) as hooks:
        tap = intercept(hooks, rule=uniform, only={chosen})
        output = first(model(images))
    assert [call.name for call in tap.calls] == [chosen]
    original, count = F.scaled_dot_product_attention, itertools.count(1)

    def attend(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if next(count) == calls:
            return value.mean(dim=2, keepdim=True).expand_as(query)
        return original(query, key, value, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(F, "scaled_dot_product_attention", attend)
        expected = first(fused(model)(images))
    assert difference(output.detach(), expected.detach()) <= 1e-6
    assert difference(output.detach(), first(model(images)).detach()) > 1e-3


def test_a_rule_may_leave_a_call_alone() -> None:
    model, images = model_of("vit"), pictures_of("vit")
    plain = model(images).detach()
    output, tap = watched(model, images, rule=lambda _call: None)
    assert torch.equal(output.detach(), plain)
    assert len(tap.calls) == 2


def test_what_the_module_received() -> None:
    for family in ("vit", "clip", "clip sequence first"):
        model, images = model_of(family), pictures_of(family)
        owner = FAMILIES[family].owners[0]
        with session(model) as hooks:
            tap = intercept(hooks)
            received = hooks.tap(owner, of="input")
            model(images)
        expected = received.value.transpose(0, 1) if "sequence" in family else received.value
        assert torch.equal(tap.calls[0].input, expected)
        assert tap.calls[0].input.shape[0] == 2
        assert [call.name for call in tap.calls] == FAMILIES[family].owners


def test_rows_are_rows_of_the_weights() -> None:
    for family in ("vit", "beit"):
        _, tap = watched(model_of(family), pictures_of(family))
        call, tokens = tap.calls[1], torch.tensor([[0, 3, 16], [5, 5, 1]])
        rows = rows_of(call.query, call.key, call.scale, call.bias, tokens)
        expected = torch.stack([call.weights[i][:, tokens[i]] for i in range(2)])
        torch.testing.assert_close(rows, expected)


def test_weights_of_a_row_that_is_masked_everywhere() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 3, 4, generator=generator) for _ in range(3))
    mask = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    bias = torch.zeros(3, 3).masked_fill(~mask, -math.inf)
    weights = softmax_weights(query.requires_grad_(), key, 0.5, bias)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(weights @ value, expected)
    (gradient,) = torch.autograd.grad((weights @ value).sum(), query)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("family", ["vit", "beit", "clip"])
def test_half_precision(family: str) -> None:
    model, images = copy.deepcopy(model_of(family)).to(torch.bfloat16), pictures_of(family)
    images = images.to(torch.bfloat16)
    plain = model(images).detach()
    for options in ({}, {"rule": ordinary}, {"weights": True}):
        output, tap = watched(model, images, **options)
        assert difference(output.detach(), plain) <= 0.05
        assert tap.calls[0].weights.dtype == torch.bfloat16


@pytest.mark.parametrize("family", ["vit qk-norm", "beit", "clip"])
def test_autocast(family: str) -> None:
    model, images = model_of(family), pictures_of(family)
    with torch.autocast("cpu", torch.bfloat16):
        plain = model(images).detach()
        for options in ({}, {"rule": ordinary}, {"weights": True}):
            output, _ = watched(model, images, **options)
            assert difference(output.detach().float(), plain.float()) <= 0.05


def test_a_compiled_model() -> None:
    model, images = copy.deepcopy(model_of("vit")), pictures_of("vit")
    plain = model(images).detach()
    compiled = torch.compile(model, backend="eager")
    compiled(images)
    output, tap = watched(compiled, images, rule=ordinary)
    assert [call.name for call in tap.calls] == ["_orig_mod.blocks.0.attn", "_orig_mod.blocks.1.attn"]
    assert difference(output.detach(), plain) <= 1e-5


def test_softmaxes_that_use_neither_function() -> None:
    _, tap = watched(model_of("cait"), pictures_of("cait"))
    assert tap.written_out == ["blocks.0.attn", "blocks.1.attn"]
    unmarked = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Softmax(dim=-1))
    _, tap = watched(unmarked, torch.ones(1, 3, 2, 2))
    assert tap.written_out == [""]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_nothing_stays_when_a_rule_raises(error: type[BaseException]) -> None:
    model, images = model_of("swin"), pictures_of("swin")
    before = snapshot(model)

    def rule(_call: AttentionCall) -> Tensor:
        raise error("in a rule")

    with pytest.raises(error, match="in a rule"):
        watched(model, images, rule=rule)
    assert snapshot(model) == before
    assert _get_current_function_mode_stack() == []


def test_residual_that_was_not_followed() -> None:
    _, tap = watched(model_of("vit"), pictures_of("vit"))
    for read in (lambda call: call.residual, lambda call: call.increment, lambda call: call.project(call.output)):
        with pytest.raises(LayerError) as raised:
            read(tap.calls[0])
        assert str(raised.value) == (
            "the output of attention 'blocks.0.attn' could not be followed to a residual stream, so its "
            "contribution to the patch tokens is not known; use a method that only reads attention, "
            "such as query_key"
        )
