"""timm models: how they are loaded and named, which inputs they take, and what one of their cells means."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from huggingface_hub import constants
from oracles.helpers import random_images
from PIL import Image
from torch import Tensor, nn

import explainer
from explainer_plugins.timm import load

from .common import message, resnet, settled, small


def vit(**options: Any) -> nn.Module:
    return small("vit_tiny_patch16_224", depth=2, embed_dim=48, num_heads=3, num_classes=7, **options)


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A hub that cannot be reached, and nothing of it kept from earlier."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))


# Loading


def test_random_weights_are_told_in_the_result_and_by_the_explainer() -> None:
    ex = explainer.wrap("timm:resnet18", pretrained=False)
    e = ex(random_images(1, 64), 3)
    told = ("the weights of timm:resnet18 are random: no published weights were loaded, so its maps mean nothing",)
    assert ex.encoder.warnings == told
    assert e.warnings[:1] == told
    assert e.provenance.weights == "random"
    assert e.provenance.encoder == "timm:resnet18"
    assert repr(ex) == "<Explainer of timm:resnet18, weights: random, input 224 x 224>"
    assert f"warning      {told[0]}" in str(ex.inspect())


def test_a_module_is_taken_as_it_is() -> None:
    model = small()
    ex = explainer.wrap(model)
    assert ex.encoder.model is model
    assert (ex.encoder.name, ex.encoder.weights, ex.encoder.warnings) == ("timm:resnet18", "as given", ())


def test_a_subclass_of_a_timm_model_is_a_timm_model() -> None:
    class Mine(timm.models.ResNet):
        pass

    ex = explainer.wrap(Mine(timm.models.resnet.BasicBlock, (1, 1, 1, 1), num_classes=4))
    assert ex.encoder.name == "timm:Mine"
    assert ex.encoder.capabilities >= {"classes", "features", "gradient", "readout"}


def test_a_checkpoint_fills_the_model(tmp_path: Path) -> None:
    model, path = small(num_classes=5), tmp_path / "mine.pt"
    torch.save(model.state_dict(), path)
    ex = explainer.wrap("timm:resnet18", checkpoint=str(path), num_classes=5)
    assert ex.encoder.weights == str(path)
    assert ex.encoder.warnings == ()
    for name, tensor in ex.encoder.model.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name])


def test_a_checkpoint_of_another_architecture(tmp_path: Path) -> None:
    path = tmp_path / "other.pt"
    torch.save(vit().state_dict(), path)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' does not fit timm model 'resnet18': 102 tensors are missing (conv1.weight, "
        "bn1.weight, ...); 32 tensors are unknown (cls_token, pos_embed, ...); name the architecture that it was "
        "saved from, and its num_classes"
    )


def test_a_checkpoint_with_other_classes(tmp_path: Path) -> None:
    path = tmp_path / "seven.pt"
    torch.save(small(num_classes=7).state_dict(), path)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' does not fit timm model 'resnet18': fc.weight is [7, 512] where the model has "
        "[1000, 512], and 1 more; name the architecture that it was saved from, and its num_classes"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "EOFError: no further message"), (b"hello world" * 50, "KeyError: 101")],
)
def test_a_checkpoint_that_is_none(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.pt"
    path.write_bytes(content)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' cannot be read ({reason}); give a file written with "
        "torch.save(model.state_dict(), PATH), or a safetensors file"
    )


def test_a_checkpoint_that_holds_a_whole_model(tmp_path: Path) -> None:
    path = tmp_path / "whole.pt"
    torch.save(small(), path)
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint=str(path))) == (
        f"the checkpoint '{path}' cannot be read (it holds Python objects, not only weights); give a file written "
        "with torch.save(model.state_dict(), PATH), or a safetensors file"
    )


def test_no_checkpoint_there() -> None:
    assert message(lambda: explainer.wrap("timm:resnet18", checkpoint="nowhere.pt")) == (
        "there is no checkpoint at 'nowhere.pt'; give the path of a file"
    )


def test_an_unknown_architecture_offers_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "list_models", lambda: ["convnext_atto", "convnext_tiny", "resnet18"])
    assert message(lambda: explainer.wrap("timm:convnext_ato", pretrained=False)) == (
        "timm has no model named 'convnext_ato'; did you mean 'convnext_atto' or 'convnext_tiny'? "
        "(timm.list_models('*convne*') searches)"
    )
    assert message(lambda: explainer.wrap("timm:zzz")) == (
        "timm has no model named 'zzz' (timm.list_models('*zzz*') searches)"
    )


def test_an_unknown_tag_offers_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = ["a1_in1k", "a2_in1k", "fb_dino", *(f"other{n}" for n in range(9))]
    monkeypatch.setattr(timm, "list_pretrained", lambda pattern: [pattern.replace("*", tag) for tag in tags])
    assert message(lambda: explainer.wrap("timm:resnet18.a1")) == (
        "timm has no weights 'a1' for resnet18; did you mean 'a2_in1k' or 'a1_in1k'? (available: a1_in1k, "
        "a2_in1k, fb_dino, other0, other1, other2, other3, other4, and 4 more)"
    )


@pytest.mark.usefixtures("no_hub")
def test_published_weights_without_a_network() -> None:
    text = message(lambda: explainer.wrap("timm:resnet18"))
    assert re.fullmatch(
        r"the weights of timm model 'resnet18' could not be loaded: .+; load a local file with "
        r"checkpoint='PATH', or use pretrained=False to see the model with random weights",
        text,
    )
    assert "\n" not in text


@pytest.mark.usefixtures("no_hub")
def test_a_hub_name_without_a_network() -> None:
    text = message(lambda: explainer.wrap("timm:hf-hub:owner/name"))
    assert re.fullmatch(
        r"timm model 'hf-hub:owner/name' could not be loaded: .+; for weights in a file name an architecture and "
        r"the file: wrap\('timm:resnet50', checkpoint='PATH'\)",
        text,
    )


def test_a_host_without_an_address_is_not_asked_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client of the hub retries for most of a minute; its cache is read instead."""

    def unknown(*_: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("socket.getaddrinfo", unknown)
    with load.quick_hub():
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "http://proxy"})
    with load.quick_hub():
        assert not constants.HF_HUB_OFFLINE


