"""The oracles against themselves and against the models they take apart.

Families: open_clip ViT (GELU, QuickGELU, layer scale, sequence-first blocks, tall input, timm trunk); timm
ViT (class token, average pooling, q/k norm, distilled, registers), EVA with rotation (fused and separate
projections), DINOv3, BEiT; residual, dense, mobile, BiT, Swin and Mixer classifiers for CAM.
"""

from __future__ import annotations

import copy

import pytest
import torch
from oracles import (
    attention_rows,
    branch_output,
    cam_gap,
    gem_open_clip,
    gem_timm,
    gradcam_clone,
    open_clip_tower,
    original_path,
    patch_text_similarity_open_clip,
    plain_attention,
    self_self,
    self_self_replaced,
    timm_tower,
)
from oracles.helpers import (
    TIMM,
    class_rows,
    clip_model,
    difference,
    random_directions,
    random_images,
    timm_model,
    unfused,
)
from oracles.towers import POSITIONS, Tower, additive_bias, first_norm, qkv
from torch import Tensor, nn

CLIP_VITS = ["small", "small_quickgelu", "small_layer_scale", "small_sequence_first", "small_tall"]
TIMM_VITS = ["vit", "vit_avg", "vit_qk_norm", "deit_distilled", "dinov2_reg", "eva_rope_separate"]
TIMM_VITS += ["eva_rope_fused", "dinov3", "beit"]


def clip_images(name: str) -> Tensor:
    height, width = (48, 32) if name == "small_tall" else (32, 32)
    return random_images(3, height, width)


@pytest.mark.parametrize("name", CLIP_VITS)
@torch.no_grad()
def test_original_path_is_encode_image(name: str) -> None:
    model, images = clip_model(name), clip_images(name)
    tower = open_clip_tower(model.visual, images)
    assert difference(tower.readout(original_path(tower))[:, 0], model.encode_image(images)) < 5e-6


@torch.no_grad()
def test_original_path_is_encode_image_with_a_timm_trunk() -> None:
    model, images = clip_model("timm_vit"), random_images(2, 224)
    trunk = model.visual.trunk
    tokens = trunk.head(trunk.fc_norm(trunk.norm(original_path(timm_tower(trunk, images)))))
    assert difference(model.visual.head(tokens)[:, 0], model.encode_image(images)) < 5e-6


@pytest.mark.parametrize("name", TIMM_VITS)
@torch.no_grad()
def test_original_path_is_forward_features(name: str) -> None:
    model, images = timm_model(name), random_images(3, TIMM[name][1]["img_size"])
    tower = timm_tower(model, images)
    assert difference(model.norm(original_path(tower)), model.forward_features(images)) < 5e-6
    if model.global_pool == "token" and name != "deit_distilled":
        logits = tower.readout(original_path(tower))[:, 0] @ model.head.weight.T + model.head.bias
        assert difference(logits, model(images)) < 5e-6


def eager_weights(model: nn.Module, owner: nn.Module, images: Tensor) -> Tensor:
    """The weights [B, H, N, N] that the model itself forms in one of its attentions."""
    seen: list[Tensor] = []
    if isinstance(owner, nn.MultiheadAttention):

        def ask(_module: nn.Module, args: tuple, kwargs: dict) -> tuple:
            return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

        handles = [
            owner.register_forward_pre_hook(ask, with_kwargs=True),
            owner.register_forward_hook(lambda _m, _a, output: seen.append(output[1])),
        ]
    else:
        handles = [owner.attn_drop.register_forward_pre_hook(lambda _m, args: seen.append(args[0]))]
    model(images)
    for handle in handles:
        handle.remove()
    return seen[0]


def oracle_weights(tower: Tower, block: int) -> Tensor:
    """softmax(s q k^T + bias) of one block."""
    chosen = tower.blocks[block]
    q, k, _ = qkv(chosen, first_norm(chosen, original_path(tower, block)), tower)
    return attention_rows(q, k, q.shape[-1] ** -0.5, additive_bias(chosen, tower))


