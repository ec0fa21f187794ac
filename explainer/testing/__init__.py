"""What tests of plugins and models are made of: contracts, tiny models, assertions and a registry of their own."""

from __future__ import annotations

from explainer.testing.clean import assert_clean
from explainer.testing.encoder import EncoderContract
from explainer.testing.layout import assert_layout
from explainer.testing.method import MethodContract
from explainer.testing.metric import MetricContract
from explainer.testing.models import perturb, tiny_clip, tiny_cnn, tiny_tokenizer, tiny_vit
from explainer.testing.plugins import fresh_registry
from explainer.testing.score import ScoreContract
from explainer.testing.view import ViewContract

__all__ = [
    "EncoderContract",
    "MethodContract",
    "MetricContract",
    "ScoreContract",
    "ViewContract",
    "assert_clean",
    "assert_layout",
    "fresh_registry",
    "perturb",
    "tiny_clip",
    "tiny_cnn",
    "tiny_tokenizer",
    "tiny_vit",
]
