"""Small members of the families of transformers, with weights that hide nothing, and a tokenizer of a few words."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import transformers
from oracles.helpers import built, random_images
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn

from .common import settled

VIT = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
SPECIAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<start>", "eos_token": "<end>"}
WORDS = (*SPECIAL.values(), "a", "the", "bus", "cat", "dog", "on", "red", "street", "of", "photo", ".", "very", "long")
LENGTH = 16
TEXT = {
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": len(WORDS),
    "max_position_embeddings": LENGTH,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
}
BOTH = {"vision_config": VIT, "text_config": TEXT}
STAGES = {"image_size": 64, "hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1]}
WINDOWS = {"image_size": 64, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4}
# Each with its class, its configuration, and what its output is of the cells' readouts.
CLASSIFIERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", VIT, "token"),
    "deit": ("DeiTForImageClassification", "DeiTConfig", VIT, "token"),
    "deit distilled": ("DeiTForImageClassificationWithTeacher", "DeiTConfig", VIT, "neither"),
    "msn": ("ViTMSNForImageClassification", "ViTMSNConfig", VIT, "token"),
    "beit": ("BeitForImageClassification", "BeitConfig", {**VIT, "use_relative_position_bias": True}, "neither"),
    "dinov2": ("Dinov2ForImageClassification", "Dinov2Config", VIT, "neither"),
    "registers": ("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig", VIT, "neither"),
    "clip": ("CLIPForImageClassification", "CLIPConfig", BOTH, "mean"),
    "siglip": ("SiglipForImageClassification", "SiglipConfig", BOTH, "mean"),
    "swin": ("SwinForImageClassification", "SwinConfig", WINDOWS, "mean"),
    "convnext": ("ConvNextForImageClassification", "ConvNextConfig", STAGES, "neither"),
    "resnet": ("ResNetForImageClassification", "ResNetConfig", {**STAGES, "embedding_size": 8}, "mean"),
    "mobilenet": (
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        {"image_size": 64, "depth_multiplier": 0.25},
        "mean",
    ),
    "mobilevit": (
        "MobileViTForImageClassification",
        "MobileViTConfig",
        {"image_size": 64, "hidden_sizes": [16, 20, 24], "neck_hidden_sizes": [8, 8, 12, 16, 20, 24, 32]},
        "mean",
    ),
}
PAIRS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "clip": ("CLIPModel", "CLIPConfig", {**BOTH, "projection_dim": 24}, "token"),
    "siglip": ("SiglipModel", "SiglipConfig", {**BOTH, "text_config": {**TEXT, "projection_size": 32}}, "neither"),
    "chinese clip": ("ChineseCLIPModel", "ChineseCLIPConfig", {**BOTH, "projection_dim": 24}, "token"),
    "blip": (
        "BlipModel",
        "BlipConfig",
        {"vision_config": VIT, "text_config": {**TEXT, "encoder_hidden_size": 32}, "projection_dim": 24},
        "token",
    ),
    "aimv2": ("Aimv2Model", "Aimv2Config", {**BOTH, "projection_dim": 24}, "neither"),
}


def classifier(name: str) -> nn.Module:
    """A classifier of one's own, of 7 classes."""
    kind, config, options, _ = CLASSIFIERS[name]
    return copy.deepcopy(_made(kind, config, _frozen({**options, "num_labels": 7})))


def pair(name: str) -> nn.Module:
    """A model of two towers of one's own."""
    kind, config, options, _ = PAIRS[name]
    return copy.deepcopy(_made(kind, config, _frozen(options)))


def small(kind: str, config: str, **options: Any) -> nn.Module:
    """Any model of transformers."""
    return built(lambda: getattr(transformers, kind)(getattr(transformers, config)(**options)))


def size_of(model: nn.Module) -> int:
    """The edge of the pictures that one of these models takes."""
    return getattr(getattr(model.config, "vision_config", model.config), "image_size", 64)


def tokenizer(given: Sequence[str] = ("input_ids", "attention_mask")) -> Any:
    """A tokenizer that knows a few words, and what it gives unless it is asked for more."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    words = Tokenizer(models.WordLevel(numbers, SPECIAL["unk_token"]))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="<start> $A <end>", special_tokens=[(mark, numbers[mark]) for mark in ("<start>", "<end>")]
    )
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_input_names=list(given), **SPECIAL)


def output_of(model: nn.Module, images: Tensor, **named: Any) -> Tensor:
    """What the model itself says of images: logits, or embeddings."""
    with torch.no_grad():
        if hasattr(model, "get_image_features"):
            return model.get_image_features(images, **named).pooler_output
        return model(images, **named).logits


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _frozen(part)) for key, part in value.items())
    return ("list", *value) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    if isinstance(value, tuple) and value and value[0] == "list":
        return list(value[1:])
    return {key: _thawed(part) for key, part in value} if isinstance(value, tuple) else value


@lru_cache(maxsize=32)
def _made(kind: str, config: str, options: Any) -> nn.Module:
    model = small(kind, config, **_thawed(options))
    return settled(model, lambda images: output_of(model, images), random_images(3, size_of(model)))
