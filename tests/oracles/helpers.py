"""Small members of each family with weights that hide nothing, pictures, and the comparison of maps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import open_clip
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

NORMS = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._BatchNorm)
POSITIONS = ("pos_embed", "positional_embedding")
PROJECTIONS = ("in_proj_weight", "qkv.weight", "q_proj.weight", "k_proj.weight", "v_proj.weight")


@torch.no_grad()
def perturb(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give a freshly built model weights that make every term of a formula count; in place, in eval mode.

    Fresh weights are a poor test: biases, classifiers and last norms are often zero, attention is almost
    uniform and positions hardly matter. Here q, k, v projections are at least doubled and large enough for
    peaked attention, what the blocks add to the residual is of the residual's own size, biases and norms are
    random, positions are twenty times larger (differences between ways of resizing them show), and what was
    zero or tiny gets ordinary values.
    """
    generator = torch.Generator().manual_seed(seed)
    norms = {id(m.weight) for m in model.modules() if isinstance(m, NORMS)}
    for name, p in model.named_parameters():
        if id(p) in norms:
            p.copy_(1 + _noise(p, 0.2, generator))
        elif not _scaled_weight(name, p):
            _shaken(name, p, generator)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.add_(_noise(module.running_mean, 0.1, generator))
            module.running_var.mul_(1 + _noise(module.running_var, 0.2, generator).abs())
    return model.eval()


def _noise(p: Tensor, std: float, generator: torch.Generator) -> Tensor:
    return torch.randn(p.shape, generator=generator).to(p) * std


def _scaled_weight(name: str, p: Tensor) -> bool:
    """Enlarge the matrices of attentions and MLPs; False for anything else."""
    if name.endswith(PROJECTIONS):
        p.mul_(max(2.0, 1.3 / float(p.std() * p.shape[1] ** 0.5)))
    elif name.endswith(".weight") and p.ndim == 2 and (".attn." in name or ".mlp." in name):
        p.mul_(max(1.0, 1 / float(p.std() * p.shape[1] ** 0.5)))
    else:
        return False
    return True


def _shaken(name: str, p: Tensor, generator: torch.Generator) -> None:
    """Positions, biases, layer scales and whatever is too small to be seen."""
    leaf = name.rpartition(".")[2]
    if leaf == "relative_position_bias_table":
        p.add_(_noise(p, 1, generator))
    elif leaf in POSITIONS:
        p.mul_(20).add_(_noise(p, 0.1, generator))
    elif "bias" in leaf:
        p.add_(_noise(p, 0.1, generator))
    elif p.ndim == 1 and p.numel() > 1 and p.abs().mean() < 0.2:  # layer scale
        p.copy_(0.7 + _noise(p, 0.2, generator))
    else:
        p.add_(torch.where(p.abs() < 2e-3, _noise(p, 0.02, generator), torch.zeros_like(p)))