def test_a_long_message_of_a_library_is_shortened_to_one_line() -> None:
    assert load.brief(ValueError("one\n  two.")) == "one two"
    assert load.brief(ValueError()) == "no further message"
    assert load.brief(ValueError("x" * 600)) == "x" * 500 + " ..."


def test_a_device_that_is_not_there() -> None:
    text = message(lambda: explainer.wrap("timm:resnet18", pretrained=False, device="cudda"))
    assert re.fullmatch(r"there is no device 'cudda' here \(Expected one of cpu, cuda, .+\); say device='cpu'", text)


@pytest.mark.parametrize(
    ("name", "value"), [("pretrained", True), ("checkpoint", "x.pt"), ("num_classes", 5), ("device", "cpu")]
)
def test_settings_of_loading_beside_a_module(name: str, value: object) -> None:
    assert message(lambda: explainer.wrap(small(), **{name: value})) == (
        f"{name}={value!r} says how a model is loaded by its name, but a module was given; leave it out"
    )


# Classes


def test_imagenet_names_come_with_the_model() -> None:
    names = explainer.wrap(small()).encoder.class_names
    assert names is not None
    assert len(names) == 1000
    assert names[281].startswith("tabby")


@pytest.mark.parametrize(
    ("tag", "count", "first"),
    [
        ("resnet18.fb_swsl_ig1b_ft_in1k", 1000, "tench"),
        ("mobilenetv3_large_100.miil_in21k", 11221, None),
        ("tiny_vit_5m_224.dist_in22k", 21841, None),
        ("convnext_nano.in12k", 11821, None),
    ],
)
def test_names_of_the_larger_imagenets(tag: str, count: int, first: str | None) -> None:
    ex = explainer.wrap(f"timm:{tag}", pretrained=False)
    names = ex.encoder.class_names
    assert names is not None
    assert len(names) == count == ex.encoder.model.num_classes
    assert all(names)
    assert first is None or names[0].startswith(first)


def test_other_numbers_of_classes_have_no_names() -> None:
    ex = explainer.wrap("timm:resnet18", pretrained=False, num_classes=5)
    assert ex.encoder.class_names is None
    assert ex.inspect().classes == 5
    e = ex(random_images(2, 64))
    assert e.names == ("top class",)
    assert all(re.fullmatch(r"class [0-4]", label) for (label,) in e.labels)
    assert message(lambda: ex(random_images(1, 64), "tabby")) == (
        "the class names of timm:resnet18 are not known, so 'tabby' cannot be looked up; give a class index "
        "(0 to 4), or the names with wrap(..., classes=[...])"
    )


