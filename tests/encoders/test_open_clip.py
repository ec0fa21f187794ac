"""CLIP models of open_clip: loading, activations, every kind of picture tower, and what one of its cells means."""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import open_clip
import pytest
import timm
import torch
import torch.nn.functional as F
from huggingface_hub import constants
from oracles.helpers import (
    SMALL,
    TEXT,
    FakeTokenizer,
    built,
    clip,
    clip_model,
    random_directions,
    random_images,
)
from PIL import Image
from torch import Tensor, nn

import explainer
from explainer_plugins.open_clip.load import needs_quick_gelu, split

from .common import message, settled

# Picture towers


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


# Loading by name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as open_clip saves one for the hub: configuration and weights."""
    path = tmp_path_factory.mktemp("saved")
    config = {
        "embed_dim": 48,
        "vision_cfg": {**SMALL, "layers": 2},
        "text_cfg": {**TEXT, "vocab_size": 49408, "context_length": 77},
    }
    preprocess = {"mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7], "interpolation": "bilinear", "resize_mode": "squash"}
    (path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocess}))
    model = open_clip.CLIP(**config)
    torch.save(model.state_dict(), path / "open_clip_pytorch_model.bin")
    return path


def test_a_saved_model_folder(folder: Path) -> None:
    ex = explainer.wrap(f"open_clip:local-dir:{folder}")
    encoder = ex.encoder
    assert (encoder.name, encoder.weights) == (f"open_clip:local-dir:{folder}", f"local-dir:{folder}")
    assert encoder.warnings == ()
    assert (encoder.preprocess.mean, encoder.preprocess.std) == ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    assert (encoder.preprocess.fit, encoder.preprocess.interpolation) == ("squash", "bilinear")
    state = torch.load(folder / "open_clip_pytorch_model.bin")
    assert all(torch.equal(tensor, state[name]) for name, tensor in encoder.model.state_dict().items())
    e = ex(Image.new("RGB", (50, 40), "red"), ["a bus"], templates="photo")
    assert e.names == ("a bus",)
    assert e.warnings == ()


def test_a_folder_without_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    """open_clip itself returns a random model."""
    (tmp_path / "open_clip_config.json").write_text((folder / "open_clip_config.json").read_text())
    text = message(lambda: explainer.wrap(f"open_clip:local-dir:{tmp_path}"))
    assert re.fullmatch(
        rf"open_clip model 'local-dir:{tmp_path}' could not be loaded: Required pretrained weights .+ could not be "
        "loaded",
        text,
    )


def test_a_folder_that_is_not_there() -> None:
    assert message(lambda: explainer.wrap("open_clip:local-dir:nowhere")) == (
        "open_clip model 'local-dir:nowhere' could not be loaded: Directory specified via 'local-dir:' schema not "
        "found: nowhere"
    )


def test_a_tag_beside_a_folder() -> None:
    assert message(lambda: explainer.wrap("open_clip:hf-hub:owner/name", pretrained="openai")) == (
        "'hf-hub:owner/name' holds its own weights, so pretrained='openai' cannot be given beside it; leave it out, "
        "or name an architecture: 'open_clip:ViT-B-16'"
    )


def without_hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))


def test_weights_on_the_hub_without_a_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without_hub(monkeypatch, tmp_path)
    text = message(lambda: explainer.wrap("open_clip:RN50/openai"))
    assert re.fullmatch(
        r"open_clip model 'RN50/openai' could not be loaded: .+; for weights in a file use pretrained='PATH', or "
        r"leave the tag out to see the model with random weights",
        text,
    )
    assert "\n" not in text
    text = message(lambda: explainer.wrap("open_clip:hf-hub:owner/name"))
    assert re.fullmatch(r"open_clip model 'hf-hub:owner/name' could not be loaded: .+", text)