def random_images(batch: int, height: int, width: int | None = None, seed: int = 0) -> Tensor:
    """[B, 3, H, W] standard normal noise with a bright square that sits elsewhere in every picture."""
    generator = torch.Generator().manual_seed(1000 + seed)
    images = torch.randn(batch, 3, height, width or height, generator=generator)
    for i in range(batch):
        top, left = (i * height) // (batch + 1), ((batch - i) * images.shape[3]) // (batch + 1)
        images[i, :, top : top + height // 4, left : left + images.shape[3] // 4] += 2
    return images


def random_directions(count: int, width: int, seed: int = 0) -> Tensor:
    """[T, D] unit rows."""
    generator = torch.Generator().manual_seed(2000 + seed)
    return F.normalize(torch.randn(count, width, generator=generator), dim=-1)


def built(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A model built and perturbed from a seed, leaving the global generator as it was."""
    # Built models are shared between tests, so the mode of the one that comes first must not stay in them.
    with torch.random.fork_rng(devices=[]), torch.inference_mode(False):
        torch.manual_seed(seed)
        return perturb(make(), seed)


class FakeTokenizer:
    """Texts to token numbers without a vocabulary: characters modulo 90, then an end token of 99."""

    context_length = 12

    def __call__(self, texts: str | Sequence[str]) -> Tensor:
        """LongTensor [n, context_length], padded with 0; the end token has the highest number."""
        texts = [texts] if isinstance(texts, str) else list(texts)
        length = self.context_length
        rows = torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in zip(rows, texts, strict=True):
            numbers = [*[1 + ord(c) % 90 for c in text[: length - 1]], 99]
            row[: len(numbers)] = torch.tensor(numbers)
        return rows


TEXT = {
    "context_length": FakeTokenizer.context_length,
    "vocab_size": 100,
    "width": 32,
    "heads": 2,
    "layers": 1,
}
SMALL = {"layers": 7, "width": 64, "head_width": 16, "patch_size": 8, "image_size": 32}
VIT_B_16 = {"layers": 12, "width": 768, "patch_size": 16, "image_size": 224}


def clip(vision: dict[str, Any], embed_dim: int = 48, quick_gelu: bool = False) -> nn.Module:
    """open_clip's CLIP with a given vision config and a tiny text tower."""
    model = open_clip.CLIP(
        embed_dim,
        open_clip.CLIPVisionCfg(**vision),
        open_clip.CLIPTextCfg(**TEXT),
        quick_gelu=quick_gelu,
    )
    open_clip.set_model_preprocess_cfg(
        model,
        {
            "size": model.visual.image_size,
            "mode": "RGB",
            "mean": open_clip.OPENAI_DATASET_MEAN,
            "std": open_clip.OPENAI_DATASET_STD,
            "interpolation": "bicubic",
            "resize_mode": "shortest",
            "fill_color": 0,
        },
    )
    return model


def layer_scaled_clip() -> nn.Module:
    """The small CLIP with layer scale in every block."""
    return clip({**SMALL, "ls_init_value": 0.1})


def sequence_first_clip() -> nn.Module:
    """The small CLIP with blocks that run on [N, B, C], as open_clip did before 2.26."""
    model = clip(SMALL)
    model.visual.transformer.batch_first = False
    for block in model.visual.transformer.resblocks:
        block.attn.batch_first = False
    return model


CLIPS: dict[str, Callable[[], nn.Module]] = {
    "small": lambda: clip(SMALL),
    "small_quickgelu": lambda: clip(SMALL, quick_gelu=True),
    "small_layer_scale": layer_scaled_clip,
    "small_sequence_first": sequence_first_clip,
    "small_tall": lambda: clip({**SMALL, "image_size": (48, 32)}),
    "small_resnet": lambda: clip({"layers": (1, 1, 1, 1), "width": 16, "head_width": 32, "image_size": 96}),
    "vit_b_16": lambda: clip(VIT_B_16, embed_dim=512),
    "vit_b_32": lambda: clip({**VIT_B_16, "patch_size": 32}, embed_dim=512),
    "rn50": lambda: clip({"layers": (3, 4, 6, 3), "width": 64, "image_size": 224}, embed_dim=1024),
    "timm_vit": lambda: clip(
        {
            "timm_model_name": "vit_tiny_patch16_224",
            "timm_pool": "token",
            "timm_proj": "linear",
            "image_size": 224,
        }
    ),
}

SMALL_EVA = {"img_size": 64, "embed_dim": 64, "depth": 4, "num_heads": 4}
TIMM: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("vit_tiny_patch16_224", {"img_size": 64}),
    "vit_avg": ("vit_tiny_patch16_224", {"img_size": 64, "global_pool": "avg"}),
    "vit_dynamic": ("vit_tiny_patch16_224", {"img_size": 64, "dynamic_img_size": True}),
    "vit_qk_norm": ("vit_tiny_patch16_224", {"img_size": 64, "qk_norm": True}),
    "deit_distilled": ("deit_tiny_distilled_patch16_224", {"img_size": 64}),
    "dinov2_reg": ("vit_small_patch14_reg4_dinov2", {"img_size": 56, "depth": 7}),
    "eva_rope_separate": ("eva02_base_patch16_clip_224", {**SMALL_EVA}),
    "eva_rope_fused": ("eva02_base_patch16_clip_224", {**SMALL_EVA, "qkv_fused": True}),
    "dinov3": ("vit_small_patch16_dinov3", {**SMALL_EVA}),
    "beit": ("beit_base_patch16_224", {**SMALL_EVA}),
    "resnet18": ("resnet18", {}),
    "resnet50": ("resnet50", {}),
    "small_resnet50": ("resnet50", {"layers": (1, 1, 2, 1)}),
    "resnetv2": ("resnetv2_50x1_bit", {}),
    "convnext": ("convnext_atto", {}),
    "densenet121": ("densenet121", {"block_config": (2, 3, 2, 3)}),
    "efficientnet_lite0": ("tf_efficientnet_lite0", {}),
    "regnet": ("regnetx_002", {}),
    "mixer": ("mixer_s32_224", {"img_size": 96}),
    "swin": ("swin_tiny_patch4_window7_224", {"img_size": 112, "depths": (1, 1, 2, 2)}),
}


@lru_cache(maxsize=8)
def clip_model(name: str) -> nn.Module:
    """A CLIP of `CLIPS`, perturbed. Shared between tests: copy it before changing it."""
    return built(CLIPS[name])


@lru_cache(maxsize=16)
def timm_model(name: str, classes: int = 7) -> nn.Module:
    """A classifier of `TIMM`, perturbed. Shared between tests: copy it before changing it."""
    architecture, options = TIMM[name]
    return built(lambda: timm.create_model(architecture, pretrained=False, num_classes=classes, **options))


def unfused(model: nn.Module) -> nn.Module:
    """A copy whose timm attentions form their softmax matrix instead of calling the fused kernel."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return model


def class_rows(model: nn.Module, classes: Sequence[int]) -> Tensor:
    """The classifier's weight rows [T, C] of a timm model with one linear or 1x1-conv classifier."""
    return model.get_classifier().weight.detach().flatten(1)[list(classes)]


def best_patches(similarity: Tensor) -> Tensor:
    """Number of the patch most like each target, [B, T] of maps [B, T, gh, gw]; a close race is an error."""
    first, second = similarity.flatten(2).topk(2, dim=2).values.unbind(dim=2)
    assert (first - second > 2e-4).all(), "two patches are almost equally like a target: choose other pictures"
    return similarity.flatten(2).argmax(dim=2)


def difference(maps: Tensor, expected: Tensor) -> float:
    """Largest absolute difference, in units of the largest expected value."""
    return float((maps.double() - expected.double()).abs().max() / expected.double().abs().max())


def assert_same_maps(maps: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    """Same shape, float32, finite, and equal within `tolerance` of the largest expected value."""
    assert maps.shape == expected.shape, f"maps are {tuple(maps.shape)}, expected {tuple(expected.shape)}"
    assert maps.dtype == torch.float32
    assert torch.isfinite(maps).all()
    spread = expected.flatten(2).std(dim=2)
    assert (spread > 10 * tolerance * expected.abs().max()).all(), "the expected maps are flat: the test shows nothing"
    off = difference(maps, expected)
    assert off <= tolerance, f"maps differ by {off:.2e} of the largest value, allowed {tolerance:.0e}"
