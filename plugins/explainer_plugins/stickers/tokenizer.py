"""Tokenizer of the sticker model: one token a word, out of a small vocabulary."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType

import torch
from torch import Tensor

from explainer.target import TargetError
from explainer_registry.errors import shown

LENGTH = 16
"""How many tokens the text tower reads, the first and the last are its own."""

FILLERS = ("a", "an", "and", "the", "of", "photo", "picture", "drawing", "sticker", "emoji")
"""Words that may stand around the nouns."""

ALL_NOUNS = "python -m explainer_plugins.stickers"
"""The command that lists the nouns."""

_EMPTY, _START = 0, 1
_OFFERED = 3
_TELLING = 4
"""From this length on, a part of a word tells which word is meant."""


@cache
def nouns() -> Mapping[str, tuple[str, ...]]:
    """Read the nouns that the model knows, each with the code points of its drawings."""
    text = (files("explainer_plugins.stickers") / "data" / "nouns.json").read_text(encoding="utf-8")
    listed: dict[str, list[str]] = json.loads(text)
    return MappingProxyType({noun: tuple(codes) for noun, codes in listed.items()})


@cache
def vocabulary() -> Mapping[str, int]:
    """Number the words that the model knows, from 2 on."""
    words = dict.fromkeys([*FILLERS, *(word for noun in nouns() for word in noun.split())])
    return MappingProxyType({word: number for number, word in enumerate(words, _START + 1)})


def vocabulary_size() -> int:
    """Count the tokens; the last one ends a text, since text towers of CLIP read the highest."""
    return len(vocabulary()) + 3


def tokenize(texts: Sequence[str]) -> Tensor:
    """Turn texts into tokens.

    Args:
        texts: Prompts of words that the model knows; case and punctuation do not matter.

    Returns:
        Token numbers, int64 [N, 16].

    Raises:
        TargetError: A text is empty or too long, or holds a word that the model does not know.
    """
    tokens = torch.full((len(texts), LENGTH), _EMPTY)
    for row, text in zip(tokens, texts, strict=True):
        numbers = [_START, *_numbers(text), vocabulary_size() - 1]
        row[: len(numbers)] = torch.tensor(numbers)
    return tokens


def _numbers(text: str) -> list[int]:
    words = re.findall(r"[^\W_]+", text.lower())
    if not words:
        raise TargetError(f"the prompt {shown(text)} holds no word; name what to look for, such as 'a cat'")
    if unknown := [place for place, word in enumerate(words) if word not in vocabulary()]:
        raise TargetError(
            f"the sticker model has never learnt {_named(words, unknown)} of the prompt {shown(text)}"
            f"{_hint(words, unknown)} ('{ALL_NOUNS}' lists the {len(nouns())} nouns; "
            f"besides them it knows {', '.join(FILLERS)})"
        )
    if len(words) > LENGTH - 2:
        raise TargetError(
            f"the sticker model reads {LENGTH - 2} words, and the prompt {shown(text)} has {len(words)}; shorten it"
        )
    return [vocabulary()[word] for word in words]


def _named(words: Sequence[str], places: Sequence[int]) -> str:
    different = dict.fromkeys(shown(words[place]) for place in places)
    return f"the word{'s' if len(different) > 1 else ''} {', '.join(different)}"


def _hint(words: Sequence[str], places: Sequence[int]) -> str:
    """Offer the nouns that are nearest to the words that are not known."""
    spellings = dict.fromkeys(spelling for noun in nouns() for spelling in (noun, *noun.split()))
    near = [other for place in places for other in _nearest(words, place, spellings)]
    meant = dict.fromkeys(noun for other in near for noun in nouns() if other in (noun, *noun.split()))
    return f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def _nearest(words: Sequence[str], place: int, spellings: Iterable[str]) -> list[str]:
    word = words[place]
    parted = ["".join(words[start : start + 2]) for start in (max(place - 1, 0), place)]  # "hot dogs"
    singular = [written.removesuffix("s") for written in (*parted, word)]
    if same := [spelling for spelling in spellings if spelling in (*parted, *singular)]:
        return same
    if len(word) >= _TELLING and (longer := [spelling for spelling in spellings if word in spelling]):
        return longer[:_OFFERED]
    return difflib.get_close_matches(word, spellings, n=_OFFERED, cutoff=0.7)