@pytest.mark.parametrize("name", CLIP_VITS)
@torch.no_grad()
def test_softmax_rows_are_the_models_own_open_clip(name: str) -> None:
    model, images = clip_model(name), clip_images(name)
    mine = oracle_weights(open_clip_tower(model.visual, images), 5)
    owner = model.visual.transformer.resblocks[5].attn
    assert (mine - eager_weights(model.visual, owner, images)).abs().max() < 5e-6
    assert (mine.sum(dim=-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("name", TIMM_VITS)
@torch.no_grad()
def test_softmax_rows_are_the_models_own_timm(name: str) -> None:
    model, images = unfused(timm_model(name)), random_images(3, TIMM[name][1]["img_size"])
    mine = oracle_weights(timm_tower(model, images), 2)
    assert (mine - eager_weights(model, model.blocks[2].attn, images)).abs().max() < 5e-6
    assert mine.amax(dim=-1).mean() > 1.5 / mine.shape[-1], "attention is uniform: the weights show nothing"


@torch.no_grad()
def test_gem_oracle_reacts_to_every_option() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(2, 48, 64)
    base = gem_open_clip(model, images, directions)
    for options in (
        {"depth": 4},
        {"iterations": 0},
        {"iterations": 2},
        {"temperature": 10.0},
        *({"ensemble": e} for e in ("q", "k", "v", "qk")),
        *({"pos_interp": p} for p in POSITIONS[1:]),
    ):
        assert difference(gem_open_clip(model, images, directions, **options), base) > 1e-3, options
    assert difference(patch_text_similarity_open_clip(model, images, directions), base) > 0.1


@torch.no_grad()
def test_gem_oracle_treats_pictures_one_by_one() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(3, 32)
    together = gem_open_clip(model, images, directions)
    alone = torch.cat([gem_open_clip(model, image[None], directions) for image in images])
    assert difference(together, alone) < 5e-6


@torch.no_grad()
def test_gem_oracle_in_float64() -> None:
    """The float32 oracle keeps well within the tolerance that the package is held to."""
    model, images = timm_model("dinov2_reg"), random_images(2, 56)
    rows = class_rows(model, [1, 4])
    exact = gem_timm(copy.deepcopy(model).double(), images.double(), rows.double(), iterations=2)
    assert difference(gem_timm(model, images, rows, iterations=2), exact) < 2e-6


@torch.no_grad()
def test_self_self_by_hand() -> None:
    """Two orthogonal rows: the weights are known in closed form, and iterating keeps the symmetry."""
    p0 = torch.tensor([[[[3.0, 0.0], [0.0, 5.0]]]])
    v = torch.tensor([[[[1.0], [0.0]]]])
    near = torch.sigmoid(torch.tensor(2.0))
    assert torch.allclose(self_self(p0, v, 2.0, 0).flatten(), torch.stack([near, 1 - near]))
    a = torch.stack([near, 1 - near]) / (near**2 + (1 - near) ** 2).sqrt()
    once = torch.sigmoid(2 * (1 - 2 * a[0] * a[1]))
    assert torch.allclose(self_self(p0, v, 2.0, 1).flatten(), torch.stack([once, 1 - once]))


@torch.no_grad()
def test_attention_by_hand_is_scaled_dot_product_attention() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=generator) for _ in range(3))
    bias = torch.randn(1, 3, 5, 5, generator=generator)
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    assert torch.allclose(plain_attention(q, k, v, 0.5, bias), expected, atol=1e-6)
    assert torch.allclose(branch_output(attention_rows(q, k, 0.5, bias), v), expected, atol=1e-6)


@torch.no_grad()
def test_replacing_no_block_is_similarity() -> None:
    model, directions, images = clip_model("small"), random_directions(2, 48), random_images(2, 32)
    tower = open_clip_tower(model.visual, images)
    plain = patch_text_similarity_open_clip(model, images, directions)
    assert difference(self_self_replaced(tower, directions, "q", 1, None, 0), plain) == 0
    assert difference(self_self_replaced(tower, directions, "q", 1, None, 3), plain) > 1e-2


@pytest.mark.parametrize(
    ("name", "layout"), [("resnet18", "NCHW"), ("densenet121", "NCHW"), ("swin", "NHWC"), ("mixer", "NLC")]
)
def test_cam_averages_to_the_logit_and_is_proportional_to_gradcam(name: str, layout: str) -> None:
    model, images = timm_model(name), random_images(2, TIMM[name][1].get("img_size", 96))
    maps = cam_gap(model, images, [1, 4], layout)
    with torch.no_grad():
        logits = model(images)[:, [1, 4]] - model.get_classifier().bias[[1, 4]]
    assert (maps.mean(dim=(2, 3)) - logits).abs().max() < 5e-6 * maps.abs().max()
    layer = {"resnet18": "layer4", "densenet121": "features"}.get(name, "norm")
    signed = gradcam_clone(model, layer, images, lambda out: out[0, [1, 4]], layout, relu=False)
    assert difference(signed * maps[0, 0].numel(), maps) < 1e-5
