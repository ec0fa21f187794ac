"""What the sticker model reads, and what it says of words that it has never learnt."""

from __future__ import annotations

import hashlib
import runpy
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from encoders.common import message
from hypothesis import given, settings
from hypothesis import strategies as st

import explainer
from explainer.cli import main
from explainer_plugins.stickers import StickerScenes
from explainer_plugins.stickers.dataset import build
from explainer_plugins.stickers.tokenizer import LENGTH, nouns, tokenize, vocabulary, vocabulary_size

NUMBERED = "7d57f427e96ebda5694d1f9c208317507f2f07d43eec20dcf85db5b81fe7172b"
"""SHA-256 of the words in the order of their numbers, which the weights were trained with."""

KNOWN = (
    "('python -m explainer_plugins.stickers' lists the 119 nouns; besides them it knows a, an, and, the, of, photo, "
    "picture, drawing, sticker, emoji)"
)

words = st.sampled_from(sorted(vocabulary()))
gaps = st.sampled_from([" ", "  ", "-", ", ", "_", ". ", "\n"])


def read(tokens: torch.Tensor) -> list[str]:
    """Turn one row of tokens back into words."""
    by_number = {number: word for word, number in vocabulary().items()}
    numbers = tokens[tokens != 0].tolist()
    assert (numbers[0], numbers[-1]) == (1, vocabulary_size() - 1)
    assert not tokens[len(numbers) :].any()
    return [by_number[number] for number in numbers[1:-1]]


@settings(max_examples=200, deadline=None)
@given(st.lists(words, min_size=1, max_size=LENGTH - 2), gaps, st.sampled_from([str.lower, str.upper, str.title]))
def test_words_come_back_as_they_went_in(said: list[str], gap: str, spelt: object) -> None:
    assert callable(spelt)
    (row,) = tokenize([f" {spelt(gap.join(said))}!"])

    assert (row.dtype, row.shape) == (torch.int64, (LENGTH,))
    assert read(row) == said
    assert row.argmax() == len(said) + 1  # where text towers of CLIP read


def test_several_texts_are_rows() -> None:
    rows = tokenize(["cat", "a photo of a palm tree", "An Apple"])
    assert [read(row) for row in rows] == [["cat"], ["a", "photo", "of", "a", "palm", "tree"], ["an", "apple"]]
    assert tokenize([]).shape == (0, LENGTH)


def test_the_numbers_are_those_of_the_training() -> None:
    numbered = sorted(vocabulary(), key=lambda word: vocabulary()[word])
    assert sorted(vocabulary().values()) == list(range(2, vocabulary_size() - 1))
    assert hashlib.sha256(" ".join(numbered).encode()).hexdigest() == NUMBERED


HOT_DOGS = "; did you mean 'bread' or 'pizza' or 'hotdog' or 'dog'?"


@pytest.mark.parametrize(
    ("text", "unknown", "hint"),
    [
        ("a piza", "piza", "; did you mean 'pizza'?"),
        ("cats", "cats", "; did you mean 'cat'?"),
        ("a cat and two Dogs", "two, dogs", "; did you mean 'dog'?"),
        ("buses", "buses", "; did you mean 'bus'?"),
        ("foxes", "foxes", "; did you mean 'fox'?"),
        ("watches", "watches", "; did you mean 'watch'?"),
        ("dresses", "dresses", "; did you mean 'dress'?"),
        ("grape", "grape", "; did you mean 'grapes'?"),
        ("an ice cream", "ice, cream", "; did you mean 'icecream'?"),
        ("a hot-dog", "hot", "; did you mean 'hotdog'?"),
        ("a sail boat", "sail, boat", "; did you mean 'sailboat'?"),
        ("a boat", "boat", "; did you mean 'sailboat'?"),
        ("trees", "trees", "; did you mean 'palm tree' or 'christmas tree'?"),
        ("balls", "balls", "; did you mean 'soccer ball'?"),
        ("a doughnut with cheries", "with, cheries", "; did you mean 'cherries' or 'cheese'?"),
        ("cheries", "cheries", "; did you mean 'cherries' or 'cheese'?"),
        ("a zebra", "zebra", ""),
        ("two Red piza and two hot dogs", "two, red, piza, hot, dogs", HOT_DOGS),
        ("chat noir", "chat, noir", "; did you mean 'cat'?"),
        ("ein Bär", "ein, bär", ""),
        ("a dress1", "dress1", "; did you mean 'dress'?"),
    ],
)
def test_words_that_were_never_learnt(text: str, unknown: str, hint: str) -> None:
    words = unknown.split(", ")
    named = f"the word{'s' if len(words) > 1 else ''} {', '.join(map(repr, words))}"
    assert message(lambda: tokenize(["a cat", text])) == (
        f"the sticker model has never learnt {named} of the prompt '{text}'{hint} {KNOWN}"
    )


