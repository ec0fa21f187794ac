"""Every kind of timm model at other sizes, against the model that timm itself sets to that size."""

from __future__ import annotations

import copy
import gc
import hashlib
import warnings
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from oracles.helpers import perturb, random_images
from torch import Tensor, nn

import explainer
from explainer.hooks import HookManager, named_modules
from explainer.positions import interpolate
from explainer_plugins.timm import twin

from .common import small

Size = tuple[int, int]
VIT = {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 3, "num_classes": 5}
SWIN = {"img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (1, 2), "num_heads": (2, 4), "num_classes": 5}
MAXVIT = {"img_size": 64, "embed_dim": (32, 64), "depths": (1, 1), "num_classes": 5}
# Each with its options and the pixels that a cell of its last map stands for.
KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "vit": ("vit_tiny_patch16_224", VIT, 16),
    "vit, distilled": ("deit_tiny_distilled_patch16_224", VIT, 16),
    "vit behind convolutions": ("vit_tiny_r_s16_p8_224", {**VIT, "embed_dim": 192}, 32),
    "vit behind a stem": ("vit_base_mci_224", {"img_size": 64, "depth": 1, "num_classes": 5}, 16),
    "vitamin": ("vitamin_small_224", {"img_size": 64, "num_classes": 5}, 16),
    "beit": ("beit_base_patch16_224", VIT, 16),
    "beit, one table and positions": (
        "beit_base_patch16_224",
        {**VIT, "use_rel_pos_bias": False, "use_shared_rel_pos_bias": True, "use_abs_pos_emb": True},
        16,
    ),
    "relative positions from an mlp": ("vit_relpos_medium_patch16_224", VIT, 16),
    "one mlp for all blocks": ("vit_srelpos_small_patch16_224", VIT, 16),
    "eva02": ("eva02_tiny_patch14_224", {**VIT, "img_size": 56}, 14),
    "mixed rotary positions": ("vit_small_patch16_rope_mixed_224", VIT, 16),
    "dinov3": ("vit_small_patch16_dinov3", VIT, 16),
    "swin": ("swin_tiny_patch4_window7_224", SWIN, 8),
    "swin, always in windows": ("swin_tiny_patch4_window7_224", {**SWIN, "always_partition": True}, 8),
    "swin v2": ("swinv2_tiny_window8_256", SWIN, 8),
    "swin v2 cr": ("swinv2_cr_tiny_224", SWIN, 8),
    "maxvit": ("maxvit_rmlp_pico_rw_256", {**MAXVIT, "block_type": ("M", "M")}, 8),
    "maxvit of tensorflow": ("maxvit_tiny_tf_224", {**MAXVIT, "block_type": ("M", "M")}, 8),
    "maxvit in parallel": ("maxvit_tiny_pm_256", {**MAXVIT, "block_type": ("PM", "PM")}, 8),
    "coatnet": ("coatnet_nano_rw_224", {**MAXVIT, "block_type": ("C", "T")}, 8),
}
# Those whose set_input_size interpolates weights.
TABLES = ("vit", "beit", "beit, one table and positions", "swin", "maxvit of tensorflow", "coatnet")


def model_of(kind: str) -> nn.Module:
    name, options, _ = KINDS[kind]
    return small(name, **options)


