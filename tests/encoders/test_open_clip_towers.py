"""Every kind of picture tower of open_clip: its embedding, its sizes, and what one of its cells means."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any
from unittest import mock

import open_clip
import pytest
import timm
import torch
import torch.nn.functional as F
from oracles.helpers import SMALL, TEXT, FakeTokenizer, built, clip, clip_model, random_directions, random_images
from PIL import Image
from torch import Tensor, nn

import explainer

from .common import message, settled


def coca() -> nn.Module:
    """CoCa: a pooler of 16 queries reads the tokens; its first output is the embedding."""
    vision = {**SMALL, "attentional_pool": True, "attn_pooler_queries": 16, "attn_pooler_heads": 2}
    return open_clip.CoCa(
        embed_dim=48,
        multimodal_cfg=open_clip.coca_model.MultimodalCfg(**{**TEXT, "context_length": 12, "attn_pooler_heads": 2}),
        text_cfg=open_clip.CLIPTextCfg(**TEXT, embed_cls=True, output_tokens=True),
        vision_cfg=open_clip.CLIPVisionCfg(**{**vision, "output_tokens": True}),
    )


def timm_clip(name: str, pool: str, proj: str | None, size: int, **small: Any) -> Callable[[], nn.Module]:
    """A CLIP with a timm trunk that is built smaller than open_clip's configurations allow."""

    def make() -> nn.Module:
        create = timm.create_model
        with mock.patch.object(timm, "create_model", lambda *args, **options: create(*args, **options, **small)):
            return clip({"timm_model_name": name, "timm_pool": pool, "timm_proj": proj, "image_size": size})

    return make


TINY = {"img_size": 32, "embed_dim": 48, "depth": 2, "num_heads": 3}
SWIN = {"img_size": 56, "embed_dim": 24, "depths": (1, 1), "num_heads": (3, 3)}
# Each with the size of its input and what its embedding is of the cells' readouts.
TOWERS: dict[str, tuple[Callable[[], nn.Module], int, str]] = {
    "vit": (lambda: clip(SMALL), 32, "token"),
    "vit with quickgelu": (lambda: clip(SMALL, quick_gelu=True), 32, "token"),
    "vit, average of normed tokens": (lambda: clip({**SMALL, "pool_type": "avg"}), 32, "mean"),
    "clipa": (
        lambda: clip({**SMALL, "pool_type": "avg", "final_ln_after_pool": True, "no_ln_pre": True}),
        32,
        "neither",
    ),
    "coca": (coca, 32, "neither"),
    "resnet": (
        lambda: clip({"layers": (1, 1, 1, 1), "width": 16, "head_width": 32, "image_size": 96}),
        96,
        "neither",
    ),
    "siglip": (timm_clip("vit_base_patch16_siglip_224", "map", "none", 32, **TINY), 32, "neither"),
    "pe-core": (timm_clip("vit_pe_core_tiny_patch16_384", "map", None, 32, **TINY), 32, "neither"),
    "eva": (timm_clip("eva02_base_patch16_clip_224", "token", None, 32, **TINY), 32, "token"),
    "mobileclip-b": (timm_clip("vit_base_mci_224", "token", None, 32, img_size=32, depth=1), 32, "token"),
    "relative positions": (
        timm_clip("vit_relpos_medium_patch16_cls_224", "", "linear", 32, **TINY),
        32,
        "token",
    ),
    "gap vit": (timm_clip("vit_medium_patch16_gap_256", "", "linear", 32, **TINY), 32, "mean"),
    "vitamin": (timm_clip("vitamin_small_224", "", "linear", 64, img_size=64), 64, "neither"),
    "convnext": (timm_clip("convnext_atto", "", "linear", 64), 64, "neither"),
    "convnext with an mlp": (timm_clip("convnext_atto", "", "mlp", 64), 64, "neither"),
    "mobileclip-s": (timm_clip("fastvit_t8", "avg", None, 64), 64, "mean"),
    "timm's attention pool": (timm_clip("resnet18", "abs_attn", None, 224), 224, "neither"),
    "swin": (timm_clip("swin_base_patch4_window7_224", "", "linear", 56, **SWIN), 56, "mean"),
}


