"""Reading and replacing attention by intercepting what every attention class computes.

No module class is named here: timm's attentions, BEiT's with a position bias, EVA's with rotary positions and
``torch.nn.MultiheadAttention`` (packed or separate projections, batch first or not, fast path or not) end in
``scaled_dot_product_attention`` or ``multi_head_attention_forward``, or are products and a softmax written out.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from explainer.attention import AttentionCall, Rule, ordinary
from explainer.hooks import HookManager, named_modules
from explainer.tape import Tape
from explainer.written_out import Scores, WrittenOut


class StopForward(BaseException):
    """Leaves a forward pass early; a BaseException so that no model can mistake it for its own error."""


def _has_none(*_tensors: Any) -> bool:
    return False


def _open_copy(function: Callable[..., Any]) -> Callable[..., Any]:
    """Copy a torch function without its first act, which is to hand itself to the active mode again."""
    source: Any = function
    names: dict[str, Any] = {**source.__globals__, "has_torch_function": _has_none}
    copy = types.FunctionType(source.__code__, names, source.__name__, source.__defaults__, source.__closure__)
    copy.__kwdefaults__ = source.__kwdefaults__
    return copy


_SOFTMAX = frozenset({torch.softmax, F.softmax, Tensor.softmax})
_multi_head = _open_copy(F.multi_head_attention_forward)
_multi_head_signature = inspect.signature(F.multi_head_attention_forward)


class AttentionTap(TorchFunctionMode):
    """Records every attention of a forward pass, and replaces its rule where one is given.

    Make one with :func:`intercept`.

    Attributes:
        calls: The attentions in the order in which they ran.
        written_out: Paths of the modules that took a softmax of their own, in the order in which they ran:
            attentions that use neither function, which can be neither read nor replaced, and gates.
    """

    def __init__(
        self,
        *,
        rule: Rule | None,
        only: Collection[str] | None,
        weights: bool,
        follow: bool,
        stop_after: str | None,
    ) -> None:
        super().__init__()
        self.calls: list[AttentionCall] = []
        self.written_out: list[str] = []
        self._rule = rule
        self._only = only
        self._weights = weights
        self._follow = follow
        self._stop_after = stop_after
        self._stack: list[tuple[str, nn.Module, Tensor | None]] = []
        self._open: list[AttentionCall] = []
        self._written = WrittenOut()

    def run(self, forward: Callable[[], Tensor]) -> Tensor | None:
        """Run a forward pass; None where it was left early, behind the attention that was asked for."""
        try:
            return forward()
        except StopForward:
            return None

    def by_name(self) -> dict[str, AttentionCall]:
        """The calls by module path; of a module that ran twice, the last call."""
        return {call.name: call for call in self.calls}

    def entered(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note that a module starts to run."""
        given = (*args, *kwargs.values())
        self._stack.append((name, module, next((v for v in given if isinstance(v, Tensor)), None)))

    def left(self, name: str) -> None:
        """Note that a module has returned."""
        # A module that raised and was caught by the model never returned: drop what it left behind.
        while self._stack and self._stack.pop()[0] != name:
            pass

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            return self._multi_head(args, kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attend(args, kwargs)
        if func in _SOFTMAX:
            self._note_softmax()
        if (found := self._written.closes(func, args)) is not None:
            return self._attend_written_out(func, args, kwargs, *found)
        result = self._followed(func, args, kwargs) if self._open else func(*args, **kwargs)
        self._written.saw(func, args, kwargs, result)
        return result

    def _multi_head(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
        bound = _multi_head_signature.bind(*args, **kwargs)
        bound.apply_defaults()
        wanted, average = bound.arguments["need_weights"], bound.arguments["average_attn_weights"]
        # Without weights the function takes the path that ends in scaled_dot_product_attention.
        bound.arguments["need_weights"] = False
        with self:
            output, _ = _multi_head(*bound.args, **bound.kwargs)
        if not wanted:
            return output, None
        weights = self._last.weights
        weights = weights.mean(dim=1) if average else weights
        return output, weights if output.dim() == 3 else weights.squeeze(0)

    def _note_softmax(self) -> None:
        running = [name for name, module, _ in self._stack if not isinstance(module, nn.Softmax)]
        if running:
            self.written_out.append(running[-1])

    def _attend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        call, dropout = self._call(*args, **kwargs)
        self._last = call
        return self._finish(call, dropout, lambda: F.scaled_dot_product_attention(*args, **kwargs))

    def _attend_written_out(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        scores: Scores,
        weights: Tensor,
        value: Tensor,
    ) -> Tensor:
        call = self._named(scores.query, scores.key, value, scores.bias, scores.scale)
        if self._weights and weights.requires_grad:
            call.recorded_weights = weights
        ordinary_output = (lambda: func(*args, **kwargs).transpose(-2, -1)) if scores.flipped else None
        output = self._finish(call, False, ordinary_output or (lambda: func(*args, **kwargs)))
        return output.transpose(-2, -1) if scores.flipped else output

    def _finish(self, call: AttentionCall, dropout: bool, compute: Callable[[], Tensor]) -> Tensor:
        chosen = self._only is None or call.name in self._only
        output = self._replaced(call, dropout) if chosen else None
        if output is None:
            output = compute()
        call.output = output
        if chosen:
            self.calls.append(call)
        if self._follow:
            # The others are followed too, to see where one addition takes several attentions in.
            call.tape = Tape.following(output, len(self._stack))
            self._open.append(call)
        elif call.name == self._stop_after:
            raise StopForward
        return output

    def _replaced(self, call: AttentionCall, dropout: bool) -> Tensor | None:
        output = self._rule(call) if self._rule else None
        if output is None and self._weights and not dropout:
            weights = call.weights
            call.recorded_weights = weights if weights.requires_grad else weights.detach().requires_grad_()
            output = ordinary(call)
        return output

    def _call(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> tuple[AttentionCall, bool]:
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = (t.repeat_interleave(groups, dim=-3) for t in (key, value))
        bias = _additive(attn_mask, is_causal, query, key)
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        return self._named(query, key, value, bias, factor), dropout_p > 0

    def _named(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float | Tensor
    ) -> AttentionCall:
        name, module, received = self._stack[-1] if self._stack else ("", None, None)
        sequence_first = False
        if isinstance(module, nn.MultiheadAttention) and received is not None and received.dim() == 3:
            sequence_first = not module.batch_first
            received = received.transpose(0, 1) if sequence_first else received
        return AttentionCall(
            name=name,
            query=query,
            key=key,
            value=value,
            bias=bias,
            scale=scale,
            input=received,
            sequence_first=sequence_first,
        )

    def _followed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        tapes = [(call, call.tape) for call in self._open if call.tape is not None]
        ended = [call for call, tape in tapes if tape.before(func, args, kwargs, len(self._stack))]
        for call in ended:
            self._open.remove(call)
            if len(ended) > 1:
                call.tape = None  # added together: the share of each is not known
        if any(call.name == self._stop_after for call in ended):
            raise StopForward
        result = func(*args, **kwargs)
        for call, tape in tapes:
            if call not in ended:
                tape.after(func, args, kwargs, result)
        return result


def _additive(mask: Tensor | None, causal: bool, query: Tensor, key: Tensor) -> Tensor | None:
    """Write any mask as what is added before the softmax."""
    if causal:
        shape = (query.shape[-2], key.shape[-2])
        mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=query.dtype, device=query.device).masked_fill(~mask, -math.inf)


def intercept(
    hooks: HookManager,
    *,
    rule: Rule | None = None,
    only: Collection[str] | None = None,
    weights: bool = False,
    follow: bool = False,
    stop_after: str | None = None,
    owners: Collection[str] | None = None,
) -> AttentionTap:
    """Watch, and where asked for replace, the attentions of a model until the hooks are undone.

    Args:
        hooks: Manager of the model; undoing it ends the interception.
        rule: Computes the output of an attention in place of the model; None for a call leaves it.
        only: Paths of the attention modules to record and replace; all by default.
        weights: Compute the model's output from written-out weights, so that gradients reach them.
        follow: Follow each output to the residual addition that takes it in, for
            :meth:`AttentionCall.project`, ``residual`` and ``increment``.
        stop_after: Leave the forward pass behind this attention module (with `follow`, at its residual
            addition); run it with :meth:`AttentionTap.run`.
        owners: Paths of all modules that compute attention, where they are known; watching only these is
            cheaper than watching every module.

    Returns:
        The tap, whose ``calls`` fill during the forward pass.
    """
    tap = AttentionTap(rule=rule, only=only, weights=weights, follow=follow, stop_after=stop_after)
    for name, module in named_modules(hooks.model).items():
        if owners is not None and name not in owners:
            continue
        hooks.on_call(
            module,
            lambda m, args, kwargs, name=name: tap.entered(name, m, args, kwargs),
            lambda _m, _args, _output, name=name: tap.left(name),
        )
    return hooks.enter(tap)