def test_own_class_names() -> None:
    ex = explainer.wrap(small(num_classes=3), classes=["cat", "dog, hound", "bus"])
    assert ex(random_images(1, 64), [1, "hound", "BUS"]).names == ("dog", "hound", "BUS")


def test_too_few_class_names() -> None:
    assert message(lambda: explainer.wrap(small(num_classes=3), classes=["cat", "dog"])) == (
        "2 class names were given, but timm:resnet18 has 3 classes"
    )


def test_no_classifier() -> None:
    assert message(lambda: explainer.wrap(small(num_classes=0))) == (
        "timm:resnet18 has no classifier (num_classes=0), so it has no logits to explain; make it with a head, or "
        "load a checkpoint that has one"
    )
    assert message(lambda: explainer.wrap("timm:resnet18", num_classes=0)) == (
        "num_classes: Input should be greater than or equal to 1 (given: 0)"
    )


# Input sizes


def output(ex: explainer.Explainer, images: Tensor) -> Tensor:
    with ex.encoder.session() as hooks:
        return ex.encoder.forward(images, hooks).detach()


def literal(model: nn.Module, size: tuple[int, int], images: Tensor) -> Tensor:
    """timm's own way to another size, which changes the model for good."""
    model = copy.deepcopy(model)
    model.set_input_size(img_size=size)
    with torch.no_grad():
        return model(images)