@cache
def tower(name: str) -> tuple[nn.Module, int, str]:
    make, size, kind = TOWERS[name]
    model = built(make)
    return settled(model, model.encode_image, random_images(3, size)), size, kind


@pytest.mark.parametrize("name", TOWERS)
def test_the_embedding_is_that_of_encode_image(name: str) -> None:
    model, size, _ = tower(name)
    ex, images = explainer.wrap(model), random_images(2, size)
    with ex.encoder.session() as hooks:
        found = ex.encoder.forward(images, hooks).detach()
    with torch.no_grad():
        assert torch.allclose(found, model.encode_image(images), atol=1e-6)
    assert ex.encoder.preprocess.size == (size, size)


@pytest.mark.parametrize("name", TOWERS)
def test_exact_readouts_give_the_embedding_and_others_say_that_they_do_not(name: str) -> None:
    model, size, kind = tower(name)
    encoder, images = explainer.wrap(model).encoder, random_images(3, size)
    last = encoder.last_map(images)
    with encoder.session() as hooks, torch.no_grad():
        tap = hooks.tap(last.layer)
        embedding = encoder.forward(images, hooks)
        embed = encoder.needed_readout.embed
        found = {"mean": embed(last.grid.to_columns(tap.value)).mean(dim=1)}
        if last.grid.prefix:
            found["token"] = embed(tap.value[:, :1])[:, 0]
    scale = float((embedding - embedding.mean(dim=0)).abs().max())
    assert scale > 1e-3, "the pictures are too alike to show anything"
    fitting = [how for how, read in found.items() if (read - embedding).abs().max() < 1e-4 * scale]
    assert fitting == ([] if kind == "neither" else [kind])
    assert encoder.needed_readout.exact is (kind != "neither")


@pytest.mark.parametrize("name", TOWERS)
def test_every_tower_is_explained_with_prompts(name: str) -> None:
    """Every method that fits runs, at the size of the tower's own grid."""
    model, size, _ = tower(name)
    ex, images = explainer.wrap(model, tokenizer=FakeTokenizer()), random_images(2, size)
    assert ex.encoder.capabilities >= {"features", "gradient", "readout", "companion"}
    assert "classes" not in ex.encoder.capabilities
    last = ex.encoder.last_map(images)
    for fit in ex.methods():
        if fit.fits:
            e = ex(images, ["a bus", "a cat"], method=fit.name)
            assert e.maps.shape[:2] == (2, 2)
            assert e.names == ("a bus", "a cat")
            if fit.name in ("cam", "similarity"):
                assert e.maps.shape[2:] == (last.grid.height, last.grid.width)


