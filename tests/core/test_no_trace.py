"""After an explanation everything is as it was before, however it ended.

Every registered method, on a small network of each encoder (a plain CNN, a timm ViT, an open_clip CLIP), that
its user has left in a state of its own: half of it in training, some parameters frozen, some with gradients,
one attention written out, one forward replaced, hooks attached.
"""

from __future__ import annotations

import gc
import itertools
import threading
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import timm
import torch
from oracles.helpers import SMALL, FakeTokenizer, built, clip, random_images
from torch import Tensor, nn
from torch._dynamo import eval_frame
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import explainer
from core.nets import snapshot
from explainer_registry import registry

METHODS = registry().methods.names()
SIDE = 32


class Bomb(nn.Module):
    """Passes on what it gets, until it is lit."""

    lit: type[BaseException] | None = None

    def forward(self, x: Tensor) -> Tensor:
        if Bomb.lit is not None:
            raise Bomb.lit("bomb")
        return x


@contextmanager
def lit(error: type[BaseException]) -> Iterator[None]:
    Bomb.lit = error
    try:
        yield
    finally:
        Bomb.lit = None


class CNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)
        self.body = nn.Sequential(
            first, nn.BatchNorm2d(8), nn.ReLU(inplace=True), Bomb(), second, nn.ReLU(inplace=True)
        )
        self.drop, self.head = nn.Dropout(0.3), nn.Linear(12, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(self.body(x).mean(dim=(2, 3))))


def vit() -> nn.Module:
    model = timm.create_model(
        "vit_tiny_patch16_224", num_classes=5, img_size=SIDE, patch_size=8, embed_dim=32, depth=3, num_heads=2
    )
    model.blocks[1].drop_path2 = Bomb()
    model.blocks[0].attn.fused_attn = False
    model.set_grad_checkpointing(True)
    return model


def open_clip() -> nn.Module:
    model = clip({**SMALL, "layers": 3, "image_size": SIDE})
    model.visual.transformer.resblocks[1].ls_1 = Bomb()
    return model


MODELS: dict[str, Callable[[], nn.Module]] = {"cnn": CNN, "timm": vit, "open_clip": open_clip}
TARGETS = {"cnn": [1, 3], "timm": [1, 3], "open_clip": ["a bus", "a cat"]}
NONSENSE = {"cnn": ["no such class"], "timm": [99], "open_clip": [3]}
LAST = {"cnn": "body.0", "timm": "norm", "open_clip": "visual.ln_post"}