@pytest.mark.parametrize("text", ["🐱", "", " ?! ", "___"])
def test_a_prompt_without_words(text: str) -> None:
    assert message(lambda: tokenize([text])) == (
        f"the prompt {text!r} holds no word; name what to look for, such as 'a cat'"
    )


def test_a_prompt_of_too_many_words() -> None:
    assert message(lambda: tokenize(["cat " * 15])) == (
        "the sticker model reads 14 words, and the prompt 'cat cat cat cat cat cat cat cat cat cat cat cat cat cat cat "
        "' has 15; shorten it"
    )


def test_messages_stay_short_whatever_was_asked() -> None:
    assert len(message(lambda: tokenize(["z" * 10_000]))) < 500
    assert len(message(lambda: tokenize(["cat " * 10_000]))) < 500


@pytest.fixture(scope="module")
def ex() -> explainer.Explainer:
    return explainer.wrap("stickers")


@pytest.fixture(scope="module")
def scene() -> object:
    return build(StickerScenes())[0].picture


@pytest.mark.parametrize(
    ("targets", "templates", "prompt"),
    [
        ("a piza", None, "a piza"),
        (["a cat", "piza"], None, "piza"),
        ([["a cat", "the piza"]], None, "the piza"),
        ("piza", "plain", "piza"),
        ("piza", "photo", "a photo of a piza"),
        ("cat", "the {} of a piza", "the cat of a piza"),
        ("cat", ["a {}", "a piza and a {}"], "a piza and a cat"),
    ],
)
def test_it_is_said_in_python(
    ex: explainer.Explainer, scene: object, targets: object, templates: object, prompt: str
) -> None:
    assert message(lambda: ex(scene, targets, templates=templates)) == (
        f"the sticker model has never learnt the word 'piza' of the prompt '{prompt}'; did you mean 'pizza'? {KNOWN}"
    )


def test_the_templates_of_large_models_are_none_of_its_own(ex: explainer.Explainer, scene: object) -> None:
    assert message(lambda: ex(scene, "a cat", templates="openai")) == (
        "'openai' is neither a set of templates (plain, photo) nor a template with one {} in the place of the prompt"
    )


@pytest.mark.parametrize(
    ("arguments", "prompt"),
    [
        (["--target", "a cat", "--target", "a piza"], "a piza"),
        (["--target", "cat", "--templates", "a {} and a piza"], "a cat and a piza"),
    ],
)
def test_it_is_said_in_the_shell(tmp_path: Path, arguments: list[str], prompt: str) -> None:
    result = CliRunner().invoke(
        main, ["explain", "scene.png", "--model", "stickers", "--out", str(tmp_path), *arguments]
    )

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        f"Error: the sticker model has never learnt the word 'piza' of the prompt '{prompt}'; did you mean 'pizza'? "
        f"{KNOWN}\n"
    )


def test_a_number_is_no_prompt(ex: explainer.Explainer, scene: object) -> None:
    assert message(lambda: ex(scene, 3)) == (
        "stickers has no classes, so the class index 3 means nothing to it; give a prompt, such as 'a bus'"
    )


def test_without_a_prompt(ex: explainer.Explainer, scene: object) -> None:
    assert message(lambda: ex(scene)) == (
        "stickers has no classes, so there is no top class to explain; say what to look for, such as ex(picture, "
        "['a bus'])"
    )


def test_all_nouns_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_module("explainer_plugins.stickers", run_name="__main__")
    assert capsys.readouterr().out.splitlines() == list(nouns())
