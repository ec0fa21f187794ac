"""The text tower of a transformers model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from explainer.companion import TextCompanion
from explainer.encoder import EncoderError
from explainer.target import TargetError

_NO_LIMIT = 1_000_000


def companion(model: nn.Module, tokenizer: Any) -> TextCompanion:
    """Make a companion of a model's text tower.

    Args:
        model: Has ``get_text_features``.
        tokenizer: A tokenizer of transformers.

    Raises:
        EncoderError: That is no tokenizer.
    """
    if not callable(tokenizer):
        raise EncoderError(
            "a tokenizer is what AutoTokenizer.from_pretrained(...) returns, or the tokenizer of a processor; got "
            f"{tokenizer!r}"
        )
    tower: Any = model
    length = _longest(tower, tokenizer)
    taken = inspect.signature(tower.get_text_features).parameters
    # The sigmoid loss (Zhai et al. 2023, arXiv:2303.15343) goes with texts that are filled up to one length, of which
    # the last token is read, so that filling belongs to the meaning.
    one_length = getattr(tower, "logit_bias", None) is not None
    shape = {"padding": "max_length", "max_length": length}
    padding = shape if one_length else {"padding": True, "return_attention_mask": True}

    def encode(texts: list[str]) -> Tensor:
        _check_lengths(texts, length, tokenizer)
        tokens: Any = tokenizer(texts, return_tensors="pt", **padding)
        device = next(model.parameters()).device
        given = {name: tensor.to(device) for name, tensor in tokens.items() if name in taken}
        return embedding_of(tower.get_text_features(**given))

    return TextCompanion(
        model, encode, {"plain": lambda: ("{}",), "photo": lambda: ("a photo of a {}.",), "openai": _openai}
    )


def embedding_of(output: Any) -> Tensor:
    """Find the embedding in what ``get_image_features`` or ``get_text_features`` returns, in any version.

    Raises:
        EncoderError: There is none.
    """
    found = output if isinstance(output, Tensor) else getattr(output, "pooler_output", None)
    if isinstance(found, Tensor):
        return found
    raise EncoderError(
        f"the model returns a {type(output).__name__} in which no embedding was found; give a CLIP or SigLIP of "
        "transformers"
    )


def _longest(tower: Any, tokenizer: Any) -> int | None:
    """The most tokens that both the tower and its tokenizer take; None where neither names a limit."""
    config = getattr(tower.config, "text_config", tower.config)
    # Tokenizers without a limit state an astronomical one.
    limits = (getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    return min((limit for limit in limits if limit and limit < _NO_LIMIT), default=None)


def _check_lengths(texts: Sequence[str], length: int | None, tokenizer: Any) -> None:
    for text, tokens in zip(texts, tokenizer(list(texts))["input_ids"], strict=True):
        if length is not None and len(tokens) > length:
            raise TargetError(f"the model reads {length} tokens, and the prompt '{text[:60]}...' has more; shorten it")


def _openai() -> Sequence[str]:
    import open_clip

    return tuple(template("{}") for template in open_clip.OPENAI_IMAGENET_TEMPLATES)