@pytest.mark.parametrize(
    "name", ["vit", "clipa", "coca", "siglip", "pe-core", "eva", "mobileclip-b", "gap vit", "convnext", "swin"]
)
def test_a_cell_is_the_embedding_of_a_picture_that_is_that_cell_everywhere(name: str) -> None:
    """Replacing every token behind the last map by one token makes it the only thing that can be pooled."""
    model, size, _ = tower(name)
    encoder, images = explainer.wrap(model).encoder, random_images(1, size)
    last = encoder.last_map(images)
    cell = torch.randn(1, 1, last.channels, generator=torch.Generator().manual_seed(0))

    def everywhere(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Tensor:
        output = original(*args, **kwargs)
        shape = (1, -1, 1, 1) if last.grid.layout == "NCHW" else (1,) * (output.dim() - 1) + (-1,)
        return cell.reshape(shape).expand_as(output).clone()

    with encoder.session() as hooks, torch.no_grad():
        hooks.replace_forward(last.layer, everywhere)
        expected = encoder.forward(images, hooks)
        read = encoder.needed_readout.embed(cell)[:, 0]
    if name == "coca":  # gives unit length
        read = F.normalize(read, dim=-1)
    assert torch.allclose(read, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)


def test_the_readout_of_a_resnet_is_the_value_path_of_its_pool() -> None:
    model, *_ = tower("resnet")
    pool = model.visual.attnpool
    cells = torch.randn(2, 5, pool.v_proj.in_features, generator=torch.Generator().manual_seed(0))
    read = explainer.wrap(model).encoder.needed_readout
    with torch.no_grad():
        values = cells @ pool.v_proj.weight.T + pool.v_proj.bias
        assert torch.allclose(read.embed(cells), values @ pool.c_proj.weight.T + pool.c_proj.bias, atol=1e-5)


# Input sizes


@pytest.mark.parametrize("size", [(64, 64), (24, 40), (8, 16)])
def test_a_vit_takes_other_sizes(size: tuple[int, int]) -> None:
    """Positions go to the other grid as open_clip's own resize_pos_embed takes them there."""
    model = copy.deepcopy(clip_model("small"))
    state = copy.deepcopy(model.state_dict())
    images = random_images(2, *size)
    ex = explainer.wrap(model)
    with ex.encoder.session() as hooks:
        found = ex.encoder.forward(images, hooks).detach()
    other = clip({**SMALL, "image_size": size})
    open_clip.model.resize_pos_embed(resized := dict(state), other)
    other.load_state_dict(resized)
    with torch.no_grad():
        expected = other.eval().encode_image(images)
    assert torch.allclose(found, expected, atol=1e-5 * float(expected.abs().max()))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_size_and_back_is_bit_identical() -> None:
    model = clip_model("small")
    ex, images, targets = explainer.wrap(model), random_images(2, 32), random_directions(2, 48)
    before = ex(images, targets).maps
    ex(random_images(2, 64, 48), targets)
    assert torch.equal(ex(images, targets).maps, before)


@pytest.mark.parametrize("size", [(128, 96), (64, 64)])
def test_a_resnet_takes_other_sizes(size: tuple[int, int]) -> None:
    model, *_ = tower("resnet")
    e = explainer.wrap(model)(random_images(2, *size), random_directions(2, 48))
    assert e.maps.shape == (2, 2, size[0] // 32, size[1] // 32)


@pytest.mark.parametrize(
    ("name", "given", "patch", "nearest"),
    [("small", (30, 41), 8, "24 x 40 and 32 x 48"), ("small_resnet", (100, 96), 32, "96 x 96 and 128 x 96")],
)
def test_a_size_that_is_no_multiple_of_the_patch(name: str, given: tuple[int, int], patch: int, nearest: str) -> None:
    text = (
        f"open_clip:CLIP cuts its input into patches of {patch} x {patch}, and {given[0]} x {given[1]} is no "
        f"multiple of that; the nearest sizes are {nearest}"
    )
    ex = explainer.wrap(clip_model(name))
    assert message(lambda: ex(random_images(1, *given), random_directions(1, 48))) == text
    assert message(lambda: explainer.wrap(clip_model(name), size=given)(Image.new("RGB", (9, 9)))) == text


def test_a_size_that_is_chosen_applies_to_pictures() -> None:
    ex = explainer.wrap(clip_model("small"), size=(64, 96))
    assert ex(Image.new("RGB", (300, 200), "red"), random_directions(1, 48)).maps.shape == (1, 1, 8, 12)


def test_a_trunk_built_for_another_size_than_its_configuration() -> None:
    """As ViTamin-XL-384, whose configuration says 256."""
    model = built(timm_clip("eva02_base_patch16_clip_224", "token", None, 64, **TINY))
    assert model.visual.image_size == (64, 64)
    assert explainer.wrap(model).encoder.preprocess.size == (32, 32)