class Small:
    """Stands in for open_clip.create_model: remembers what it was asked for, and gives a small model."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, Any] = {}
        monkeypatch.setattr(open_clip, "create_model", self)
        monkeypatch.setattr(open_clip, "get_tokenizer", lambda _name: FakeTokenizer())

    def __call__(self, name: str, **options: Any) -> nn.Module:
        self.asked = {"name": name, **options}
        return copy.deepcopy(clip_model("small"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Small:
    return Small(monkeypatch)


def test_a_name_without_a_tag_is_random_and_says_so(small: Small) -> None:
    ex = explainer.wrap("open_clip:ViT-B-16")
    told = "the weights of open_clip:ViT-B-16 are random: no pretrained tag was given, so its maps mean nothing"
    assert small.asked["pretrained"] is None
    assert ex.encoder.warnings == (told,)
    e = ex(random_images(1, 32), ["a bus"])
    assert e.warnings[0] == told
    assert (e.provenance.weights, e.provenance.encoder) == ("random", "open_clip:ViT-B-16")


@pytest.mark.parametrize(
    ("source", "options", "quick"),
    [
        ("ViT-B-16/openai", {}, True),
        ("ViT-B-16", {"pretrained": "dfn2b"}, True),
        ("ViT-B-16/laion2b_s34b_b88k", {}, False),
        ("ViT-B-16-quickgelu/openai", {}, False),
        ("RN50/yfcc15m", {}, True),
    ],
)
def test_the_activation_of_the_weights_is_built(
    small: Small, source: str, options: dict[str, str], quick: bool
) -> None:
    ex = explainer.wrap(f"open_clip:{source}", **options)
    name, _, tag = source.partition("/")
    assert small.asked["name"] == name
    assert small.asked["pretrained"] == (tag or options["pretrained"])
    assert small.asked["force_quick_gelu"] is quick
    assert ex.encoder.weights == (tag or options["pretrained"])
    assert ex.encoder.warnings == ()


def test_forcing_the_activation_reaches_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed on makes open_clip build QuickGELU in both towers."""
    config = {"embed_dim": 8, "vision_cfg": {**SMALL, "layers": 1}, "text_cfg": TEXT}
    monkeypatch.setattr(open_clip.factory, "get_model_config", lambda _name: copy.deepcopy(config))
    model = open_clip.create_model("ViT-B-16", force_quick_gelu=True)
    assert isinstance(model.visual.transformer.resblocks[0].mlp.gelu, open_clip.transformer.QuickGELU)
    assert isinstance(model.transformer.resblocks[0].mlp.gelu, open_clip.transformer.QuickGELU)


QUICK = {
    "RN50": {"openai", "yfcc15m", "cc12m"},
    "RN101": {"openai", "yfcc15m"},
    "RN50x4": {"openai"},
    "RN50x16": {"openai"},
    "RN50x64": {"openai"},
    "ViT-B-32": {"openai", "laion400m_e31", "laion400m_e32", "metaclip_400m", "metaclip_fullcc"},
    "ViT-B-16": {"openai", "dfn2b", "metaclip_400m", "metaclip_fullcc"},
    "ViT-L-14": {"openai", "dfn2b", "metaclip_400m", "metaclip_fullcc"},
    "ViT-L-14-336": {"openai"},
    "ViT-H-14": {"metaclip_fullcc", "dfn5b"},
    "ViT-H-14-378": {"dfn5b"},
    "ViT-H-14-worldwide": {"metaclip2_worldwide"},
    "ViT-bigG-14": {"metaclip_fullcc"},
}
GELU_IN_QUICK = ("roberta-ViT-B-32", "laion2b_s12b_b32k")


def test_every_published_weight_is_built_with_its_own_activation() -> None:
    found: dict[str, set[str]] = {}
    for name, tag in open_clip.list_pretrained():
        if (name, tag) != GELU_IN_QUICK and needs_quick_gelu(name, tag):
            found.setdefault(name, set()).add(tag)
    assert {name: tags & QUICK.get(name, set()) for name, tags in found.items() if name in QUICK} == QUICK
    for name, tags in found.items():
        for tag in tags:
            assert open_clip.pretrained.get_pretrained_cfg(name, tag)["quick_gelu"]


