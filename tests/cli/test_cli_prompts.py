"""A run over a model that reads text."""

from __future__ import annotations

from pathlib import Path

import open_clip
import pytest
import torch

import explainer
from explainer.config import make_run
from explainer.job import Job
from explainer_registry import ExplainerError


@pytest.fixture
def clip() -> explainer.Explainer:
    """A small CLIP with random weights."""
    torch.manual_seed(0)
    model = open_clip.CLIP(
        embed_dim=16,
        vision_cfg={"image_size": 32, "patch_size": 8, "width": 32, "head_width": 16, "layers": 3},
        text_cfg={"width": 32, "heads": 2, "layers": 1},
    )
    return explainer.wrap(model.eval(), tokenizer=open_clip.get_tokenizer("ViT-B-32"))


def test_texts_lists_of_texts_and_digits(clip: explainer.Explainer, cat: Path) -> None:
    fields = {
        "pictures": ["cat.jpg"],
        "model": "open_clip:ViT-B-32",
        "targets": ["281", ["a cat", "a kitten"]],
        "templates": "photo",
        "score": "prob",
        "methods": ["gradcam", {"name": "gradcam", "relu": False}],
    }

    (result,) = Job(make_run(fields), explainer=clip).results()

    assert result.failure == ""
    assert [(drawing.method, drawing.label) for drawing in result.drawings] == [
        ("gradcam", "281"),
        ("gradcam", "a cat / a kitten"),
        ("gradcam-2", "281"),
        ("gradcam-2", "a cat / a kitten"),
    ]
    assert sum(drawing.score or 0 for drawing in result.drawings[:2]) == pytest.approx(1)
    assert [drawing.file.name for drawing in result.drawings[:2]] == [
        "281-gradcam.png",
        "a-cat-a-kitten-gradcam.png",
    ]


def test_the_default_is_the_method_for_models_that_read_text(clip: explainer.Explainer, cat: Path) -> None:
    run = make_run({"pictures": ["cat.jpg"], "model": "open_clip:ViT-B-32", "targets": ["a cat"]})

    (result,) = Job(run, explainer=clip).results()

    assert [drawing.method for drawing in result.drawings] == ["gem"]


def test_a_question_is_needed(clip: explainer.Explainer, cat: Path) -> None:
    run = make_run({"pictures": ["cat.jpg"], "model": "open_clip:ViT-B-32"})

    with pytest.raises(ExplainerError) as caught:
        Job(run, explainer=clip)

    assert "has no classes, so there is no top class to explain" in str(caught.value)
