"""Prompts as directions: templates, averages, and the cache."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from oracles.helpers import FakeTokenizer, clip_model, random_images
from torch import Tensor, nn

import explainer
from explainer import companion as module
from explainer.companion import TextCompanion
from explainer_plugins.open_clip.encoder import _companion

from .common import message


class Counting(FakeTokenizer):
    """A tokenizer that remembers what it was given."""

    # Long enough that texts which differ at their end have different tokens.
    context_length = 40

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: str | Sequence[str]) -> Tensor:
        self.calls.append(list(texts))
        return super().__call__(texts)

    @property
    def texts(self) -> list[str]:
        return [text for call in self.calls for text in call]


class Texts(nn.Module):
    """A text tower: a random embedding of every character, and a mean."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, width)
        with torch.no_grad():
            self.embedding.weight.normal_(generator=torch.Generator().manual_seed(0))

    def encode_text(self, tokens: Tensor) -> Tensor:
        vectors = self.embedding(tokens) * torch.linspace(1, 2, tokens.shape[1])[:, None]
        return (vectors * (tokens > 0)[..., None]).sum(dim=1)


def made() -> tuple[TextCompanion, Texts, Counting]:
    model, tokenizer = Texts(), Counting()
    companion = _companion(model, tokenizer)
    assert companion is not None
    return companion, model, tokenizer


def literal(model: Texts, groups: Sequence[Sequence[str]], forms: Sequence[str]) -> Tensor:
    """Radford 2021, 3.1.4: encode every filled template, normalise, average, normalise."""
    rows = []
    for group in groups:
        total = torch.zeros(6)
        for prompt in group:
            for form in forms:
                before, after = form.split("{}")
                vector = model.encode_text(Counting()([before + prompt + after]))[0].detach()
                total = total + vector / vector.norm()
        mean = total / (len(group) * len(forms))
        rows.append(mean / mean.norm())
    return torch.stack(rows)


OPENAI = [template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES]


@pytest.mark.parametrize(
    ("templates", "forms"),
    [
        (None, ["{}"]),
        ("plain", ["{}"]),
        ("photo", ["a photo of a {}."]),
        ("openai", OPENAI),
        ("a drawing of {}", ["a drawing of {}"]),
        (["{} here", "no {}"], ["{} here", "no {}"]),
        (("{}",), ["{}"]),
        (["{} here"] * 2, ["{} here"]),
    ],
)
def test_templates(templates: Any, forms: list[str]) -> None:
    companion, model, _ = made()
    groups = [["bus"], ["cat", "kitten"], ["a {} in braces"]]
    found = companion.directions(groups, templates)
    assert found.dtype == torch.float32
    assert torch.allclose(found, literal(model, groups, forms), atol=1e-6)
    assert torch.allclose(found.norm(dim=1), torch.ones(3))


def test_openai_has_eighty_templates() -> None:
    companion, _, tokenizer = made()
    companion.directions([["bus"]], "openai")
    assert len(tokenizer.texts) == len(set(tokenizer.texts)) == 80
    assert tokenizer.texts[0] == "a bad photo of a bus."


def test_a_prompt_in_braces_is_put_in_as_it_is() -> None:
    companion, _, tokenizer = made()
    companion.directions([["{}"]], "say {}")
    assert tokenizer.texts == ["say {}"]


@pytest.mark.parametrize(
    ("templates", "given", "hint"),
    [
        ("opena1", "'opena1'", "; did you mean 'openai'?"),
        ("a photo", "'a photo'", "; did you mean 'photo'?"),
        ("{} and {}", "'{} and {}'", ""),
        (["{}", "nothing"], "'nothing'", ""),
        (["{}", 3], "3", ""),
        (3, "3", ""),
        ("", "''", ""),
    ],
)
def test_templates_that_are_none(templates: Any, given: str, hint: str) -> None:
    companion, *_ = made()
    assert message(lambda: companion.directions([["bus"]], templates)) == (
        f"{given} is neither a set of templates (plain, photo, openai) nor a template with one {{}} in the place of "
        f"the prompt{hint}"
    )


def test_no_templates() -> None:
    companion, *_ = made()
    assert message(lambda: companion.directions([["bus"]], [])) == (
        "the list of templates is empty; give at least one, such as 'a photo of a {}.'"
    )


# The cache


def test_texts_are_embedded_once() -> None:
    companion, _, tokenizer = made()
    first = companion.directions([["bus"], ["cat"]], "photo")
    again = companion.directions([["bus"], ["cat"]], "photo")
    assert tokenizer.calls == [["a photo of a bus.", "a photo of a cat."]]
    assert torch.equal(first, again)
    companion.directions([["cat"], ["dog"], ["dog"]], "photo")
    assert tokenizer.calls[1:] == [["a photo of a dog."]]


def test_order_is_that_of_the_prompts_and_not_of_the_cache() -> None:
    companion, model, _ = made()
    companion.directions([["c"], ["a"]])
    groups = [["a"], ["b"], ["c"], ["a"], ["b", "c"]]
    assert torch.allclose(companion.directions(groups), literal(model, groups, ["{}"]), atol=1e-6)


def test_many_texts_go_through_the_tower_in_chunks() -> None:
    companion, model, tokenizer = made()
    groups = [[f"thing {number}"] for number in range(150)]
    found = companion.directions(groups)
    assert [len(call) for call in tokenizer.calls] == [64, 64, 22]
    assert torch.allclose(found, literal(model, groups, ["{}"]), atol=1e-6)