@pytest.mark.usefixtures("small")
def test_weights_without_quickgelu_in_a_model_that_has_it() -> None:
    assert message(lambda: explainer.wrap("open_clip:" + "/".join(GELU_IN_QUICK))) == (
        "roberta-ViT-B-32 computes with QuickGELU, but the weights 'laion2b_s12b_b32k' were trained with GELU, so its "
        "features would be wrong; load them into a model of your own and use wrap(model, tokenizer=...)"
    )


@pytest.mark.usefixtures("small")
def test_weights_without_quickgelu_where_the_plain_model_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("explainer_plugins.open_clip.load.list_pretrained_tags_by_model", lambda _: ["plain"])
    monkeypatch.setattr("explainer_plugins.open_clip.load.get_pretrained_cfg", lambda *_: {"quick_gelu": False})
    assert message(lambda: explainer.wrap("open_clip:ViT-B-32-quickgelu/plain")) == (
        "ViT-B-32-quickgelu computes with QuickGELU, but the weights 'plain' were trained with GELU, so its features "
        "would be wrong; use 'ViT-B-32/plain'"
    )


def test_an_unknown_architecture_offers_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_clip, "list_models", lambda: ["ViT-B-16", "ViT-B-32", "RN50"])
    assert message(lambda: explainer.wrap("open_clip:ViT-B-61")) == (
        "open_clip has no model named 'ViT-B-61'; did you mean 'ViT-B-16' or 'ViT-B-32'? (open_clip.list_models() "
        "lists all)"
    )
    assert message(lambda: explainer.wrap("open_clip:resnet")) == (
        "open_clip has no model named 'resnet' (open_clip.list_models() lists all)"
    )


def test_an_unknown_tag_offers_the_nearest() -> None:
    assert message(lambda: explainer.wrap("open_clip:RN50/opena1")) == (
        "open_clip has no weights 'opena1' for RN50, and there is no file of that name; did you mean 'openai'? "
        "(available: openai, yfcc15m, cc12m)"
    )
    assert message(lambda: explainer.wrap("open_clip:RN50", pretrained="nowhere.pt")) == (
        "open_clip has no weights 'nowhere.pt' for RN50, and there is no file of that name "
        "(available: openai, yfcc15m, cc12m)"
    )


def test_two_tags() -> None:
    assert message(lambda: explainer.wrap("open_clip:RN50/openai", pretrained="cc12m")) == (
        "two pretrained tags were given, 'openai' and 'cc12m'; give one"
    )
    assert split("RN50/openai", "openai") == ("RN50", "openai")
    assert split("RN50//models/mine.pt", None) == ("RN50", "/models/mine.pt")


def test_a_checkpoint_as_the_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"embed_dim": 48, "vision_cfg": {**SMALL, "layers": 1}, "text_cfg": TEXT}
    monkeypatch.setattr(open_clip.factory, "get_model_config", lambda _name: copy.deepcopy(config))
    model, path = open_clip.CLIP(**config), tmp_path / "mine.pt"
    torch.save(model.state_dict(), path)
    for ex in (
        explainer.wrap("open_clip:ViT-B-16", pretrained=str(path)),
        explainer.wrap(f"open_clip:ViT-B-16/{path}"),
    ):
        assert ex.encoder.weights == str(path)
        assert ex.encoder.warnings == ()
        state = ex.encoder.model.state_dict()
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_a_checkpoint_of_another_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"embed_dim": 48, "vision_cfg": {**SMALL, "layers": 1}, "text_cfg": TEXT}
    monkeypatch.setattr(open_clip.factory, "get_model_config", lambda _name: copy.deepcopy(config))
    path = tmp_path / "other.pt"
    torch.save(open_clip.CLIP(**{**config, "vision_cfg": {**SMALL, "layers": 2}}).state_dict(), path)
    assert message(lambda: explainer.wrap("open_clip:ViT-B-16", pretrained=str(path))) == (
        f"the checkpoint '{path}' does not fit open_clip model 'ViT-B-16': 12 tensors are unknown "
        "(visual.transformer.resblocks.1.ln_1.weight, visual.transformer.resblocks.1.ln_1.bias, ...); name the "
        "architecture that it was saved from"
    )
    path.write_bytes(b"")
    assert message(lambda: explainer.wrap("open_clip:ViT-B-16", pretrained=str(path))) == (
        f"the checkpoint '{path}' cannot be read (EOFError: no further message); give a file written with "
        "torch.save(model.state_dict(), PATH), or a safetensors file"
    )


