"""CLIP models of open_clip: loading, activations and tokenizers."""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
import torch.nn.functional as F
from huggingface_hub import constants
from oracles.helpers import SMALL, TEXT, FakeTokenizer, clip_model, random_directions, random_images
from PIL import Image
from torch import nn

import explainer
from explainer_plugins.open_clip.load import needs_quick_gelu, split

from .common import message


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
    assert ex.encoder.capabilities == {"attention", "features", "gradient", "readout", "stream"}
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


def lower(model: nn.Module) -> nn.Module:
    """As open_clip.create_model(precision="bf16"): weights are halved, norms, tokens and positions are not."""
    open_clip.convert_weights_to_lp(model, dtype=torch.bfloat16)
    assert model.visual.conv1.weight.dtype == torch.bfloat16
    assert next(model.parameters()).dtype == torch.float32
    return model


@pytest.mark.parametrize("change", [nn.Module.bfloat16, lower])
def test_a_clip_in_half_precision(change: Callable[[nn.Module], nn.Module]) -> None:
    model = change(copy.deepcopy(clip_model("small")))
    images = random_images(2, 32)
    e = explainer.wrap(model, tokenizer=FakeTokenizer())(images, ["a bus", "a cat"], method="similarity")
    reference = explainer.wrap(clip_model("small"), tokenizer=FakeTokenizer())
    expected = reference(images, ["a bus", "a cat"], method="similarity")
    assert e.maps.dtype == torch.float32
    assert F.cosine_similarity(e.maps.flatten(), expected.maps.flatten(), dim=0) > 0.99