def sides(kind: str) -> tuple[int, Size]:
    """The edge that a kind is built for, and a rectangle that fits it."""
    edge = KINDS[kind][1]["img_size"]
    return edge, (edge * 3 // 2, edge * 2)


def output(encoder: explainer.Encoder, images: Tensor, positions: Any = "bicubic_antialias") -> Tensor:
    with encoder.session() as hooks, torch.no_grad():
        return encoder.forward(images, hooks, positions)


def resized(model: nn.Module, size: Size) -> Callable[[Tensor], Tensor]:
    """The model as timm itself sets it to a size, for good."""
    other = copy.deepcopy(model)
    resize(other, size)
    return torch.no_grad()(other)


def resize(model: nn.Module, size: Size) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has something to say on how timm interpolates tables
        model.set_input_size(img_size=size)


def close(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def traces(model: nn.Module) -> tuple[Any, ...]:
    """All that a model consists of: which objects, in which order, and what is in them."""
    held = [
        (path, name, id(value), repr(value) if isinstance(value, str | int | tuple | dict) else None)
        for path, module in named_modules(model).items()
        for store in (vars(module), *(vars(module)[kind] for kind in ("_parameters", "_buffers", "_modules")))
        for name, value in store.items()
        if name not in ("_parameters", "_buffers", "_modules")
    ]
    tensors = (*model.state_dict().items(), *model.named_buffers())
    return held, [(name, hashlib.sha256(tensor.numpy().tobytes()).digest()) for name, tensor in tensors]


@pytest.mark.parametrize("kind", KINDS)
def test_another_size_is_as_timm_sets_it_and_leaves_no_trace(kind: str) -> None:
    """A rectangle and its own size, in turns: the same numbers as timm's, the same bits each time."""
    model, (edge, size), cell = model_of(kind), sides(kind), KINDS[kind][2]
    own, images = random_images(1, edge), random_images(1, *size)
    before, expected = traces(model), resized(model, size)(images)
    with torch.no_grad():
        plain = model(own)
    ex = explainer.wrap(model)
    found = [output(ex.encoder, given) for given in (own, images, own, images)]
    assert torch.equal(found[0], plain)
    assert torch.equal(found[2], plain)
    assert close(found[1], expected)
    assert torch.equal(found[1], found[3])
    grid = ex.encoder.last_map(images).grid
    assert (grid.height, grid.width) == (size[0] // cell, size[1] // cell)
    turned = ex.encoder.last_map(images.mT).grid
    assert (turned.height, turned.width) == (grid.width, grid.height)
    assert traces(model) == before


@pytest.mark.parametrize("kind", [*TABLES, "relative positions from an mlp", "eva02", "swin v2", "swin v2 cr"])
def test_the_other_size_is_not_the_own_one_in_disguise(kind: str) -> None:
    """The oracle could not fail if tables and positions did not matter."""
    model, (_, size) = model_of(kind), sides(kind)
    images = random_images(1, *size)
    forward = resized(model, size)
    tall = resized(model, (size[1], size[0]))
    assert not close(forward(images), tall(images.mT))


@pytest.mark.parametrize("kind", ["vit", "swin", "eva02", "coatnet"])
def test_an_exception_leaves_no_trace(kind: str) -> None:
    model, (edge, size) = model_of(kind), sides(kind)
    ex, own = explainer.wrap(model), random_images(1, edge)
    plain = output(ex.encoder, own)
    last = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]

    def fail(*_args: Any) -> None:
        raise KeyboardInterrupt

    handle = last.register_forward_hook(fail)
    before = traces(model)
    with pytest.raises(KeyboardInterrupt):
        output(ex.encoder, random_images(1, *size))
    assert traces(model) == before
    handle.remove()
    assert torch.equal(output(ex.encoder, own), plain)


def other_weights(model: nn.Module) -> dict[str, Tensor]:
    return perturb(copy.deepcopy(model), seed=1).state_dict()


def load(model: nn.Module) -> None:
    model.load_state_dict(other_weights(model))


def overwrite(model: nn.Module) -> None:
    """As some training loops do, unseen by the version of a tensor."""
    for name, tensor in other_weights(model).items():
        model.state_dict()[name].data.copy_(tensor)


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("change", [load, overwrite, nn.Module.double, lambda m: resize(m, (32, 32))])
def test_what_a_user_changes_in_between_counts(kind: str, change: Callable[[nn.Module], Any]) -> None:
    """Interpolated tables are those of the weights, the type and the size that the model has now."""
    model, (_, size) = model_of(kind), sides(kind)
    ex, images = explainer.wrap(model), random_images(1, *size)
    first = output(ex.encoder, images)
    change(model)
    images = images.to(next(model.parameters()).dtype)
    found = output(ex.encoder, images)
    assert close(found, resized(model, size)(images))
    assert not torch.equal(found, first)


@pytest.mark.parametrize("kind", ["vit", "swin", "beit", "eva02"])
def test_several_sizes_in_one_session(kind: str) -> None:
    """Each is set from the model's own tables, not from those of the size before."""
    model, (edge, size) = model_of(kind), sides(kind)
    ex = explainer.wrap(model)
    given = [random_images(1, *s) for s in (size, (size[1], size[0]), (edge, edge), size)]
    apart = [output(ex.encoder, images) for images in given]
    with ex.encoder.session() as hooks, torch.no_grad():
        together = [ex.encoder.forward(images, hooks) for images in given]
    assert all(map(torch.equal, together, apart))


@pytest.mark.parametrize("kind", ["swin", "vit"])
def test_the_model_is_not_copied_again_at_a_size_that_is_known(kind: str) -> None:
    model, (edge, size) = model_of(kind), sides(kind)
    ex, images = explainer.wrap(model), random_images(1, *size)
    first = output(ex.encoder, images)
    with mock.patch.object(twin.copy, "deepcopy", side_effect=AssertionError("copied")):
        assert torch.equal(output(ex.encoder, images), first)
        output(ex.encoder, random_images(1, edge))
        with pytest.raises(AssertionError, match="copied"):
            output(ex.encoder, random_images(1, size[1], size[0]))


def test_what_is_remembered_does_not_keep_a_model() -> None:
    model = model_of("swin")
    ex = explainer.wrap(model)
    output(ex.encoder, random_images(1, 96))
    gone = weakref.ref(model)
    del model, ex
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", ["vit", "vit, distilled", "beit, one table and positions"])
@pytest.mark.parametrize("how", ["bilinear", "dino", "bicubic"])
def test_learned_positions_go_where_they_are_asked_to(kind: str, how: Any) -> None:
    """The table alone; what else depends on the size is timm's own."""
    model, (edge, size) = model_of(kind), sides(kind)
    images = random_images(1, *size)
    found = output(explainer.wrap(model).encoder, images, how)
    literal = copy.deepcopy(model)
    old, new = (edge // 16, edge // 16), (size[0] // 16, size[1] // 16)
    moved = interpolate(model.pos_embed, model.num_prefix_tokens, old, new, how)
    resize(literal, size)
    literal.pos_embed = nn.Parameter(moved)
    with torch.no_grad():
        assert torch.equal(found, literal(images))


# Models that take other sizes by themselves


def test_a_swin_that_was_built_to_pad_is_left_alone() -> None:
    model = small("swin_tiny_patch4_window7_224", **SWIN, strict_img_size=False)
    ex, images = explainer.wrap(model), random_images(2, 72, 100)
    with torch.no_grad():
        plain = model(images)
    assert torch.equal(output(ex.encoder, images), plain)
    assert not close(plain, resized(model, (72, 100))(images))
    assert ex(images, 1, method="cam").maps.shape[-2:] == (9, 13)


def test_window_attention_that_pads_is_left_alone() -> None:
    model = small("efficientvit_m0", depth=(1, 1, 1), num_classes=5)
    ex, images = explainer.wrap(model), random_images(1, 256, 320)
    with torch.no_grad():
        assert torch.equal(output(ex.encoder, images), model(images))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("how", ["bicubic_antialias", "dino"])
def test_a_vit_that_pads_takes_sizes_that_are_no_multiple(dynamic: bool, how: Any) -> None:
    model = small("vit_tiny_patch16_224", **VIT, dynamic_img_pad=True, dynamic_img_size=dynamic)
    ex, images = explainer.wrap(model), random_images(1, 70, 100)
    padded = torch.zeros(1, 3, 80, 112)
    padded[..., :70, :100] = images
    literal = small("vit_tiny_patch16_224", **VIT)
    moved = interpolate(literal.pos_embed, 1, (4, 4), (5, 7), how)
    resize(literal, (80, 112))
    literal.pos_embed = nn.Parameter(moved)
    with torch.no_grad():
        assert close(output(ex.encoder, images, how), literal(padded))
    grid = ex.encoder.last_map(images).grid
    assert (grid.height, grid.width) == (5, 7)


def test_a_compiled_model() -> None:
    model, (_, size) = model_of("swin"), sides("swin")
    expected = resized(model, size)(images := random_images(1, *size))
    assert close(output(explainer.wrap(torch.compile(model), encoder="timm").encoder, images), expected)


# The manager of what is set anew for each pass


def test_changes_of_one_owner_are_made_afresh() -> None:
    model = nn.Linear(2, 2)
    with HookManager(model) as hooks:
        hooks.set(model, "kept", 1)
        first = hooks.afresh(model)
        first.set(model, "size", 1)
        hooks.afresh("another").set(model, "other", 2)
        assert hooks.afresh(model) is first
        assert not hasattr(model, "size")
        first.set(model, "size", 3)
        assert (model.kept, model.size, model.other) == (1, 3, 2)
    assert not {"kept", "size", "other"} & set(vars(model))
    with hooks:
        assert hooks.afresh(model) is not first