def test_a_device_that_is_not_there() -> None:
    text = message(lambda: explainer.wrap("open_clip:RN50", device="cudda"))
    assert re.fullmatch(r"there is no device 'cudda' here \(Expected one of cpu, cuda, .+\); say device='cpu'", text)


def test_loading_leaves_the_logging_as_it_was(folder: Path) -> None:
    """open_clip writes to the root logger, which gives a root without handlers one for good."""
    root = logging.getLogger()
    before, handlers = list(root.filters), list(root.handlers)
    root.handlers.clear()
    try:
        explainer.wrap(f"open_clip:local-dir:{folder}")
        assert root.handlers == []
        assert root.filters == before
    finally:
        root.handlers[:] = handlers


# Tokenizers and modules


def test_a_tokenizer_that_cannot_be_had_is_told(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_name: str) -> None:
        raise OSError("no network\nat all.")

    monkeypatch.setattr(open_clip, "get_tokenizer", unreachable)
    ex = explainer.wrap("open_clip:ViT-B-16/openai")
    told = (
        "the tokenizer of ViT-B-16 could not be loaded, so it reads no prompts unless one is given with "
        "tokenizer=...: no network at all"
    )
    assert ex.encoder.warnings == (told,)
    assert "companion" not in ex.encoder.capabilities
    given = explainer.wrap("open_clip:ViT-B-16/openai", tokenizer=FakeTokenizer())
    assert given.encoder.warnings == ()
    assert given(random_images(1, 32), "a bus").names == ("a bus",)
    assert small.asked["name"] == "ViT-B-16"


def test_without_a_tokenizer_directions_work_and_prompts_say_what_is_missing() -> None:
    ex = explainer.wrap(clip_model("small"))
    assert ex.encoder.capabilities == {"attention", "features", "gradient", "readout"}
    assert ex(random_images(1, 32), random_directions(2, 48)).maps.shape[:2] == (1, 2)
    assert message(lambda: ex(random_images(1, 32), ["a bus"])) == (
        "open_clip:CLIP was wrapped without a tokenizer, so it cannot read 'a bus'; use wrap(model, tokenizer=...), "
        "or give a direction tensor"
    )


def test_a_tokenizer_that_is_none() -> None:
    assert message(lambda: explainer.wrap(clip_model("small"), tokenizer="ViT-B-16")) == (
        "a tokenizer is a function from a list of texts to tokens, such as open_clip.get_tokenizer('ViT-B-16'); got "
        "'ViT-B-16'"
    )


@pytest.mark.parametrize(("name", "value"), [("pretrained", "openai"), ("device", "cpu")])
def test_settings_of_loading_beside_a_module(name: str, value: str) -> None:
    assert message(lambda: explainer.wrap(clip_model("small"), **{name: value})) == (
        f"{name}='{value}' says how a model is loaded by its name, but a module was given; leave it out"
    )


def test_a_part_of_a_clip() -> None:
    assert message(lambda: explainer.wrap(clip_model("small").visual)) == (
        "this VisionTransformer is no whole CLIP: it has no encode_image and visual; wrap the model that "
        "open_clip.create_model returns, not a part of it"
    )


def test_a_clip_in_half_precision() -> None:
    model = copy.deepcopy(clip_model("small")).bfloat16()
    images = random_images(2, 32)
    e = explainer.wrap(model, tokenizer=FakeTokenizer())(images, ["a bus", "a cat"], method="similarity")
    reference = explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer())
    expected = reference(images, ["a bus", "a cat"], method="similarity")
    assert e.maps.dtype == torch.float32
    assert F.cosine_similarity(e.maps.flatten(), expected.maps.flatten(), dim=0) > 0.99
