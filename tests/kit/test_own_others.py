"""All encoders, scores, metrics and views that come with the package keep their contracts; there are no exemptions."""

from __future__ import annotations

from encoders.small_transformers import classifier
from torch import nn

from explainer.testing import (
    EncoderContract,
    MetricContract,
    ScoreContract,
    ViewContract,
    fresh_registry,
    tiny_clip,
    tiny_cnn,
    tiny_tokenizer,
    tiny_vit,
)

with fresh_registry() as _registry:
    ENCODERS, SCORES, METRICS, VIEWS = (
        list(kind) for kind in (_registry.encoders, _registry.scores, _registry.metrics, _registry.views)
    )

for _name in SCORES:
    globals()[f"Test_score_{_name}"] = type(f"Test_score_{_name}", (ScoreContract,), {"score": _name})
for _name in METRICS:
    globals()[f"Test_metric_{_name}"] = type(f"Test_metric_{_name}", (MetricContract,), {"metric": _name})
for _name in VIEWS:
    globals()[f"Test_view_{_name}"] = type(f"Test_view_{_name}", (ViewContract,), {"view": _name})


class TestTorch(EncoderContract):
    encoder, options = "torch", {"size": 32}

    def model(self) -> nn.Module:
        return tiny_cnn()


class TestTimm(EncoderContract):
    encoder = "timm"

    def model(self) -> nn.Module:
        return tiny_vit()


class TestOpenClip(EncoderContract):
    encoder, options = "open_clip", {"tokenizer": tiny_tokenizer}

    def model(self) -> nn.Module:
        return tiny_clip()


class TestOpenClipWithoutTexts(EncoderContract):
    encoder = "open_clip"

    def model(self) -> nn.Module:
        return tiny_clip()


class TestTransformers(EncoderContract):
    encoder = "transformers"

    def model(self) -> nn.Module:
        return classifier("vit")


class TestDemo(EncoderContract):
    def model(self) -> str:
        return "demo"


class TestStickers(EncoderContract):
    def model(self) -> str:
        return "stickers"


def test_every_encoder_is_tried() -> None:
    tried = [TestTorch, TestTimm, TestOpenClip, TestTransformers, TestDemo, TestStickers]
    assert sorted(each().name for each in tried) == sorted(ENCODERS)
