"""What models of transformers are asked, and everything that is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import transformers
from oracles.helpers import FakeTokenizer, random_directions, random_images
from torch import Tensor, nn

import explainer

from .common import message, resnet
from .small_transformers import BOTH, TEXT, VIT, classifier, pair, small, tokenizer

NAMES = ["tabby, tabby cat", "tiger cat", "bus", "red fox", "street", "car", "tree"]


# Targets


def test_classes() -> None:
    ex, images = explainer.wrap(classifier("vit")), random_images(1, 32)
    assert ex.encoder.class_names is None  # LABEL_0, LABEL_1, ...
    assert message(lambda: ex(images, "bus")) == (
        "the class names of transformers:ViTForImageClassification are not known, so 'bus' cannot be looked up; give a "
        "class index (0 to 6), or the names with wrap(..., classes=[...])"
    )
    named = explainer.wrap(classifier("vit"), classes=NAMES)
    assert named(images, "red fox").names == ("red fox",)
    assert message(lambda: named(images, "a red bus")).startswith(
        "transformers:ViTForImageClassification has no class named 'a red bus'"
    )


def test_prompts() -> None:
    ex, images = explainer.wrap(pair("clip"), tokenizer=tokenizer()), random_images(1, 32)
    assert message(lambda: ex(images, 3)) == (
        "transformers:CLIPModel has no classes, so the class index 3 means nothing to it; give a prompt, such as "
        "'a bus'"
    )
    long = " ".join(["very"] * 15)
    assert message(lambda: ex(images, long)) == (
        f"the model reads 16 tokens, and the prompt '{long[:60]}...' has more; shorten it"
    )
    assert ex(images, " ".join(["very"] * 14)).maps.isfinite().all()  # with its start and its end
    assert message(lambda: explainer.wrap(pair("clip"))(images, "a bus")) == (
        "transformers:CLIPModel was wrapped without a tokenizer, so it cannot read 'a bus'; use wrap(model, "
        "tokenizer=...), or give a direction tensor"
    )


# What is refused


class Derived(transformers.ViTForImageClassification):
    """As somebody derives it."""


class Headless(transformers.ViTModel):
    """A model of somebody's own that gives no logits."""


def test_a_class_of_ones_own_is_judged_by_what_it_returns() -> None:
    config = transformers.ViTConfig(**VIT, num_labels=7)
    derived = Derived(config)
    derived.load_state_dict(classifier("vit").state_dict())
    images = random_images(1, 32)
    assert torch.equal(explainer.wrap(derived)(images, 1).maps, explainer.wrap(classifier("vit"))(images, 1).maps)
    assert message(lambda: explainer.wrap(Headless(config))) == (
        "the model returns a BaseModelOutputWithPooling in which no logits were found; wrap a module whose forward "
        "returns class logits [B, K]"
    )


@pytest.mark.parametrize(
    ("kind", "config", "options"),
    [
        ("ViTModel", "ViTConfig", VIT),
        ("ViTForMaskedImageModeling", "ViTConfig", {**VIT, "encoder_stride": 8}),
        ("Dinov2Model", "Dinov2Config", VIT),
        ("CLIPVisionModel", "CLIPVisionConfig", VIT),
        ("SiglipVisionModel", "SiglipVisionConfig", VIT),
    ],
)
def test_a_model_without_a_head(kind: str, config: str, options: dict[str, Any]) -> None:
    assert message(lambda: explainer.wrap(small(kind, config, **options))) == (
        f"transformers:{kind} gives no class logits: {kind} has no head for classes; load it with one, "
        "AutoModelForImageClassification.from_pretrained(...), or for prompts the whole CLIP or SigLIP, "
        "AutoModel.from_pretrained(...)"
    )


def test_a_model_without_a_head_is_refused_before_its_weights_are_read(tmp_path: Path) -> None:
    config = transformers.ViTConfig(**VIT)
    config.architectures = ["ViTModel"]
    config.save_pretrained(tmp_path)
    assert message(lambda: explainer.wrap(f"transformers:{tmp_path}")).startswith(
        f"transformers:{tmp_path} gives no class logits: ViTModel has no head for classes; load it with one, "
    )


def test_a_model_that_takes_no_pictures() -> None:
    assert message(lambda: explainer.wrap(small("BertModel", "BertConfig", **TEXT))) == (
        "transformers:BertModel takes no pictures: the forward of BertModel has no pixel_values; give an image "
        "classifier of transformers, or a CLIP or SigLIP"
    )


def test_a_model_that_takes_patches() -> None:
    model = small("Siglip2Model", "Siglip2Config", **{**BOTH, "vision_config": {**VIT, "num_patches": 16}})
    assert message(lambda: explainer.wrap(model)) == (
        "transformers:Siglip2Model takes patches that its processor cuts out of pictures of any shape, not pictures; "
        "use a model of its family that was trained at one size"
    )


