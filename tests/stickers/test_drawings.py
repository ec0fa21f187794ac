"""The drawings of the held-out hand, and what is said of where everything comes from."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import yaml

from explainer_plugins.stickers import drawings as module
from explainer_plugins.stickers.drawings import drawings
from explainer_plugins.stickers.tokenizer import nouns

ROOT = Path(__file__).parents[2]
DATA = Path(module.__file__).parent / "data"

COLLECTED = "fe1b092df3827ff87f1ea631db3843c36dbfa8b4ac8778d1c3906d61dce8fc6e"
"""SHA-256 of width, height and RGBA of each picture that training/stickers/collect.py cut out, in the same order."""


def test_each_drawing_is_what_was_collected() -> None:
    digest = hashlib.sha256()
    for drawn in (drawing for own in drawings().values() for drawing in own):
        assert drawn.mode == "RGBA"
        digest.update(np.array(drawn.size, dtype="<u4").tobytes() + drawn.tobytes())
    assert digest.hexdigest() == COLLECTED


def test_every_noun_has_a_drawing_for_each_code_point() -> None:
    assert {noun: len(own) for noun, own in drawings().items()} == {noun: len(codes) for noun, codes in nouns().items()}
    assert (len(drawings()), sum(map(len, drawings().values()))) == (119, 131)


def test_each_is_cut_out_tightly() -> None:
    for drawing in (drawing for own in drawings().values() for drawing in own):
        opacity = np.asarray(drawing)[..., 3]
        assert 16 < max(opacity.shape) <= 64
        assert all(edge.max() > 16 for edge in (opacity[0], opacity[-1], opacity[:, 0], opacity[:, -1]))


def test_what_ships_is_small() -> None:
    assert (DATA / "drawings.png").stat().st_size < 400_000
    assert (DATA / "weights.safetensors").stat().st_size <= 8_000_000
    assert {path.name for path in DATA.iterdir()} == {
        "SOURCES.md", "drawings.png", "model.json", "nouns.json", "weights.safetensors",
    }  # fmt: skip


def test_every_hand_is_named_with_its_licence() -> None:
    hands = yaml.safe_load((ROOT / "training" / "stickers" / "hands.yaml").read_text(encoding="utf-8"))
    sources = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    notice = " ".join((ROOT / "NOTICE").read_text(encoding="utf-8").split())

    for hand in hands.values():
        licence = hand["licence"].replace("CC-BY-4.0", "CC-BY 4.0")
        (line,) = (line for line in sources.splitlines() if f"`{hand['package']}` {hand['version']}" in line)
        assert f"| {licence}" in line
        assert licence in notice
        assert hand["author"].replace(" ", "") in line.replace(" ", "")
    assert "Copyright Twitter, Inc and other contributors, graphics licensed under CC-BY 4.0" in notice
    assert "https://github.com/twitter/twemoji" in notice
