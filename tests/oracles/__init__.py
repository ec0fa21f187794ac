"""Slow, literal oracles for the attribution methods.

Each function is a transcription of a paper's formula, loop by loop, in plain torch. Nothing here knows
the package under test; nothing here is fast, and nothing here should be made fast.
"""

from __future__ import annotations

from .attention import anchor_row, attention_rows, branch_output, plain_attention, self_self, softmax_matrix
from .cam import cam_gap, cam_tokens
from .gem import gem_open_clip, gem_timm, gem_tokens, inverse_temperature
from .gradcam import gradcam_clone
from .replaced import self_self_map, self_self_replaced
from .similarity import (
    cosine_map,
    grid_similarity_timm,
    patch_class_similarity_timm,
    patch_text_similarity_open_clip,
    patch_text_similarity_open_clip_resnet,
    patch_text_similarity_timm_tower,
)
from .towers import Tower, open_clip_tower, original_path, timm_tower

__all__ = [
    "Tower",
    "anchor_row",
    "attention_rows",
    "branch_output",
    "cam_gap",
    "cam_tokens",
    "cosine_map",
    "gem_open_clip",
    "gem_timm",
    "gem_tokens",
    "gradcam_clone",
    "grid_similarity_timm",
    "inverse_temperature",
    "open_clip_tower",
    "original_path",
    "patch_class_similarity_timm",
    "patch_text_similarity_open_clip",
    "patch_text_similarity_open_clip_resnet",
    "patch_text_similarity_timm_tower",
    "plain_attention",
    "self_self",
    "self_self_map",
    "self_self_replaced",
    "softmax_matrix",
    "timm_tower",
]
