"""Products of attention that are written as Einstein sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from explainer.attention import Form


def read_scores(args: Sequence[Any]) -> tuple[Tensor, Tensor] | None:
    """Read an Einstein sum as the product of queries and keys.

    Args:
        args: Of ``torch.einsum``.

    Returns:
        The queries [..., N, d] and the keys [..., M, d] whose product the sum is; None where it is no such
        product.
    """
    letters = _letters(args[0], len(args) - 1)
    if letters is None or not all(isinstance(arg, Tensor) for arg in args[1:3]):
        return None
    first, second, output = letters
    summed = (set(first) & set(second)) - set(output)
    if len(summed) != 1 or len(output) < 2:
        return None
    batch, query, key, width = output[:-2], output[-2], output[-1], summed.pop()
    given = {frozenset(first): (args[1], first), frozenset(second): (args[2], second)}
    asks, asked = batch + query + width, batch + key + width
    if set(given) != {frozenset(asks), frozenset(asked)}:
        return None
    return _permuted(*given[frozenset(asks)], asks), _permuted(*given[frozenset(asked)], asked)


def read_values(equation: Any, weights: Tensor, value: Tensor, place: int) -> tuple[Tensor, Form] | None:
    """Read an Einstein sum as the product of weights and values.

    Args:
        equation: Its first argument.
        weights: The operand that holds the weights, [..., N, M].
        value: The other operand.
        place: Which operand the weights are, 0 or 1.

    Returns:
        The values [..., M, e], and how the sum lays its result [..., N, e] out; None where it is no such product.
    """
    letters = _letters(equation, 2)
    if letters is None or weights.dim() != len(letters[place]):
        return None
    own, other, output = letters[place], letters[1 - place], letters[2]
    batch, query, key = own[:-2], own[-2], own[-1]
    width = set(output) - set(own)
    if len(width) != 1 or set(output) != {*batch, query, *width} or set(other) != {*batch, key, *width}:
        return None
    heads = batch + query + width.pop()
    form = Form(lambda given: _permuted(given, output, heads), lambda laid: _permuted(laid, heads, output))
    return _permuted(value, other, batch + key + heads[-1]), form


def _letters(equation: Any, operands: int) -> tuple[str, str, str] | None:
    """Take an equation of two operands apart; None for any other."""
    if not isinstance(equation, str) or operands != 2:
        return None
    given, arrow, output = equation.replace(" ", "").partition("->")
    first, comma, second = given.partition(",")
    parts = (first, second, output)
    plain = arrow and comma and all(part.isalpha() and len(set(part)) == len(part) for part in parts)
    return parts if plain else None


def _permuted(tensor: Tensor, have: str, want: str) -> Tensor:
    return torch.permute(tensor, [have.index(letter) for letter in want])
