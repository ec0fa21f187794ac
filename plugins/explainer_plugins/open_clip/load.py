"""Loading a CLIP by name, with the activation that its weights were trained with."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import open_clip
from open_clip.pretrained import get_pretrained_cfg, list_pretrained_tags_by_model
from torch import nn

from explainer.encoder import EncoderError
from explainer_plugins.timm.load import brief, check_device, misfit, quick_hub, unreadable

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
    check_device(config.device)
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
        EncoderError: Two tags were given, or one beside a hub or folder that holds its own weights.
    """
    if source.startswith(HUB):
        if pretrained is not None:
            raise EncoderError(
                f"'{source}' holds its own weights, so pretrained='{pretrained}' cannot be given beside it; leave it "
                "out, or name an architecture: 'open_clip:ViT-B-16'"
            )
        return source, None
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
    own_weights = name.startswith(HUB)
    try:
        with _quiet(), quick_hub():
            model = open_clip.create_model(
                name,
                pretrained=tag,
                force_quick_gelu=quick_gelu,
                device=config.device,
                # Otherwise a hub or folder whose weights are not found gives a random model.
                require_pretrained=own_weights,
            )
    except Exception as error:  # what a hub client and a loader raise is not one kind
        raise EncoderError(_unloadable(source, tag, error)) from error
    warnings: list[str] = []
    if tag is None and not own_weights:
        warnings.append(
            f"the weights of open_clip:{source} are random: no pretrained tag was given, so its maps mean nothing"
        )
    tokenizer = config.tokenizer
    if tokenizer is None:
        try:
            with _quiet(), quick_hub():
                tokenizer = open_clip.get_tokenizer(name)
        except Exception as error:  # the tokenizer may live on a hub
            warnings.append(
                f"the tokenizer of {name} could not be loaded, so it reads no prompts unless one is given with "
                f"tokenizer=...: {brief(error)}"
            )
    weights = name if own_weights else tag or "random"
    return Loaded(model.eval(), tokenizer, weights, tuple(warnings))


def _unloadable(source: str, tag: str | None, error: Exception) -> str:
    if tag is not None and Path(tag).is_file():
        if "loading state_dict" not in str(error):
            return unreadable(tag, error)
        return (
            f"the checkpoint '{tag}' does not fit open_clip model '{source.partition('/')[0]}': {misfit(error)}; name "
            "the architecture that it was saved from"
        )
    if source.startswith(HUB):
        return f"open_clip model '{source}' could not be loaded: {brief(error)}"
    return (
        f"open_clip model '{source}' could not be loaded: {brief(error)}; for weights in a file use "
        "pretrained='PATH', or leave the tag out to see the model with random weights"
    )


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """Keep open_clip's log lines back: what they warn of is said in the result, or as an error."""
    root = logging.getLogger()

    def keep_back(record: logging.LogRecord) -> bool:
        return "open_clip" not in record.pathname

    # A root logger without handlers would be given one by the first line, for good.
    mute = logging.NullHandler()
    root.addFilter(keep_back)
    root.addHandler(mute)
    try:
        yield
    finally:
        root.removeHandler(mute)
        root.removeFilter(keep_back)
