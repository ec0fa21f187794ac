"""Models that run where no hook can follow, or through which no gradient passes: refused with the way out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from oracles.helpers import random_images
from torch import Tensor, distributed, nn

import explainer

from .common import Plain, fresh, message
from .kinds import KINDS, images, maps, model, shared, targets, wrap

every = pytest.mark.parametrize("kind", KINDS)
SIZE = (32, 32)


# Several devices or processes


@contextmanager
def one_process(folder: Any) -> Iterator[None]:
    store = distributed.FileStore(str(folder / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


@every
def test_data_parallel(kind: str) -> None:
    assert message(lambda: wrap(kind, nn.DataParallel(model(kind)))) == (
        "a DataParallel model runs in threads of its own, where hooks cannot follow; wrap model.module instead"
    )


@every
def test_a_compiled_data_parallel(kind: str) -> None:
    compiled = torch.compile(nn.DataParallel(model(kind)), backend="eager")
    assert message(lambda: explainer.wrap(compiled)) == (
        "a DataParallel model runs in threads of its own, where hooks cannot follow; wrap model.module instead"
    )


@every
def test_distributed_data_parallel(kind: str, tmp_path: Any) -> None:
    with one_process(tmp_path):
        shared = nn.parallel.DistributedDataParallel(model(kind))
        assert message(lambda: wrap(kind, shared)) == (
            "a DistributedDataParallel model waits for the other processes whenever it runs; wrap model.module instead"
        )
        assert_maps(kind, wrap(kind, shared.module))


def assert_maps(kind: str, ex: explainer.Explainer) -> None:
    assert maps(kind, ex, "cam").isfinite().all()


def test_a_part_over_several_devices() -> None:
    """As the features of a VGG are often left behind by training."""
    module = fresh(Plain)
    module.conv2 = nn.DataParallel(module.conv2)
    pictures = random_images(2, 32)
    expected = explainer.wrap(module, size=SIZE)(pictures, 1).maps  # over one device it is a module as any other
    assert torch.equal(expected, explainer.wrap(fresh(Plain), size=SIZE)(pictures, 1).maps)
    module.conv2.device_ids = [0, 1]
    assert message(lambda: explainer.wrap(module, size=SIZE)) == (
        "a DataParallel part runs in threads of its own, where hooks cannot follow; put its .module in the place of "
        "'conv2'"
    )


# Outside Python


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("how", ["script", "trace"])
@every
def test_a_scripted_model(kind: str, how: str) -> None:
    module = model(kind)
    scripted: nn.Module = torch.jit.script(module) if how == "script" else traced(kind, module)
    assert message(lambda: wrap(kind, scripted)) == (
        f"this {type(scripted).__name__} is scripted or traced, wholly or in part: it runs outside Python, where no "
        "hook can follow; wrap the model that it was made from"
    )


def traced(kind: str, module: nn.Module) -> nn.Module:
    inputs: dict[str, Any] = {"encode_image" if kind == "clip" else "forward": images(kind)}
    return torch.jit.trace_module(module, inputs, check_trace=False)


class Lazy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.LazyConv2d(4, 3), nn.LazyLinear(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.conv(x).mean(dim=(2, 3)))


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_weights_that_are_not_made_yet() -> None:
    module = Lazy()
    assert message(lambda: explainer.wrap(module, size=SIZE)) == (
        "some weights of this Lazy are not made yet, because a lazy module makes them when it first runs; run the "
        "model once on pictures"
    )
    module(random_images(1, 32))
    assert explainer.wrap(module, size=SIZE)(random_images(2, 32), 1).maps.shape == (2, 1, 30, 30)


# Quantised


def quantised(module: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)


ignored = pytest.mark.filterwarnings("ignore:.*torch.ao.quantization", "ignore:torch.quantize_per_tensor")


@ignored
@pytest.mark.parametrize("kind", ["cnn", "vit"])
def test_a_quantised_classifier(kind: str) -> None:
    """It is read as it is, but it passes no gradient on."""
    module = quantised(model(kind))
    ex = wrap(kind, module)
    found, plain = maps(kind, ex, "cam"), maps(kind, shared(kind), "cam")
    assert 0 < (found - plain).abs().max() < 0.1 * plain.abs().max()
    assert [fit.reason for fit in ex.methods() if fit.name == "gradcam"] == [
        "no gradient passes through its quantised layers"
    ]
    fitting = ", ".join(fit.name for fit in ex.methods() if fit.fits)
    assert message(lambda: ex(images(kind), targets(kind), method="gradcam")) == (
        f"method 'gradcam' does not fit {ex.encoder.name}: no gradient passes through its quantised layers; methods "
        f"that fit: {fitting}"
    )
    assert ex(images(kind)).method in fitting


@ignored
def test_a_quantised_picture_tower() -> None:
    clip = model("clip")
    clip.visual = quantised(clip.visual)
    ex = wrap("clip", clip)
    found, expected = maps("clip", ex, "gem"), maps("clip", shared("clip"), "gem")
    assert 0 < (found - expected).abs().max() < 0.2 * expected.abs().max()
    assert "gradient" not in ex.encoder.capabilities


@ignored
def test_a_text_tower_that_cannot_be_run() -> None:
    """open_clip asks a layer of its text tower for its type, and a quantised one does not tell."""
    ex = wrap("clip", quantised(model("clip")))
    assert message(lambda: ex(images("clip"), "a bus")) == (
        "the text tower of this CLIP cannot read ['a bus'] (AttributeError: 'function' object has no attribute "
        "'dtype'); check that the tokenizer is the model's own, and that the model can encode its tokens"
    )
    directions = torch.eye(48)[:2]
    assert ex(images("clip"), directions, method="cam").maps.isfinite().all()


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (torch.full((1, 12), 5000), "IndexError: index out of range in self"),
        (torch.ones(1, 30, dtype=torch.long), None),
    ],
    ids=["of another vocabulary", "of another length"],
)
def test_a_tokenizer_of_another_model(tokens: Tensor, reason: str | None) -> None:
    ex = explainer.wrap(model("clip"), tokenizer=lambda _texts, context_length=0: tokens)
    text = message(lambda: ex(images("clip"), "a bus"))
    assert text.startswith(f"the text tower of this CLIP cannot read ['a bus'] ({reason or 'RuntimeError: '}")
    assert text.endswith("); check that the tokenizer is the model's own, and that the model can encode its tokens")


# What is no model of pictures


class Several(nn.Module):
    """Takes pictures and something else."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Plain()