def used(kind: str) -> nn.Module:
    """A model in the state that its user has left it in."""
    model = built(MODELS[kind]).train()
    halves = list(model.modules())
    for module in halves[: len(halves) // 2]:
        module.training = False
    parameters = list(model.parameters())
    for index, parameter in enumerate(parameters):
        parameter.grad = torch.ones_like(parameter) if index % 3 == 0 else None
        parameter.requires_grad_(index % 2 == 0)
    special = model.get_submodule(LAST[kind])
    own = special.forward
    special.forward = lambda x: own(x)  # type: ignore[method-assign]
    special.register_forward_hook(lambda _module, _args, output: output * 1)
    special.register_forward_pre_hook(lambda _module, args: args)
    return model


def wrap(kind: str, model: nn.Module) -> explainer.Explainer:
    options: dict[str, Any] = {"cnn": {"size": (SIDE, SIDE)}, "open_clip": {"tokenizer": FakeTokenizer()}}
    return explainer.wrap(model, **options.get(kind, {}))


def surroundings() -> dict[str, Any]:
    """What one process or thread has only one of."""
    return {
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "function modes": _get_current_function_mode_stack(),
        "dispatch modes": _get_current_dispatch_mode_stack(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default type": torch.get_default_dtype(),
        "compiler": eval_frame._stance.stance,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "random numbers": torch.get_rng_state().tolist(),
    }


@contextmanager
def no_trace(model: nn.Module) -> Iterator[None]:
    before = snapshot(model), surroundings()
    yield
    assert snapshot(model) == before[0]
    assert surroundings() == before[1]


def fits(ex: explainer.Explainer, method: str) -> bool:
    return next(fit.fits for fit in ex.methods() if fit.name == method)


every = pytest.mark.parametrize(("kind", "method"), list(itertools.product(MODELS, METHODS)))
MODES: list[Callable[[], Any]] = [nullcontext, torch.no_grad, torch.inference_mode]


def refused(when: bool) -> Any:
    """The call of a method that does not fit is an error; it must leave no trace either."""
    return pytest.raises(explainer.ExplainerError) if when else nullcontext()


@every
def test_a_normal_run(kind: str, method: str) -> None:
    model = used(kind)
    with no_trace(model):
        ex = wrap(kind, model)
    for mode in MODES:
        with no_trace(model), mode(), refused(not fits(ex, method)):
            maps = ex(random_images(2, SIDE), TARGETS[kind], method=method).maps
            assert maps.isfinite().all()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.__name__)
@pytest.mark.parametrize("kind", MODELS)
def test_a_first_run_anywhere(kind: str, mode: Callable[[], Any]) -> None:
    model = used(kind)
    with no_trace(model), mode():
        wrap(kind, model)(random_images(2, SIDE), TARGETS[kind])


def test_every_method_was_run() -> None:
    fitting = [{fit.name for fit in wrap(kind, used(kind)).methods() if fit.fits} for kind in MODELS]
    assert set().union(*fitting) == set(METHODS)


@every
def test_a_bad_target(kind: str, method: str) -> None:
    model = used(kind)
    with no_trace(model):
        ex = wrap(kind, model)
    for _cold_then_warm in range(2):
        with no_trace(model), pytest.raises(explainer.ExplainerError):
            ex(random_images(2, SIDE), NONSENSE[kind], method=method)


@every
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_module_that_raises(kind: str, method: str, error: type[BaseException]) -> None:
    model = used(kind)
    with no_trace(model), lit(error), pytest.raises((error, explainer.ExplainerError)):
        wrap(kind, model)(random_images(2, SIDE), TARGETS[kind], method=method)
    ex = wrap(kind, model)
    fitting = fits(ex, method)
    with no_trace(model), lit(error), pytest.raises(error if fitting else explainer.ExplainerError):
        ex(random_images(2, SIDE), TARGETS[kind], method=method)
    with no_trace(model), refused(not fitting):
        ex(random_images(2, SIDE), TARGETS[kind], method=method)


class TrippedError(Exception):
    """Raised by a score."""


@every
def test_a_score_that_raises(kind: str, method: str) -> None:
    model = used(kind)

    def score(_answer: Any) -> Tensor:
        raise TrippedError

    ex = wrap(kind, model)
    scored = fits(ex, method) and "gradient" in registry().methods.get(method).needs
    for _cold_then_warm in range(2):
        with no_trace(model), pytest.raises(TrippedError if scored else explainer.ExplainerError):
            ex(random_images(2, SIDE), TARGETS[kind], method=method, score=score)


@pytest.mark.parametrize("kind", MODELS)
def test_looking_without_explaining(kind: str) -> None:
    model = used(kind)
    with no_trace(model):
        ex = wrap(kind, model)
        str(ex.inspect())
        ex.methods()
        ex.features(random_images(2, SIDE))


@pytest.mark.parametrize("kind", MODELS)
def test_a_layer_that_does_not_exist(kind: str) -> None:
    model = used(kind)
    with no_trace(model), pytest.raises(explainer.ExplainerError):
        wrap(kind, model)(random_images(2, SIDE), TARGETS[kind], method="gradcam", layer="no.such.layer")


@pytest.mark.parametrize("kind", MODELS)
def test_pictures_of_another_size(kind: str) -> None:
    model = used(kind)
    with no_trace(model):
        wrap(kind, model)(random_images(2, 48, 64), TARGETS[kind], method="gradcam")


def test_the_pictures_are_left_alone() -> None:
    images = random_images(2, SIDE)
    kept, version = images.clone(), images._version
    for kind in MODELS:
        wrap(kind, used(kind))(images, TARGETS[kind])
    assert torch.equal(images, kept)
    assert images._version == version
    assert not images.requires_grad


@pytest.mark.parametrize("shared", [True, False], ids=["one explainer", "an explainer each"])
@pytest.mark.parametrize("kind", MODELS)
def test_two_threads_explain_one_model(kind: str, shared: bool) -> None:
    model = used(kind)
    images = [random_images(2, SIDE, seed=seed) for seed in (0, 1)]
    methods = ["gradcam", "cam", "gradcam"]
    expected = [[wrap(kind, model)(each, TARGETS[kind], method=m).maps for m in methods] for each in images]
    explainers = [wrap(kind, model)] * 2 if shared else [wrap(kind, model) for _ in range(2)]
    start = threading.Barrier(2)

    def explain(index: int) -> list[Tensor]:
        start.wait(20)
        return [explainers[index](images[index], TARGETS[kind], method=method).maps for method in methods]

    with no_trace(model), ThreadPoolExecutor(2) as pool:
        found = list(pool.map(explain, range(2)))
    for ours, theirs in zip(found, expected, strict=True):
        for maps, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(maps, other)


def explain_many(kind: str, model: nn.Module, count: int) -> list[weakref.ref[Any]]:
    """Wrap a model again and again, each time for the next method that fits."""
    images = random_images(1, SIDE)
    methods = [fit.name for fit in wrap(kind, model).methods() if fit.fits]
    encoders: list[weakref.ref[Any]] = []
    for method in itertools.islice(itertools.cycle(methods), count):
        ex = wrap(kind, model)
        encoders.append(weakref.ref(ex.encoder))
        ex(images, TARGETS[kind], method=method)
    return encoders


def living() -> tuple[int, int]:
    """How many tensors, and how many objects, there are."""
    gc.collect()
    kinds = [type(each) for each in gc.get_objects()]
    return sum(issubclass(kind, Tensor) for kind in kinds), len(kinds)


@pytest.mark.parametrize(("kind", "count"), [("cnn", 100), ("timm", 27), ("open_clip", 27)])
def test_a_hundred_explainers(kind: str, count: int) -> None:
    model = used(kind)
    before = snapshot(model)
    explain_many(kind, model, 9)  # what is made once for all is made now
    tensors, objects = living()
    encoders = explain_many(kind, model, count)
    assert living()[0] == tensors
    assert living()[1] - objects < count + 20  # their weak references, and less than one object for each
    assert {gone() for gone in encoders} == {None}
    assert snapshot(model) == before


def test_memory_stays() -> None:
    model = used("cnn")
    explain_many("cnn", model, 4)
    taken: list[int] = []
    tracemalloc.start()
    for _ in range(3):
        explain_many("cnn", model, 4)
        gc.collect()
        taken.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert taken[-1] - taken[0] < 8 * 5_000, "something of every explainer is kept"


@pytest.mark.parametrize("kind", MODELS)
def test_models_are_forgotten_with_their_explainers(kind: str) -> None:
    model = used(kind)
    ex = wrap(kind, model)
    for fit in ex.methods():
        if fit.fits:
            ex(random_images(1, SIDE), TARGETS[kind], method=fit.name)
    gone = weakref.ref(model), weakref.ref(ex)
    del model, ex
    gc.collect()
    assert [each() for each in gone] == [None, None]
