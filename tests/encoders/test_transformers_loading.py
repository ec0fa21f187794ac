"""Models of transformers by name, and the processors that prepare their pictures."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import constants
from oracles.helpers import random_images
from PIL import Image
from torch import nn

import explainer
from explainer_plugins.transformers.preprocess import preprocess_of

from .common import message
from .small_transformers import classifier, output_of, pair, small, tokenizer

PHOTO = Path(__file__).parents[2] / "plugins/explainer_plugins/demo/photos/chelsea.jpg"
NAMES = ["tabby, tabby cat", "tiger cat", "bus", "red fox", "street", "car", "tree"]


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier as the library saves one for the hub."""
    path = tmp_path_factory.mktemp("vit")
    model = classifier("vit")
    model.config.id2label = dict(enumerate(NAMES))
    model.save_pretrained(path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}, image_mean=[0.1, 0.2, 0.3]).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CLIP with its image processor and its tokenizer."""
    path = tmp_path_factory.mktemp("clip")
    pair("clip").save_pretrained(path)
    clip_images().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def clip_images() -> Any:
    return transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


# Folders


def test_a_saved_classifier(vit: Path) -> None:
    ex = explainer.wrap(f"transformers:{vit}")
    encoder = ex.encoder
    assert (encoder.name, encoder.weights, encoder.warnings) == (f"transformers:{vit}", str(vit), ())
    assert encoder.class_names == tuple(NAMES)
    assert (encoder.preprocess.size, encoder.preprocess.fit) == ((32, 32), "squash")
    assert encoder.preprocess.mean == (0.1, 0.2, 0.3)
    images = random_images(2, 32)
    e = ex(images, ["tiger cat", 2], method="gradcam")
    assert e.names == ("tiger cat", "bus")
    assert torch.allclose(e.scores, output_of(classifier("vit"), images)[:, [1, 2]], atol=1e-5)
    assert ex(Image.new("RGB", (50, 40), "red")).maps.shape == (1, 1, 4, 4)


def test_a_saved_clip(clip: Path) -> None:
    ex = explainer.wrap(f"transformers:{clip}")
    assert (ex.encoder.warnings, ex.encoder.weights) == ((), str(clip))
    assert ex.encoder.preprocess.fit == "crop"
    images = random_images(2, 32)
    known = explainer.wrap(pair("clip"), tokenizer=tokenizer())
    for prompts in (["a bus"], ["the cat", ["red", "street"]]):
        assert torch.allclose(ex(images, prompts).maps, known(images, prompts).maps, atol=1e-6)
    assert ex(Image.new("RGB", (50, 40), "red"), ["a bus"]).maps.shape == (1, 1, 4, 4)


def test_what_is_given_beside_a_name_comes_first(clip: Path) -> None:
    processor = SimpleNamespace(image_processor=transformers.ViTImageProcessor(), tokenizer=tokenizer())
    ex = explainer.wrap(f"transformers:{clip}", processor=processor, size=48)
    assert (ex.encoder.preprocess.fit, ex.encoder.preprocess.size) == ("squash", (48, 48))
    assert ex.encoder.companion is not None


def test_parts_that_are_missing(tmp_path: Path) -> None:
    """Without its files, the library makes a tokenizer that knows no words, and says nothing."""
    pair("clip").save_pretrained(tmp_path)
    ex = explainer.wrap(f"transformers:{tmp_path}")
    name = f"transformers:{tmp_path}"
    first, second, third = ex.encoder.warnings
    assert re.fullmatch(
        f"the image processor of {name} could not be loaded, so pictures may be prepared in another way than it "
        "needs: .+",
        first,
    )
    assert second == f"the tokenizer of {name} knows no words, so it reads no prompts; give one with tokenizer=..."
    assert third == (
        f"{name} came without an image processor, so pictures are prepared as CLIPImageProcessor does by default; give "
        "the model's own with processor=AutoImageProcessor.from_pretrained(...)"
    )
    assert ex.encoder.companion is None


def test_weights_that_are_missing(vit: Path, tmp_path: Path) -> None:
    """The library fills the head with random numbers."""
    base = classifier("vit").vit
    base.config.architectures = None
    base.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((vit / "config.json").read_text())
    ex = explainer.wrap(f"transformers:{tmp_path}", processor=transformers.ViTImageProcessor())
    assert ex.encoder.warnings == (
        f"a part of transformers:{tmp_path} is random, because its weights do not hold classifier.bias, "
        "classifier.weight, so its maps mean nothing",
    )


def test_folders_that_hold_no_model(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        text = message(lambda f=folder: explainer.wrap(f"transformers:{f}"))
        assert re.fullmatch(
            f"transformers model '{folder}' could not be loaded: .+; name a model on the hub, or a folder that "
            "save_pretrained wrote",
            text,
        )
        assert "\n" not in text


def test_a_folder_without_weights(vit: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((vit / "config.json").read_text())
    text = message(lambda: explainer.wrap(f"transformers:{tmp_path}"))
    assert re.fullmatch(f"transformers model '{tmp_path}' could not be loaded: .+ save_pretrained wrote", text)


def test_a_name_on_the_hub_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    text = message(lambda: explainer.wrap("transformers:google/vit-base-patch16-224"))
    assert re.fullmatch(
        "transformers model 'google/vit-base-patch16-224' could not be loaded: .+; name a model on the hub, or a "
        "folder that save_pretrained wrote",
        text,
    )
    assert "\n" not in text


@pytest.mark.parametrize("named", [["MyVisionNet"], []])
def test_an_architecture_that_the_library_does_not_have(named: list[str], tmp_path: Path) -> None:
    model = classifier("vit")
    model.config.architectures = named
    model.config.save_pretrained(tmp_path)
    assert message(lambda: explainer.wrap(f"transformers:{tmp_path}")) == (
        f"transformers model '{tmp_path}' is of an architecture that transformers {transformers.__version__} does not "
        f"have ({'MyVisionNet' if named else 'it names none'}); load it in Python and give the module: "
        "explainer.wrap(model, processor=processor)"
    )


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert message(lambda: explainer.wrap("transformers:google/vit-base-patch16-224")) == (
        "models of transformers need the package transformers, which is not installed; run pip install "
        '"vision-explainer[transformers]"'
    )


# Pictures

PROCESSORS = {
    "squashed": transformers.ViTImageProcessor(),
    "squashed and cut": transformers.DeiTImageProcessor(),
    "cut out": transformers.CLIPImageProcessor(),
    "cut out of more": transformers.BitImageProcessor(size={"shortest_edge": 256}),
    "oblong": transformers.ViTImageProcessor(size={"height": 96, "width": 160}, resample=3),
    "a share": transformers.ConvNextImageProcessor(size={"shortest_edge": 224}),
    "large enough for no share": transformers.ConvNextImageProcessor(),
    "another share": transformers.PoolFormerImageProcessor(),
    "a share in the code": transformers.LevitImageProcessor(),
    "blue first": transformers.MobileViTImageProcessor(size={"shortest_edge": 288}),
    "from -1 to 1": transformers.EfficientNetImageProcessor(rescale_factor=1 / 127.5, rescale_offset=True),
    "as they are": transformers.ViTImageProcessor(do_rescale=False, do_normalize=False),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_pictures_are_prepared_as_the_processor_does(kind: str) -> None:
    """Up to what two implementations of resampling differ by: 2 of 255 in the worst pixel, hardly ever."""
    photo = Image.open(PHOTO).convert("RGB")
    for picture in (photo, photo.transpose(Image.Transpose.ROTATE_90)):
        preprocess = preprocess_of(PROCESSORS[kind], None, "it")
        expected = PROCESSORS[kind](images=picture, return_tensors="pt")["pixel_values"][0].float()
        found = preprocess(picture)
        assert found.shape == expected.shape
        difference = (found - expected).abs() * torch.tensor(preprocess.std)[:, None, None]
        assert difference.mean() < 1e-3
        assert difference.max() < 2.5 / 255


def test_another_size_keeps_the_share_that_is_cut_out() -> None:
    preprocess = preprocess_of(PROCESSORS["a share"], (448, 224), "it")
    assert (preprocess.size, preprocess.scaled) == ((448, 224), (512, 256))


def test_a_processor_that_does_something_else() -> None:
    """This one keeps the shape of a picture. Tensors are still explained."""
    processor = transformers.ViTImageProcessor(do_resize=False)
    ex = explainer.wrap(classifier("vit"), processor=processor, size=32)
    assert message(lambda: ex(Image.new("RGB", (32, 32)))) == (
        "the image processor of transformers:ViTForImageClassification, a ViTImageProcessor, prepares pictures in a "
        "way that is not understood here; run it yourself and give the tensor: processor(images=picture, "
        "return_tensors='pt')['pixel_values']"
    )
    assert ex(random_images(1, 32), 1).maps.shape == (1, 1, 4, 4)


def test_a_processor_that_gives_no_pictures() -> None:
    processor = transformers.Siglip2ImageProcessor()
    assert message(lambda: explainer.wrap(classifier("vit"), processor=processor)) == (
        "the image processor of transformers:ViTForImageClassification, a Siglip2ImageProcessor, gives no pixel_values "
        "[1, 3, H, W]; say the size of the input, wrap(model, size=(height, width)), and give prepared tensors"
    )


def test_a_module_without_a_processor() -> None:
    """The family's own defaults, at the size that the model was built for."""
    ex = explainer.wrap(classifier("convnext"))
    assert ex.encoder.preprocess.size == (64, 64)
    assert ex.encoder.warnings == (
        "transformers:ConvNextForImageClassification came without an image processor, so pictures are prepared as "
        "ConvNextImageProcessor does by default; give the model's own with "
        "processor=AutoImageProcessor.from_pretrained(...)",
    )
    assert ex(Image.new("RGB", (90, 70), "red"), 1).warnings == ex.encoder.warnings


