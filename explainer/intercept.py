"""Reading and replacing attention by intercepting what every attention class computes.

No module class is named here: timm's attentions, BEiT's with a position bias, EVA's with rotary positions and
``torch.nn.MultiheadAttention`` (packed or separate projections, batch first or not, fast path or not) end in
``scaled_dot_product_attention`` or ``multi_head_attention_forward``, or are products and a softmax written out.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from explainer.attention import AS_IT_IS, AttentionCall, Rule, additive, ordinary
from explainer.heads import folding, heads_of, is_handed_heads, token_columns
from explainer.hooks import HookManager, named_modules
from explainer.tape import IN_PLACE, Tape
from explainer.written_out import Found, WrittenOut


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


Resume = Callable[[AttentionCall], Tensor]
"""Takes the attention behind which a forward pass goes on, to the residual stream that it goes on with."""

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
        resume: Resume | None,
        ends: Mapping[str, Collection[int]] | None,
    ) -> None:
        super().__init__()
        self.calls: list[AttentionCall] = []
        self.written_out: list[str] = []
        self._rule = rule
        self._only = only
        self._weights = weights
        self._follow = follow
        self._stop_after = stop_after
        self._resume = resume
        self._stack: list[tuple[str, nn.Module, list[Tensor]]] = []
        self._attending = 0
        self._tape = Tape(ends)
        self._written = WrittenOut()

    def run(self, forward: Callable[[], Tensor]) -> Tensor | None:
        """Run a forward pass; None where it was left early, behind the attention that was asked for."""
        try:
            return forward()
        except StopForward:
            return None

    def entered(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note that a module starts to run."""
        self._stack.append((name, module, [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]))

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
            return self._attend_written_out(func, args, kwargs, found)
        result = self._followed(func, args, kwargs) if self._tape else func(*args, **kwargs)
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
        sources = [value for value in (*args[:3], *kwargs.values()) if isinstance(value, Tensor)]
        return self._finish(call, dropout, sources, lambda: F.scaled_dot_product_attention(*args, **kwargs))

    def _attend_written_out(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], found: Found
    ) -> Tensor:
        scores = found.scores
        call = self._named(scores.query, scores.key, found.value, scores.bias, scores.scale, found.weights)
        call.form = found.form.then(call.form) if found.form is not AS_IT_IS else call.form
        call.altered = scores.altered
        return self._finish(call, False, args, lambda: func(*args, **kwargs))

    def _finish(
        self, call: AttentionCall, dropout: bool, sources: Sequence[Any], compute: Callable[[], Tensor]
    ) -> Tensor:
        chosen = self._only is None or call.name in self._only
        heads = self._replaced(call, dropout) if chosen else None
        # Contiguous, because a model may take a view of what it has computed.
        given = compute() if heads is None else call.form.from_heads(heads).contiguous()
        call.output = call.form.to_heads(given) if heads is None else heads
        if chosen:
            self.calls.append(call)
        if self._follow:
            # The others are followed too, to see where one addition takes several attentions in.
            call.way = self._tape.follow(given, call, call.name, self._attending, sources)
        elif call.name == self._stop_after:
            raise StopForward
        return given

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
        bias = additive(attn_mask, is_causal, query, key)
        factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
        return self._named(query, key, value, bias, factor), dropout_p > 0

    def _named(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        scale: float | Tensor,
        weights: Tensor | None = None,
    ) -> AttentionCall:
        name, module, received = self._owner()
        sequence_first = False
        if isinstance(module, nn.MultiheadAttention) and received is not None and received.dim() == 3:
            sequence_first = not module.batch_first
            received = received.transpose(0, 1) if sequence_first else received
        form = folding(query, received)
        query, key, value, weights, bias = heads_of(query, key, value, weights, bias, form)
        return AttentionCall(
            name=name,
            query=query,
            key=key,
            value=value,
            bias=bias,
            scale=scale,
            input=token_columns(received, query.shape[-2]),
            recorded_weights=weights,
            form=form,
            sequence_first=sequence_first,
        )

    def _owner(self) -> tuple[str, nn.Module | None, Tensor | None]:
        """Find the module that attends: the innermost one that was not handed the heads."""
        for place in range(len(self._stack), 0, -1):
            name, module, given = self._stack[place - 1]
            if not is_handed_heads(given):
                self._attending = place
                return name, module, given[0] if given else None
        self._attending = 0
        return "", None, None

    def _followed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closed = self._tape.before(func, args, kwargs, len(self._stack))
        if closed is not None and any(way.owner == self._stop_after for way in closed.joined):
            if self._resume is None:
                raise StopForward
            stream = self._resume(closed.subject)
            return args[0].copy_(stream) if func.__name__ in IN_PLACE else stream
        result = func(*args, **kwargs)
        if closed is None:
            self._tape.after(func, args, kwargs, result)
        return result


def intercept(
    hooks: HookManager,
    *,
    rule: Rule | None = None,
    only: Collection[str] | None = None,
    weights: bool = False,
    follow: bool = False,
    stop_after: str | None = None,
    resume: Resume | None = None,
    owners: Collection[str] | None = None,
    ends: Mapping[str, Collection[int]] | None = None,
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
        resume: With `follow`: do not leave there, but go on with the residual stream that this gives, in the
            place of what the addition would give.
        owners: Paths of all modules that compute attention, where they are known; watching only these is
            cheaper than watching every module.
        ends: With `follow`: where the residual additions are, if that is known; see :class:`Tape`.

    Returns:
        The tap, whose ``calls`` fill during the forward pass.
    """
    tap = AttentionTap(
        rule=rule, only=only, weights=weights, follow=follow, stop_after=stop_after, resume=resume, ends=ends
    )
    for name, module in named_modules(hooks.model).items():
        if owners is not None and name not in owners:
            continue
        hooks.on_call(
            module,
            lambda m, args, kwargs, name=name: tap.entered(name, m, args, kwargs),
            lambda _m, _args, _output, name=name: tap.left(name),
        )
    return hooks.enter(tap)
