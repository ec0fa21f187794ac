"""Where the parts of an attention come from, and what becomes of it, read from the graph of a run.

Shapes alone can deceive: a memory may hold as many keys as there are patches, a head may be as wide as there are
tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from explainer.attention import AttentionCall

_SUMS = ("Add", "CopySlices")
_LAID = (
    *("View", "UnsafeView", "ReshapeAlias", "Alias", "Transpose", "T", "Permute", "Clone", "ToCopy", "Expand"),
    *("AsStrided", "Copy", "Squeeze", "Unsqueeze", "Slice", "Select", "Cat", "Split", "SplitWithSizes", "Unbind"),
)
Node = Any
"""An operation in the graph of a run; what its inputs were made by are its ``next_functions``."""


@dataclass(frozen=True)
class Lineage:
    """The graph of a run in which the picture asked for a gradient, and nothing else.

    Attributes:
        output: What the run gave.
        untraced: The attentions that the model ran without a graph.
    """

    output: Tensor
    untraced: Set[AttentionCall]

    def is_over_patches(self, call: AttentionCall) -> bool:
        """Whether an attention of the run can be over the tokens of the picture, in their order.

        It is not where the queries, keys or values are the model's own, or are shifted around the picture, where
        channels attend to channels, or where heads stand in the place of pictures.

        Args:
            call: An attention with as many keys as queries.
        """
        misplaced = _is_shifted(call.query) or _is_of_channels(call) or _is_of_heads(call)
        return self._is_of_picture(call) and not misplaced

    def is_stream(self, call: AttentionCall) -> bool:
        """Whether what an attention was found to be added to is the residual stream.

        It is not where the sum is in turn added to what the attention was computed from: x + (attention + other).

        Args:
            call: An attention of the run whose way has ended.
        """
        assert call.way is not None  # noqa: S101  it has ended
        sources = [part.grad_fn for part in (call.query, call.key, call.value)]
        residual = self.residual_of(call)
        if any(node in residual for node in _ancestors(*sources)):
            return True
        before, behind = set(_ancestors(*sources)), self._made_of([call.way.increment.grad_fn], lambda _node: True)
        sums = (node for node in behind if _is(node, *_SUMS))
        return not any(each in before for node in sums for each, _ in node.next_functions)

    def residual_of(self, call: AttentionCall) -> Set[Node]:
        """Return the nodes that hold what an attention is added to, however it is laid out or copied.

        Args:
            call: An attention of the run whose way has ended.
        """
        assert call.way is not None  # noqa: S101  it has ended
        made: Node | None = call.way.residual.grad_fn
        found, waiting = set[Node](), [] if made is None else [made]
        while waiting:
            node = waiting.pop()
            found.add(node)
            if _is(node, *_LAID):
                waiting += [before for before, _ in node.next_functions if before is not None and before not in found]
        return found

    def carried(self, call: AttentionCall) -> Set[Node] | None:
        """Return the nodes that hold the residual stream behind an attention: it, laid out anew, and sums with it.

        Args:
            call: An attention of the run whose way has ended.

        Returns:
            The nodes; None where nothing can be told.
        """
        assert call.way is not None  # noqa: S101  it has ended
        increment = call.way.increment.grad_fn
        if increment is None or increment not in self._users:
            return None
        sums = [user for user in self._users[increment] if _is(user, *_SUMS)]
        return self._made_of(sums, lambda node: _is(node, *_SUMS, *_LAID)) | set(sums)

    def _is_of_picture(self, call: AttentionCall) -> bool:
        traced = [part.requires_grad for part in (call.query, call.key, call.value)]
        if any(traced):
            return all(traced)
        # Where no graph was recorded, nothing can be told.
        return call in self.untraced or not self.output.requires_grad

    @cached_property
    def _users(self) -> dict[Node, list[Node]]:
        users: dict[Node, list[Node]] = {}
        for node in _ancestors(self.output.grad_fn):
            for used, _ in node.next_functions:
                users.setdefault(used, []).append(node)
        return users

    def _made_of(self, nodes: Iterable[Node], through: Callable[[Node], bool]) -> set[Node]:
        """Everything that is made of some nodes on the way to the output, by operations of a kind."""
        found, waiting = set[Node](), list(nodes)
        while waiting:
            fresh = {user for user in self._users.get(waiting.pop(), ()) if user not in found and through(user)}
            found |= fresh
            waiting += fresh
        return found


def _ancestors(*nodes: Node) -> Iterator[Node]:
    """Yield nodes and all that they were made by, nearest first."""
    waiting = deque(node for node in nodes if node is not None)
    seen = set(waiting)
    while waiting:
        node = waiting.popleft()
        yield node
        fresh = {before for before, _ in node.next_functions if before is not None} - seen
        seen |= fresh
        waiting.extend(fresh)


def _is(node: Node | None, *kinds: str) -> bool:
    return node is not None and node.name().rpartition("::")[2].partition("Backward")[0] in kinds


def _is_shifted(tokens: Tensor) -> bool:
    """Whether tokens have been rolled around the picture and not yet back."""
    rolls = [node for node in _ancestors(tokens.grad_fn) if _is(node, "Roll")]
    # Shifts to the left are kept as unsigned numbers.
    return sum(shift for node in rolls for shift in node._saved_shifts) % 2**64 != 0


def _is_of_channels(call: AttentionCall) -> bool:
    """Whether the rows of an attention are channels, where there are as many as tokens."""
    _, _, tokens, width = call.value.shape
    return tokens == width == call.query.shape[-1] and not _is_whole(call, 2)


def _is_of_heads(call: AttentionCall) -> bool:
    """Whether heads stand where pictures should, where there are as many."""
    pictures, heads = call.value.shape[:2]
    return pictures == heads and _is_whole(call, 0) is False


def _is_whole(call: AttentionCall, dim: int) -> bool | None:
    """Whether a token, as it is projected behind the attention, lies at one place of a dimension of [B, H, N, e].

    That is so for pictures and for tokens, not for heads and for channels. None where no projection was found.
    """
    if call.way is None or not call.way.closed:
        return None
    shape = call.value.shape
    places = torch.arange(shape[dim]).reshape([-1 if each == dim else 1 for each in range(4)]).expand(shape)
    try:
        laid = call.way.until_projected(call.form.from_heads(places).contiguous())
    except RuntimeError:
        return None
    return None if laid is None else bool((laid == laid[..., :1]).all())