def test_eighty_templates_in_a_whole_run_are_one_call_per_chunk_and_none_the_next_time() -> None:
    tokenizer = Counting()
    tokenizer.context_length = FakeTokenizer.context_length
    ex, images = explainer.wrap(clip_model("small"), tokenizer=tokenizer), random_images(2, 32)
    first = ex(images, ["a bus", "a cat"], templates="openai", method="similarity")
    assert [len(call) for call in tokenizer.calls] == [64, 64, 32]
    again = ex(images, ["a bus", "a cat"], templates="openai", method="similarity")
    assert len(tokenizer.calls) == 3
    assert torch.equal(first.maps, again.maps)


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.embedding.weight.mul_(torch.linspace(1, 3, 6)),
        lambda model: model.load_state_dict({"embedding.weight": torch.rand(100, 6)}),
        lambda model: setattr(model, "embedding", nn.Embedding(100, 6)),
        lambda model: torch.optim.SGD(model.parameters(), lr=1.0).step(),
    ],
)
def test_changed_weights_empty_the_cache(change: Callable[[Texts], Any]) -> None:
    companion, model, tokenizer = made()
    before = companion.directions([["bus"]])
    model.embedding.weight.grad = torch.rand(100, 6)
    with torch.no_grad():
        change(model)
    after = companion.directions([["bus"]])
    assert len(tokenizer.calls) == 2
    assert not torch.allclose(before, after)
    assert torch.allclose(after, literal(model, [["bus"]], ["{}"]), atol=1e-6)


def test_the_cache_stays_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one call asks for more than it holds."""
    monkeypatch.setattr(module, "CACHED", 5)
    companion, model, tokenizer = made()
    groups = [[f"thing {number}"] for number in range(9)]
    assert torch.allclose(companion.directions(groups), literal(model, groups, ["{}"]), atol=1e-6)
    companion.directions(groups[4:])
    assert len(tokenizer.texts) == 9
    companion.directions(groups[:1])
    assert len(tokenizer.texts) == 10


def test_threads_share_one_companion() -> None:
    companion, model, _ = made()
    groups = [[f"thing {number % 40}"] for number in range(80)]
    expected, found = literal(model, groups, ["{}"]), []

    def ask() -> None:
        found.append(companion.directions(groups))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.allclose(each, expected, atol=1e-6) for each in found)


def test_embedding_text_leaves_no_trace() -> None:
    companion, model, _ = made()
    model.train()
    companion.directions([["bus"]])
    assert model.training
    assert model.embedding.weight.requires_grad
    assert model.embedding.weight.grad is None


def test_prompts_that_were_first_read_inside_inference_mode_have_gradients_later() -> None:
    ex, images = explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer()), random_images(1, 32)
    with torch.inference_mode():
        inside = ex(images, ["a bus", "a cat"], method="gradcam", score="log_prob").maps
    outside = ex(images, ["a bus", "a cat"], method="gradcam", score="log_prob").maps
    assert torch.equal(inside, outside)


def test_a_training_model_is_read_in_evaluation_mode() -> None:
    class Dropping(Texts):
        def encode_text(self, tokens: Tensor) -> Tensor:
            return F.dropout(super().encode_text(tokens), 0.5, self.training)

    model = Dropping().train()
    companion = _companion(model, Counting())
    assert companion is not None
    assert torch.allclose(companion.directions([["bus"]]), literal(model.eval(), [["bus"]], ["{}"]), atol=1e-6)


# In a whole run


def test_a_group_of_prompts_is_one_target_the_mean_of_its_members() -> None:
    model, tokenizer, images = clip_model("small"), FakeTokenizer(), random_images(2, 32)
    e = explainer.wrap(model, tokenizer=tokenizer)(images, [["a cat", "a kitten"], "a bus"], method="similarity")
    with torch.no_grad():
        rows = F.normalize(model.encode_text(tokenizer(["a cat", "a kitten", "a bus"])), dim=-1)
    directions = torch.stack([rows[:2].mean(dim=0), rows[2]])
    assert e.names == ("a cat / a kitten", "a bus")
    assert torch.allclose(e.maps, explainer.wrap(model)(images, directions, method="similarity").maps, atol=1e-6)
    with torch.no_grad():
        cosines = F.cosine_similarity(model.encode_image(images)[:, None], directions[None], dim=-1)
    assert torch.allclose(e.scores, cosines, atol=1e-6)


def test_weights_made_inside_inference_mode() -> None:
    with torch.inference_mode():
        model = copy.deepcopy(clip_model("small"))
    text = (
        "the weights of this CLIP are inference tensors: the model was built inside torch.inference_mode(), and no "
        "gradient can pass through it; build or load it outside"
    )
    assert text == message(
        lambda: explainer.wrap(model, tokenizer=FakeTokenizer())(random_images(1, 32), "a bus", method="similarity")
    )


class AnyLength(FakeTokenizer):
    """As open_clip's own, which cut off what is too long without a word."""

    def __call__(self, texts: Any, context_length: int = 12) -> Tensor:
        self.context_length = context_length
        return super().__call__(texts)


def test_a_prompt_that_would_be_cut_off() -> None:
    ex, images = explainer.wrap(clip_model("small"), tokenizer=AnyLength()), random_images(1, 32)
    assert message(lambda: ex(images, "a bus in the rain", method="similarity")) == (
        "the model reads 12 tokens, and the prompt 'a bus in the rain...' has more; shorten it"
    )
    assert ex(images, "a red bus", method="similarity").names == ("a red bus",)