@pytest.mark.parametrize("size", [(448, 448), (336, 448), (224, 64)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_vit_takes_other_sizes(size: tuple[int, int], dynamic: bool) -> None:
    model = vit(dynamic_img_size=dynamic)
    reference, images = copy.deepcopy(model), random_images(2, *size)
    ex = explainer.wrap(model)
    expected = literal(vit(), size, images)
    assert torch.allclose(output(ex, images), expected, atol=1e-5 * float(expected.abs().max()))
    assert ex(images, 3).maps.shape[-2:] == (size[0] // 16, size[1] // 16)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, reference.state_dict()[name])
    assert model.patch_embed.grid_size == (14, 14)


@pytest.mark.parametrize(
    ("architecture", "patch"),
    [
        ("eva02_tiny_patch14_224", 14),
        ("eva02_base_patch16_clip_224", 16),
        ("vit_small_patch16_dinov3", 16),
        ("vit_pe_core_tiny_patch16_384", 16),
        ("vit_small_patch14_reg4_dinov2", 14),
        ("deit_tiny_distilled_patch16_224", 16),
        ("vit_base_patch16_siglip_224", 16),
    ],
)
def test_relatives_of_the_vit_take_other_sizes(architecture: str, patch: int) -> None:
    options = {"img_size": 4 * patch, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 5}
    model, size = small(architecture, **options), (5 * patch, 7 * patch)
    state, images = copy.deepcopy(model.state_dict()), random_images(2, *size)
    ex = explainer.wrap(model)
    expected = literal(model, size, images)
    assert torch.allclose(output(ex, images), expected, atol=1e-5 * float(expected.abs().max()))
    assert ex(images, 3).maps.shape == (2, 1, 5, 7)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_vit_that_went_to_another_size_and_back_is_bit_identical() -> None:
    model = vit()
    ex, images = explainer.wrap(model), random_images(2, 224)
    before, maps = output(ex, images), ex(images, 3).maps
    with torch.no_grad():
        plain = model(images)
    ex(random_images(1, 448), 3)
    ex(random_images(1, 336, 448), 3)
    assert torch.equal(output(ex, images), before)
    assert torch.equal(before, plain)
    assert torch.equal(ex(images, 3).maps, maps)


@pytest.mark.parametrize("size", [(224, 224), (336, 448), (100, 61), (33, 40)])
def test_a_convolutional_network_takes_any_size(size: tuple[int, int]) -> None:
    model = resnet(num_classes=4)
    ex, images = explainer.wrap(model), random_images(2, *size)
    with torch.no_grad():
        assert torch.equal(output(ex, images), model(images))
    assert ex(images, 1).maps.shape == (2, 1, -(-size[0] // 32), -(-size[1] // 32))


def test_a_size_that_is_chosen_applies_to_pictures() -> None:
    ex = explainer.wrap(vit(), size=(64, 96))
    assert ex.encoder.preprocess.size == (64, 96)
    assert ex(Image.new("RGB", (300, 200), "red"), 1).maps.shape == (1, 1, 4, 6)


@pytest.mark.parametrize(
    "build", [{"img_size": 96}, {"img_size": (64, 96)}, {"img_size": 32, "dynamic_img_size": True}]
)
def test_a_model_built_for_another_size_is_run_at_that_size(build: dict[str, Any]) -> None:
    ex = explainer.wrap(vit(**build))
    side = build["img_size"]
    assert ex.encoder.preprocess.size == (side if isinstance(side, tuple) else (side, side))


def test_a_mixer_built_for_another_size_is_run_at_that_size() -> None:
    assert explainer.wrap(small("mixer_s32_224", img_size=96)).encoder.preprocess.size == (96, 96)


def test_a_size_that_is_no_multiple_of_the_patch() -> None:
    text = (
        "timm:vit_tiny_patch16_224 cuts its input into patches of 16 x 16, and 200 x 300 is no multiple of that; the "
        "nearest sizes are 192 x 288 and 208 x 304"
    )
    assert message(lambda: explainer.wrap(vit(), size=(200, 300))) == text
    assert message(lambda: explainer.wrap(vit())(random_images(1, 200, 300), 1)) == text


def test_a_size_that_the_model_cannot_take() -> None:
    model = small("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(2, 2), num_heads=(3, 3))
    ex = explainer.wrap(model)
    assert ex.encoder.preprocess.size == (56, 56)
    text = message(lambda: ex(random_images(1, 60), 1))
    assert re.fullmatch(
        r"timm:swin_tiny_patch4_window7_224 cannot run on an input of 60 x 60 \(\w+: .+\); say what it was made for "
        r"with wrap\(model, size=\(height, width\)\), and give tensors of that size",
        text,
    )


def test_a_vit_with_tables_of_relative_positions_takes_one_size() -> None:
    ex = explainer.wrap(small("beit_base_patch16_224", img_size=64, embed_dim=48, depth=1, num_heads=3))
    assert message(lambda: ex(random_images(1, 128), 1)) == (
        "timm:beit_base_patch16_224 cannot run on an input of 128 x 128 (AssertionError: Input height (128) doesn't "
        "match model (64)); say what it was made for with wrap(model, size=(height, width)), and give tensors of "
        "that size"
    )


# Readouts

EVA = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3}
VIT = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3}
# Architecture, options, size of the input, and what the logits are of the cells' readouts.
HEADS: dict[str, tuple[str | Callable[..., nn.Module], dict[str, Any], int, str]] = {
    "resnet": ("resnet18", {}, 64, "mean"),
    "preactivation resnet, 1x1 conv": ("resnetv2_18", {}, 64, "mean"),
    "densenet": ("densenet121", {"block_config": (1, 1, 1, 1)}, 64, "mean"),
    "efficientnet": ("efficientnet_b0", {}, 64, "mean"),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 56, "embed_dim": 24, "depths": (1, 1), "num_heads": (3, 3)},
        56,
        "mean",
    ),
    "nest, NHWC norm before an NCHW head": (
        timm.models.nest.Nest,
        {"img_size": 64, "embed_dims": (24, 24, 24), "num_heads": (3, 3, 3), "depths": (1, 1, 1)},
        64,
        "mean",
    ),
    "norm inside the classifier": ("efficientvit_m0", {"img_size": 128}, 128, "mean"),
    "norm and two heads": ("repvit_m1", {}, 64, "mean"),
    "two heads on one map": ("levit_128s", {"img_size": 128}, 128, "mean"),
    "gap vit": ("vit_tiny_patch16_224", {**VIT, "global_pool": "avg", "fc_norm": False}, 32, "mean"),
    "mixer": ("mixer_s32_224", {"img_size": 96}, 96, "mean"),
    "class token": ("vit_tiny_patch16_224", VIT, 32, "token"),
    "class token and registers": ("vit_small_patch14_reg4_dinov2", {**VIT, "img_size": 28}, 28, "token"),
    "class token of cait": ("cait_xxs24_224", {**VIT, "depth": 1}, 32, "token"),
    "two class tokens": ("deit_tiny_distilled_patch16_224", VIT, 32, "neither"),
    "norm after pooling": ("convnext_atto", {}, 64, "neither"),
    "fc_norm": ("vit_tiny_patch16_224", {**VIT, "global_pool": "avg"}, 32, "neither"),
    "fc_norm of eva": ("eva02_tiny_patch14_224", {**EVA, "img_size": 28}, 28, "neither"),
    "convolution and activation after pooling": ("mobilenetv3_small_050", {}, 64, "neither"),
    "hidden layer": (timm.models.vgg.VGG, {"cfg": (16, "M", "M", "M"), "mlp_ratio": 0.02}, 64, "neither"),
    "attention pooling": ("vit_base_patch16_siglip_224", VIT, 32, "neither"),
    "maximum": ("resnet18", {"global_pool": "max"}, 64, "neither"),
    "average and maximum": ("resnet18", {"global_pool": "avgmax"}, 64, "neither"),
}


def read_out(model: nn.Module, images: Tensor) -> tuple[explainer.Explainer, dict[str, Tensor], Tensor]:
    """The logits [B, K], and what the mean of the cells and the first token contribute to them."""
    ex = explainer.wrap(model, size=tuple(images.shape[2:]))
    encoder = ex.encoder
    last = encoder.last_map(images)
    with encoder.session() as hooks:
        tap = hooks.tap(last.layer)
        logits = encoder.forward(images, hooks).detach()
        directions = torch.eye(logits.shape[1]).expand(len(images), -1, -1)
        readout = encoder.needed_readout
        with torch.no_grad():
            found = {"mean": readout.contributions(last.grid.to_columns(tap.value), directions).mean(dim=2)}
            if last.grid.prefix:
                found["token"] = readout.contributions(tap.value[:, :1], directions)[:, :, 0]
    return ex, found, logits


@pytest.mark.parametrize("name", HEADS)
def test_exact_readouts_give_the_logits_and_others_say_that_they_do_not(name: str) -> None:
    architecture, options, side, kind = HEADS[name]
    images = random_images(3, side)
    model = small(architecture, num_classes=5, **options)
    settled(model, model, images)
    ex, found, logits = read_out(model, images)
    # The bias is what is the same for every picture.
    apart, size = logits - logits[:1], float(logits.abs().max())
    assert float(apart.abs().max()) > 1e-3 * size, "the pictures are too alike to show anything"
    fitting = [how for how, read in found.items() if (read - read[:1] - apart).abs().max() < 1e-4 * size]
    assert fitting == ([] if kind == "neither" else [kind])
    assert ex.encoder.needed_readout.exact is (kind != "neither")


@pytest.mark.parametrize("name", ["resnet", "preactivation resnet, 1x1 conv", "swin", "mixer"])
def test_mean_of_cam_plus_bias_is_the_logit(name: str) -> None:
    architecture, options, side, _ = HEADS[name]
    model = small(architecture, num_classes=5, **options)
    images, classifier = random_images(3, side), model.get_classifier()
    maps = explainer.wrap(model)(images, list(range(5)), method="cam").maps
    with torch.no_grad():
        assert torch.allclose(maps.mean(dim=(2, 3)) + classifier.bias, model(images), rtol=1e-4, atol=1e-4)


def test_a_cell_is_the_logit_of_a_picture_that_is_that_cell_everywhere() -> None:
    """Through norms and convolutions between pooling and classifier; the definition of a readout."""
    model = small("convnext_atto", num_classes=5)
    ex = explainer.wrap(model)
    cells = torch.randn(1, 4, 320, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = torch.cat([model.forward_head(cell[None, :, None, None].expand(1, -1, 3, 4)) for cell in cells[0]])
        read = ex.encoder.needed_readout.contributions(cells, torch.eye(5)[None])[0].T
    assert torch.allclose(read + model.head.fc.bias, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "options"),
    [
        ("crossvit_tiny_240", {}),
        ("efficientvim_m1", {}),
        ("pit_xs_224", {}),
    ],
)
def test_heads_that_take_something_else_than_the_last_map_have_no_readout(
    architecture: str, options: dict[str, Any]
) -> None:
    """Several maps, or a norm that only the class token goes through: cells cannot be read, and CAM says so."""
    ex = explainer.wrap(small(architecture, num_classes=5, **options))
    assert "readout" not in ex.encoder.capabilities
    assert "gradient" in ex.encoder.capabilities
    fitting = {fit.name for fit in ex.methods() if fit.fits}
    assert fitting == {"gradcam"}
    assert message(lambda: ex(random_images(1, 64), 1, method="cam")) == (
        f"method 'cam' does not fit timm:{architecture}: nothing says what one cell of its last map means for its "
        "output; methods that fit: gradcam"
    )


@pytest.mark.parametrize(
    ("architecture", "layer"),
    [("efficientvit_b0", "stages"), ("cpubone_nano", "stages"), ("mobilenetv3_small_050", "blocks")],
)
def test_the_convolutions_of_a_head_are_no_last_map(architecture: str, layer: str) -> None:
    last = explainer.wrap(small(architecture)).inspect().layer
    assert last is not None
    assert last.layer == layer
