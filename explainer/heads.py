"""Bringing the heads of an attention into one layout, [B, H, N, d], however a model folds them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from explainer.attention import AS_IT_IS, Form


def folding(query: Tensor, received: Tensor | None) -> Form:
    """Find out how a model folds its heads.

    Args:
        query: [B, H, N, d]; [B * H, N, d], heads in the batch, or a single head; [B, H, 1, N, d] or [B, 1, H, N, d],
            one window.
        received: What the module received, batch first; None where it received no tensor.

    Returns:
        From the model's layout to [B, H, N, d], and back.
    """
    if query.dim() == 5 and 1 in query.shape[1:3]:
        place = 2 if query.shape[2] == 1 else 1
        return Form(lambda given: given.squeeze(place), lambda heads: heads.unsqueeze(place))
    if query.dim() != 3:
        return AS_IT_IS
    batch = query.shape[0] if received is None else received.shape[0]
    # A map of more cells has been cut into windows, and nothing tells these from heads.
    cut = received is not None and received.dim() == 4 and token_columns(received, query.shape[1]) is received
    if cut or query.shape[0] % batch:
        return AS_IT_IS
    return Form(lambda given: given.reshape(batch, -1, *given.shape[1:]), lambda heads: heads.flatten(0, 1))


def is_handed_heads(given: Sequence[Tensor]) -> bool:
    """Whether a module received queries, keys and values, and not what they are made from.

    Args:
        given: The tensors that it received.
    """
    return len(given) > 2 and all(tensor.dim() >= 4 for tensor in given[:3])


def heads_of(
    query: Tensor, key: Tensor, value: Tensor, weights: Tensor | None, bias: Tensor | None, form: Form
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Lay everything that an attention is computed from out as [B, H, ...].

    Args:
        query: In the model's layout, as are the others.
        key: It may have fewer heads, which are then shared; so may `value`.
        value: The values.
        weights: The weights; None where they are not known.
        bias: Broadcastable to the weights; None where there is none.
        form: From :func:`folding`.
    """
    if form is not AS_IT_IS:
        folded = query.dim()
        query, key, value = (form.to_heads(given) for given in (query, key, value))
        weights = weights if weights is None else form.to_heads(weights)
        if bias is not None and bias.dim() == folded and bias.shape[0] > 1:
            bias = form.to_heads(bias)
    if query.dim() == 4 and key.dim() == 4:
        heads = (query.shape[0], max(query.shape[1], key.shape[1]))
        query, key, value = (given.expand(*heads, -1, -1) for given in (query, key, value))
    return query, key, value, weights, bias


def token_columns(received: Tensor | None, tokens: int) -> Tensor | None:
    """Lay what a module received out as one row per token, [B, N, C], where it is a map of N cells.

    Args:
        received: [B, N, C], [B, C, h, w] or [B, h, w, C]; None where the module received no tensor.
        tokens: N, the number of queries.
    """
    if received is None or received.dim() != 4:
        return received
    if received.shape[2] * received.shape[3] == tokens:
        return received.flatten(2).transpose(1, 2)
    if received.shape[1] * received.shape[2] == tokens:
        return received.flatten(1, 2)
    return received
