"""Loading a CLIP by name, with the activation that its weights were trained with."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import open_clip
from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model
from torch import nn

from explainer.encoder import EncoderError

if TYPE_CHECKING:
    from explainer_plugins.open_clip import OpenClip

HUB = ("hf-hub:", "local-dir:")
Tokenizer = Callable[[list[str]], Any]


@dataclass(frozen=True)
class Loaded:
    """A CLIP and where it came from.

    Attributes:
        model: The model, in evaluation mode.
        tokenizer: Its tokenizer; None where that could not be had.
        weights: Tag, path, or "random".
        warnings: What the reader of a result must know.
    """

    model: nn.Module
    tokenizer: Tokenizer | None
    weights: str
    warnings: tuple[str, ...]


def load(config: OpenClip, source: str) -> Loaded:
    """Load a CLIP.

    Args:
        config: Says how.
        source: "architecture", "architecture/tag", or a hub or folder name.

    Raises:
        EncoderError: There is no such architecture or tag, or its weights cannot be had or do not fit.
    """
    name, tag = split(source, config.pretrained)
    if name.startswith(HUB):
        return _create(config, source, name, None, quick_gelu=False)
    if name not in open_clip.list_models():
        near = difflib.get_close_matches(name, open_clip.list_models(), n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        raise EncoderError(f"open_clip has no model named '{name}'{hint} (open_clip.list_models() lists all)")
    if tag is None or Path(tag).is_file():
        return _create(config, source, name, tag, quick_gelu=False)
    tags = list_pretrained_tags_by_model(name)
    if tag not in tags:
        near = difflib.get_close_matches(tag, tags, n=3, cutoff=0.4)
        hint = f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
        raise EncoderError(
            f"open_clip has no weights '{tag}' for {name}, and there is no file of that name{hint} "
            f"(available: {', '.join(tags) or 'none'})"
        )
    return _create(config, source, name, tag, quick_gelu=needs_quick_gelu(name, tag))


def split(source: str, pretrained: str | None) -> tuple[str, str | None]:
    """Split "architecture/tag"; a tag given on its own comes second.

    Raises:
        EncoderError: Two tags were given.
    """
    if source.startswith(HUB):
        return source, pretrained
    name, _, tag = source.partition("/")
    if tag and pretrained and tag != pretrained:
        raise EncoderError(f"two pretrained tags were given, '{tag}' and '{pretrained}'; give one")
    return name, tag or pretrained


def needs_quick_gelu(name: str, tag: str) -> bool:
    """Whether an architecture must be built with QuickGELU to fit the weights of a tag.

    The same network runs with either activation without an error, and its features are wrong with the other.

    Args:
        name: An architecture of open_clip.
        tag: One of its pretrained tags.

    Returns:
        True where the weights were trained with QuickGELU and the architecture's own activation is another.

    Raises:
        EncoderError: The architecture has QuickGELU and the weights were trained without it.
    """
    configured = bool((open_clip.get_model_config(name) or {}).get("quick_gelu", False))
    trained = bool(get_pretrained_cfg(name, tag).get("quick_gelu", False))
    if configured and not trained:
        plain = name.replace("-quickgelu", "")
        raise EncoderError(
            f"{name} computes with QuickGELU, but the weights '{tag}' were trained with GELU, so its features would "
            f"be wrong; use '{plain}/{tag}'"
            if plain != name
            else f"{name} computes with QuickGELU, but the weights '{tag}' were trained with GELU, so its features "
            "would be wrong; load them into a model of your own and use wrap(model, tokenizer=...)"
        )
    return trained and not configured


def _create(config: OpenClip, source: str, name: str, tag: str | None, *, quick_gelu: bool) -> Loaded:
    try:
        with _quiet():
            model = open_clip.create_model(name, pretrained=tag, force_quick_gelu=quick_gelu, device=config.device)
    except Exception as error:  # what a hub client and a loader raise is not one kind
        raise EncoderError(
            f"open_clip model '{source}' could not be loaded: {error}; for weights in a file use pretrained='PATH', "
            "or leave the tag out to see the model with random weights"
        ) from error
    warnings: list[str] = []
    if tag is None and not name.startswith(HUB):
        warnings.append(
            f"the weights of open_clip:{source} are random: no pretrained tag was given, so its maps mean nothing"
        )
    tokenizer = config.tokenizer
    if tokenizer is None:
        try:
            with _quiet():
                tokenizer = open_clip.get_tokenizer(name)
        except Exception as error:  # the tokenizer may live on a hub
            warnings.append(f"the tokenizer of {name} could not be loaded, so it reads no prompts: {error}")
    return Loaded(model.eval(), tokenizer, tag or (name if name.startswith(HUB) else "random"), tuple(warnings))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep open_clip's log lines back: what they warn of is said in the result, or as an error."""
    root = logging.getLogger()

    def keep_back(record: logging.LogRecord) -> bool:
        return "open_clip" not in record.pathname

    root.addFilter(keep_back)
    try:
        yield
    finally:
        root.removeFilter(keep_back)


