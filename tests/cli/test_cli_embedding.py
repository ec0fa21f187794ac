"""Explaining a model without classes from the shell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

MODEL = ("--model", "timm:vit_tiny_patch16_dinov3_qkvb", "--set", "model.pretrained=false", "--set", "model.size=64")
RANDOM = (
    "warning: the weights of timm:vit_tiny_patch16_dinov3_qkvb are random: no published weights were loaded, so its "
    "maps mean nothing\n"
)


def test_no_target_is_needed(explainer, cat: Path) -> None:
    result = explainer("explain", "cat.jpg", *MODEL, "--out", "maps")

    assert (result.exit_code, result.stderr) == (0, RANDOM)
    assert re.fullmatch(
        r"  gradcam  own embedding  logit -?\d+\.\d+  own-embedding-gradcam\.png", result.stdout.splitlines()[1]
    )
    assert Path("maps/cat/own-embedding-gradcam.png").is_file()


def test_a_number_is_a_channel(explainer, cat: Path) -> None:
    result = explainer("explain", "cat.jpg", *MODEL, "--target", "12", "--out", "maps", "--method", "similarity")

    assert (result.exit_code, result.stderr) == (0, RANDOM)
    assert Path("maps/cat/channel-12-similarity.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--target", "a bus"],
            "timm:vit_tiny_patch16_dinov3_qkvb has neither classes nor a text tower, so 'a bus' means nothing to it; "
            "ask for nothing to explain the embedding itself, for a channel (0 to 191), or for a direction tensor "
            "[192], such as the embedding of another picture",
        ),
        (["--templates", "photo"], "timm:vit_tiny_patch16_dinov3_qkvb reads no text, so it takes no templates"),
        (
            ["--set", "model.classes=[cat, dog]"],
            "timm:vit_tiny_patch16_dinov3_qkvb has no classifier, so the setting 'classes' means nothing to it; leave "
            "it out to explain the embedding",
        ),
    ],
)
def test_what_needs_classes_or_text_is_refused(explainer, cat: Path, arguments: list[str], message: str) -> None:
    result = explainer("explain", "cat.jpg", *MODEL, *arguments)

    assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"Error: {message}\n")


def test_the_report_names_the_embedding(explainer, folder: Path) -> None:
    result = explainer("inspect", *MODEL[1:])

    assert result.exit_code == 0
    assert result.stdout.splitlines()[1] == "input        64 x 64, embedding of 192"
