"""Public reports about maps of CLIP models: CLIP Surgery, GEM, LeGrad, SCLIP, MaskCLIP, open_clip, pytorch-grad-cam
(pgc), pybioclip, gScoreCAM.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import pytest
import torch
from encoders.common import message
from oracles.helpers import CLIPS, SMALL, FakeTokenizer, built, clip, random_images
from torch import nn
from torch.nn import functional as F

import explainer
from explainer_registry import registry

TOWERS: dict[str, Callable[[], nn.Module]] = {
    "vit": lambda: clip({**SMALL, "layers": 3}),
    "vit, QuickGELU": lambda: clip({**SMALL, "layers": 3}, quick_gelu=True),
    "vit, averaged": lambda: clip({**SMALL, "layers": 3, "pool_type": "avg", "final_ln_after_pool": True}),
    "vit, tall": lambda: clip({**SMALL, "layers": 3, "image_size": (48, 32)}),
    "resnet": CLIPS["small_resnet"],
}
METHODS = {"resnet": ["gradcam", "cam", "similarity"]}
EVERY = ["gradcam", "cam", "similarity", "query_key", "gem", "self_self"]
each = pytest.mark.parametrize(
    ("tower", "method"), [(tower, method) for tower in TOWERS for method in METHODS.get(tower, EVERY)]
)


@lru_cache
def wrap(tower: str) -> explainer.Explainer:
    """One for all tests, which leave it as it is."""
    return explainer.wrap(built(TOWERS[tower]), tokenizer=FakeTokenizer())


def pictures(ex: explainer.Explainer) -> torch.Tensor:
    return random_images(2, *ex.encoder.preprocess.size)


def options(method: str) -> dict[str, bool]:
    return {"relu": False} if method == "gradcam" else {}


# One prompt, and many: CLIP Surgery 2 and 19


@each
def test_a_prompt_means_the_same_alone_and_among_others(tower: str, method: str) -> None:
    """One prompt alone gives a map, and neither the mean of a set of prompts nor a softmax over it comes in."""
    ex = wrap(tower)
    alone = ex(pictures(ex), ["a bus"], method=method, **options(method)).maps
    among = ex(pictures(ex), ["a cat", "a bus", "sky"], method=method, **options(method)).maps
    assert alone.shape[:2] == (2, 1)
    assert (alone.flatten(2).std(dim=2) > 1e-3 * alone.abs().max()).all()
    torch.testing.assert_close(alone[:, 0], among[:, 1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tower", TOWERS)
def test_a_score_that_depends_on_the_set_says_so(tower: str) -> None:
    ex = wrap(tower)
    assert message(lambda: ex(pictures(ex), ["a bus"], method="gradcam", score="prob")) == (
        "the probability of a single prompt is always 1, because it is shared out among the prompts that are asked; "
        "ask for at least two, or explain the similarity itself with score='logit'"
    )
    two, three = (
        ex(pictures(ex), asked, method="gradcam", score="prob", relu=False)
        for asked in (["a bus", "a cat"], ["a bus", "a cat", "sky"])
    )
    assert not torch.allclose(two.maps[:, 0], three.maps[:, 0], rtol=1e-3)
    assert two.provenance.score == "prob"


# Text is the target: pgc 460 568, pybioclip 52, gScoreCAM 7


@pytest.mark.parametrize("tower", TOWERS)
def test_the_target_is_a_text_and_never_the_largest_number_of_the_embedding(tower: str) -> None:
    ex = wrap(tower)
    model, asked = ex.encoder.model, ["a bus", "a cat"]
    assert message(lambda: ex(pictures(ex))) == (
        "open_clip:CLIP has no classes, so there is no top class to explain; say what to look for, such as "
        "ex(picture, ['a bus'])"
    )
    with torch.no_grad():
        cosines = (
            F.normalize(model.encode_image(pictures(ex)), dim=-1)
            @ F.normalize(model.encode_text(FakeTokenizer()(asked)), dim=-1).T
        )
    for method in ("gradcam", "cam", "similarity"):
        torch.testing.assert_close(ex(pictures(ex), asked, method=method).scores, cosines, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tower", TOWERS)
def test_texts_are_embedded_once_for_all_pictures(tower: str) -> None:
    ex, calls = wrap(tower), []
    hook = ex.encoder.model.token_embedding.register_forward_hook(lambda _m, args, _out: calls.append(len(args[0])))
    for method in METHODS.get(tower, EVERY):
        ex(pictures(ex), ["a plane", "a ship"], method=method)
    hook.remove()
    assert calls == [2]


# A constant picture


@each
def test_a_constant_picture(tower: str, method: str) -> None:
    """Nothing is divided by a range of zero."""
    ex = wrap(tower)
    constant = torch.stack([torch.full_like(pictures(ex)[0], value) for value in (0.0, 0.3)])
    e = ex(constant, ["a bus"], method=method)
    assert e.maps.isfinite().all()
    for normalize in ("minmax", "symmetric"):
        assert e.heat(normalize=normalize).isfinite().all()
    assert e.overlay().size == tuple(reversed(ex.encoder.preprocess.size))


# Templates are said, and none is put in: MaskCLIP 12, tcl 8, SCLIP 12 and 13


@pytest.mark.parametrize("tower", TOWERS)
def test_templates_are_only_those_that_are_asked_for(tower: str) -> None:
    ex = wrap(tower)
    seen: list[str] = []

    def reading(texts: list[str]) -> torch.Tensor:
        seen.extend(texts)
        return FakeTokenizer()(texts)

    told = explainer.wrap(ex.encoder.model, tokenizer=reading)
    told(pictures(ex), ["a bus"])
    assert seen == ["a bus"]
    told(pictures(ex), ["bus"], templates=["{} here", "no {}"])
    assert seen == ["a bus", "bus here", "no bus"]


# A result says how it was made: tcl 8, ProxyCLIP 5, SC-CLIP 1


@each
def test_a_result_holds_every_setting_that_made_it(tower: str, method: str) -> None:
    ex = wrap(tower)
    first = ex(pictures(ex), ["a bus"], method=method)
    told = first.provenance
    assert (told.encoder, told.weights, told.score) == ("open_clip:CLIP", "as given", "logit")
    assert {"torch", "timm", "open_clip_torch"} <= set(told.versions)
    settings = registry().methods.get(method).schema.model_fields
    assert set(told.method) == {"name", *settings}
    assert ex(pictures(ex), ["a bus"], method=told.method) == first


# Tokens of their own width: open_clip 844, AlphaCLIP 54 and 66


def test_the_tokens_of_a_pooled_tower_are_those_of_the_picture() -> None:
    """CoCa pools its tokens by queries of another number and width."""
    vision = {**SMALL, "layers": 2, "attentional_pool": True, "attn_pooler_queries": 9, "attn_pooler_heads": 4}
    model = built(lambda: clip(vision))
    ex = explainer.wrap(model, tokenizer=FakeTokenizer())
    assert ex.features(random_images(2, 32)).shape == (2, 64, 4, 4)
    assert ex(random_images(2, 32), ["a bus"]).maps.shape == (2, 1, 4, 4)


@pytest.mark.parametrize("tower", TOWERS)
def test_a_wrapped_model_is_asked_in_one_line(tower: str) -> None:
    ex = wrap(tower)
    e = ex(pictures(ex)[0], "a bus")
    assert e.names == ("a bus",)
    assert e.mask().shape == e.heat().shape == (1, 1, *ex.encoder.preprocess.size)
