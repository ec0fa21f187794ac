"""The sticker model: a small CLIP whose weights ship with the package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import open_clip
from open_clip.model import CLIP
from safetensors.torch import load
from torch import Tensor

from explainer.companion import TextCompanion
from explainer.encoder import EncoderError
from explainer_plugins.open_clip import OpenClip
from explainer_plugins.open_clip.encoder import OpenClipEncoder
from explainer_plugins.open_clip.encoder import build as build_open_clip
from explainer_plugins.stickers.tokenizer import tokenize, vocabulary_size
from explainer_plugins.timm.load import check_device

if TYPE_CHECKING:
    from explainer_plugins.stickers import Stickers

DATA = files("explainer_plugins.stickers") / "data"

SUITED: Mapping[str, Mapping[str, Any]] = {"gem": {"temperature": 10.0}, "self_self": {"temperature": 20.0}}
"""Settings of methods, chosen by training/stickers/suit.py on drawings of the hands that the model is trained on."""


def build(config: Stickers) -> OpenClipEncoder:
    """Load the model.

    Returns:
        The encoder.

    Raises:
        EncoderError: The weights are missing or damaged, or there is no such device.
    """
    check_device(config.device)
    described: dict[str, Any] = json.loads((DATA / "model.json").read_text(encoding="utf-8"))
    checksum = described.pop("sha256")
    described["text_cfg"]["vocab_size"] = vocabulary_size()
    clip = CLIP(**described)
    clip.load_state_dict(load(_weights(checksum)))
    clip.eval().to(config.device)
    half = (0.5, 0.5, 0.5)
    look = {"size": clip.visual.image_size, "mean": half, "std": half, "interpolation": "bicubic"}
    open_clip.set_model_preprocess_cfg(clip, look)
    encoder = build_open_clip(OpenClip.model_validate({"model": clip, "size": config.size}))
    encoder.companion = _texts(clip)
    encoder.name = "stickers"
    encoder.suited = SUITED
    encoder.weights = f"sticker scenes, sha256 {checksum[:12]}"
    return encoder


def _weights(checksum: str) -> bytes:
    file = DATA / "weights.safetensors"
    again = "install the package again: pip install --force-reinstall --no-deps vision-explainer"
    try:
        weights = file.read_bytes()
    except OSError as error:
        raise EncoderError(
            f"the weights of the sticker model, '{file}', cannot be read: {error.strerror}; {again}"
        ) from None
    found = hashlib.sha256(weights).hexdigest()
    if found != checksum:
        raise EncoderError(
            f"the weights of the sticker model, '{file}', are damaged: their sha256 is {found[:12]}..., and that of "
            f"the weights that were released is {checksum[:12]}...; {again}"
        )
    return weights


def _texts(clip: CLIP) -> TextCompanion:
    def encode(texts: list[str]) -> Tensor:
        return clip.encode_text(tokenize(texts).to(next(clip.parameters()).device))

    # Without the 80 templates of OpenAI, of which it has not learnt most words.
    return TextCompanion(clip, encode, {"plain": lambda: ("{}",), "photo": lambda: ("a photo of a {}",)})
