"""The sticker model: what it is, what it refuses, and every method on it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from core.nets import snapshot
from encoders.common import message
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

import explainer
import explainer_plugins.stickers.encoder as module
from explainer.target import TargetError
from explainer.testing import assert_layout, perturb
from explainer_plugins.stickers import StickerScenes
from explainer_plugins.stickers.dataset import build
from explainer_plugins.stickers.tokenizer import tokenize

DATA = Path(module.__file__).parent / "data"
METHODS = [
    "cam", "gem", "gradcam", "key_key", "query_key", "query_query", "self_self", "similarity", "value_value",
]  # fmt: skip


@pytest.fixture(scope="module")
def ex() -> explainer.Explainer:
    return explainer.wrap("stickers")


@pytest.fixture(scope="module")
def scene() -> Image.Image:
    return build(StickerScenes())[1].picture


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The plugin's data, where it can be broken."""
    monkeypatch.setattr(module, "DATA", tmp_path)
    for name in ("model.json", "weights.safetensors"):
        shutil.copy(DATA / name, tmp_path)
    return tmp_path


def direction(ex: explainer.Explainer, target: object, templates: object = None) -> Tensor:
    (found,) = ex.encoder.resolve([target], templates)  # pyright: ignore[reportArgumentType]
    return found.direction


def test_what_it_is(ex: explainer.Explainer) -> None:
    checksum = json.loads((DATA / "model.json").read_text(encoding="utf-8"))["sha256"]
    encoder = ex.encoder
    assert encoder.name == "stickers"
    assert encoder.weights == f"sticker scenes, sha256 {checksum[:12]}"
    assert encoder.warnings == ()
    look = encoder.preprocess
    assert (look.size, look.mean, look.std, look.interpolation) == ((96, 96), (0.5,) * 3, (0.5,) * 3, "bicubic")
    assert encoder.needed_readout.exact
    assert repr(ex) == f"<Explainer of stickers, weights: sticker scenes, sha256 {checksum[:12]}, input 96 x 96>"
    assert [fit.name for fit in ex.methods() if fit.fits] == METHODS
    assert [fit.name for fit in ex.methods() if fit.default] == ["gem"]


def test_the_weights_are_those_of_the_file(ex: explainer.Explainer) -> None:
    model, file = ex.encoder.model, load_file(DATA / "weights.safetensors")
    assert {value.dtype for value in file.values()} == {torch.float16}
    assert model.state_dict().keys() == file.keys()
    for name, value in model.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, file[name].float())
    assert not any(part.training for part in model.modules())
    assert isinstance(model.visual.patch_dropout, torch.nn.Identity)


def test_the_picture_reaches_the_model_as_in_training(ex: explainer.Explainer, scene: Image.Image) -> None:
    expected = torch.from_numpy(np.array(scene)).permute(2, 0, 1).float() / 127.5 - 1
    assert torch.allclose(ex.encoder.preprocess(scene), expected, atol=1e-6)


def test_a_picture_and_words_are_compared_as_in_training(ex: explainer.Explainer, scene: Image.Image) -> None:
    model, prompts = ex.encoder.model, ["a cat", "a palm tree"]
    images = ex.encoder.preprocess(scene)[None]
    with torch.no_grad():
        seen, said = model.encode_image(images, normalize=True), model.encode_text(tokenize(prompts), normalize=True)
        expected = torch.sigmoid(seen @ said.T * model.logit_scale.exp() + model.logit_bias)
    e = ex(scene, prompts, method="gradcam")
    assert e.scores is not None
    assert torch.allclose(e.scores, seen @ said.T, atol=1e-5)
    e = ex(scene, prompts, method="gradcam", score="prob")
    assert e.scores is not None
    assert torch.allclose(e.scores, expected, atol=1e-5)


def test_its_templates(ex: explainer.Explainer) -> None:
    assert torch.equal(direction(ex, "cat"), direction(ex, "cat", "plain"))
    assert torch.equal(direction(ex, "cat", "photo"), direction(ex, "a photo of a cat"))
    with pytest.raises(TargetError) as caught:
        direction(ex, "cat", "openai")
    assert str(caught.value).startswith("'openai' is neither a set of templates (plain, photo) nor a template with one")


def test_the_names_of_targets_stay_as_they_were_asked(ex: explainer.Explainer, scene: Image.Image) -> None:
    assert ex(scene, ["cat", ["dog", "a fox"]]).names == ("cat", "dog / a fox")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_without_a_trace(ex: explainer.Explainer, scene: Image.Image, method: str) -> None:
    before = snapshot(ex.encoder.model)
    e = ex(scene, ["a cat"], method=method)
    assert snapshot(ex.encoder.model) == before
    assert e.maps.shape == (1, 1, 12, 12)
    assert bool(e.maps.isfinite().all())
    assert float(e.maps.std()) > 0
    assert e == ex(scene, ["a cat"], method=method)


@pytest.mark.parametrize("size", [(128, 160), (64, 96)])
@pytest.mark.parametrize("method", METHODS)
def test_other_sizes(size: tuple[int, int], scene: Image.Image, method: str) -> None:
    maps = explainer.wrap("stickers", size=size)(scene, ["a cat", "a dog"], method=method).maps
    assert maps.shape == (1, 2, size[0] // 8, size[1] // 8)
    assert bool(maps.isfinite().all())


def test_a_size_that_its_patches_do_not_fill(scene: Image.Image) -> None:
    assert message(lambda: explainer.wrap("stickers", size=100)(scene, "a cat")) == (
        "stickers cuts its input into patches of 8 x 8, and 100 x 100 is no multiple of that; the nearest sizes are "
        "96 x 96 and 104 x 104"
    )


@pytest.mark.parametrize("size", [None, 128])
def test_maps_lie_on_the_picture(size: int | None) -> None:
    ex = explainer.wrap("stickers")
    perturb(ex.encoder.model)
    assert_layout(ex, size)


def test_damaged_weights(data: Path) -> None:
    file = data / "weights.safetensors"
    weights = bytearray(file.read_bytes())
    weights[-1] ^= 1
    file.write_bytes(weights)
    said = message(lambda: explainer.wrap("stickers"))
    expected = json.loads((data / "model.json").read_text(encoding="utf-8"))["sha256"][:12]
    assert said.partition("their sha256 is ")[0] == f"the weights of the sticker model, '{file}', are damaged: "
    assert said.partition("..., and")[2] == (
        f" that of the weights that were released is {expected}...; install the package again: pip install "
        "--force-reinstall --no-deps vision-explainer"
    )


def test_missing_weights(data: Path) -> None:
    (data / "weights.safetensors").unlink()
    assert message(lambda: explainer.wrap("stickers")) == (
        f"the weights of the sticker model, '{data / 'weights.safetensors'}', cannot be read: No such file or "
        "directory; install the package again: pip install --force-reinstall --no-deps vision-explainer"
    )


def test_what_it_does_not_take() -> None:
    assert message(lambda: explainer.wrap("stickers:cat")) == (
        "encoder 'stickers' takes nothing after ':' (given: 'stickers:cat'); say 'stickers'"
    )
    assert message(lambda: explainer.wrap("stickers", tokenizer=len)) == (
        "tokenizer: no such setting of 'stickers' (settings: size, device)"
    )
    assert message(lambda: explainer.wrap("stickers", device="nowhere")).endswith("; say device='cpu'")