def test_a_model_whose_tokens_lie_nowhere() -> None:
    vision = {"depths": [1, 1, 1], "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 32}
    model = small("GroupViTModel", "GroupViTConfig", vision_config=vision, text_config=TEXT)
    assert message(lambda: explainer.wrap(model)) == (
        "transformers:GroupViTModel ends in groups or latents, which lie nowhere on the picture, so it has no map; "
        "give a model whose tokens are patches"
    )


def test_two_towers_that_compare_in_another_way() -> None:
    model = pair("clip")
    del model.logit_scale
    assert message(lambda: explainer.wrap(model)) == (
        "transformers:CLIPModel has no logit_scale, so it is not known how it compares pictures with prompts; give a "
        "CLIP or SigLIP"
    )


def test_a_module_of_another_library() -> None:
    assert message(lambda: explainer.wrap(resnet(), encoder="transformers")) == (
        "this ResNet is no model of transformers; leave encoder='transformers' out, and the encoder that fits is chosen"
    )


@pytest.mark.parametrize("wrapped", [lambda model: model, lambda model: nn.Sequential(model)])
def test_weights_without_data(wrapped: Any) -> None:
    """They can be wrapped, to ask what would fit."""
    ex = explainer.wrap(wrapped(classifier("vit").to("meta")), size=32)
    assert ex.inspect().size == (32, 32)
    assert message(lambda: ex(random_images(1, 32), 1)) == (
        f"the weights of {ex.encoder.name} are on the device 'meta' and hold no data, so there is nothing to explain; "
        "load them with model.to_empty(device='cpu') and model.load_state_dict(...)"
    )


@pytest.mark.parametrize(
    ("make", "options", "text"),
    [
        (
            lambda: classifier("vit"),
            {"processor": "google/vit-base-patch16-224"},
            "a processor is what AutoProcessor or AutoImageProcessor.from_pretrained(...) returns; got "
            "'google/vit-base-patch16-224' (str)",
        ),
        (
            lambda: pair("clip"),
            {"tokenizer": "openai/clip-vit-base-patch32"},
            "a tokenizer is what AutoTokenizer.from_pretrained(...) returns, or the tokenizer of a processor; got "
            "'openai/clip-vit-base-patch32'",
        ),
        (
            lambda: classifier("vit"),
            {"tokenizer": len},
            "transformers:ViTForImageClassification is a classifier and reads no text, so it takes no tokenizer; leave "
            "it out",
        ),
        (
            lambda: pair("clip"),
            {"classes": ["bus"]},
            "transformers:CLIPModel has no classes to be named by classes=...; ask with prompts",
        ),
        (
            lambda: classifier("vit"),
            {"device": "cpu"},
            "device='cpu' says how a model is loaded by its name, but a module was given; leave it out",
        ),
    ],
)
def test_settings_that_do_not_fit(make: Any, options: dict[str, Any], text: str) -> None:
    assert message(lambda: explainer.wrap(make(), **options)) == text


# Beside other libraries


def test_a_clip_of_open_clip_whose_text_tower_is_of_transformers(tmp_path: Path) -> None:
    transformers.BertConfig(**TEXT).save_pretrained(tmp_path)
    text = open_clip.CLIPTextCfg(hf_model_name=str(tmp_path), hf_model_pretrained=False, hf_tokenizer_name="")
    vision = open_clip.CLIPVisionCfg(layers=2, width=32, head_width=8, patch_size=8, image_size=32)
    model = open_clip.CustomTextCLIP(24, vision, text).eval()

    def numbers(texts: list[str]) -> Tensor:
        return FakeTokenizer()(texts) % len(TEXT)

    ex = explainer.wrap(model, tokenizer=numbers)
    assert ex.encoder.name == "open_clip:CustomTextCLIP"
    assert isinstance(model.text.transformer, transformers.BertModel)
    e = ex(random_images(2, 32), ["a bus", "a cat"])
    assert (e.method, e.maps.shape) == ("gem", (2, 2, 4, 4))
    assert ex(random_images(2, 32), random_directions(1, 24)).maps.isfinite().all()


def test_a_part_of_a_model_of_transformers_in_ones_own_is_plain_torch() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = classifier("vit")

        def forward(self, images: Tensor) -> Tensor:
            return self.inner(images).logits

    own = Own()
    ex, images = explainer.wrap(own, size=32), random_images(1, 32)
    assert ex.encoder.name == "torch:Own"
    assert torch.allclose(ex(images, 1, method="cam").maps, explainer.wrap(own.inner)(images, 1, method="cam").maps)