class Positional(Several):
    def forward(self, x: Tensor, age: Tensor, sex: Tensor) -> Tensor:
        return self.model(x) + age + sex


class Keyword(Several):
    def forward(self, x: Tensor, *, age: Tensor, **_more: Any) -> Tensor:
        return self.model(x) + age


class Optional(Several):
    def forward(self, x: Tensor, age: Tensor | None = None, *more: Tensor) -> Tensor:
        return self.model(x) if age is None else self.model(x) + age


@pytest.mark.parametrize(("make", "rest"), [(Positional, "age, sex"), (Keyword, "age")])
def test_a_model_of_several_inputs(make: Callable[[], nn.Module], rest: str) -> None:
    text = message(lambda: explainer.wrap(make(), size=SIZE))
    assert text.startswith(f"torch:{make.__name__} cannot run on an input of 32 x 32 (TypeError: ")
    assert text.endswith(
        f"); its forward takes more than the pictures ({rest}); wrap a module of your own whose forward(images) adds "
        "the rest"
    )


def test_an_input_that_may_be_left_out() -> None:
    pictures, module = random_images(2, 32), fresh(Optional)
    found = explainer.wrap(module, size=SIZE)(pictures, 1).maps
    assert torch.equal(found, explainer.wrap(module.model, size=SIZE)(pictures, 1).maps)


def convolutional(kind: Any, channels: int) -> nn.Module:
    return nn.Sequential(kind(channels, 4, 3), nn.ReLU(), nn.Flatten(2), nn.AdaptiveAvgPool1d(1), nn.Flatten())


@pytest.mark.parametrize(
    ("kind", "channels"), [(nn.Conv3d, 3), (nn.Conv3d, 1), (nn.Conv1d, 3), (nn.Conv2d, 1), (nn.Conv2d, 13)]
)
def test_a_model_of_another_input(kind: Any, channels: int) -> None:
    """Volumes, videos, signals, grey pictures, satellite bands."""
    text = message(lambda: explainer.wrap(convolutional(kind, channels), size=SIZE))
    assert text.startswith("torch:Sequential cannot run on an input of 32 x 32 (RuntimeError: ")
    assert text.endswith(
        f"); its first convolution is a {kind.__name__} of {channels} channels, and pictures are [B, 3, height, "
        "width]; wrap a module of your own whose forward(images) makes its input of them"
    )


def test_a_stem_that_folds_pixels_into_channels_is_not_blamed() -> None:
    module = nn.Sequential(nn.PixelUnshuffle(4), nn.Conv2d(48, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 3))
    assert explainer.wrap(module, size=SIZE)(random_images(2, 32), 1).maps.shape == (2, 1, 6, 6)
    text = message(lambda: explainer.wrap(module, size=(40, 40)))
    assert text.endswith(
        "; say what it was made for with wrap(model, size=(height, width)), and give tensors of that size"
    )