def timm_inside() -> nn.Module:
    inside = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 48, "num_heads": 3}
    options = {"architecture": "vit_tiny_patch16_224", "model_args": inside, "num_labels": 3}
    return small("TimmWrapperForImageClassification", "TimmWrapperConfig", **options)


@pytest.mark.parametrize("make", [lambda: classifier("registers"), timm_inside])
def test_a_module_of_a_family_without_a_processor(make: Callable[[], nn.Module]) -> None:
    model = make()
    ex = explainer.wrap(model, size=32)
    assert ex.encoder.warnings == ()
    assert message(lambda: ex(Image.new("RGB", (32, 32)))) == (
        f"transformers:{type(model).__name__} came without an image processor; give the model's own with "
        "processor=AutoImageProcessor.from_pretrained(...), or give prepared tensors"
    )
    assert ex(random_images(1, 32), 1).maps.shape == (1, 1, 4, 4)


def test_a_model_that_says_nothing_of_its_pictures() -> None:
    model = small("HGNetV2ForImageClassification", "HGNetV2Config", num_labels=3)
    assert message(lambda: explainer.wrap(model)) == (
        "transformers:HGNetV2ForImageClassification came without an image processor, and its configuration names no "
        "size; give the model's own with processor=AutoImageProcessor.from_pretrained(...)"
    )
