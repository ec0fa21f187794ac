"""Loading a model of transformers by name, with what belongs to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from explainer.encoder import EncoderError
from explainer_plugins.timm.load import brief, check_device, quick_hub
from explainer_plugins.transformers.kinds import check_kind, is_pair

if TYPE_CHECKING:
    from explainer_plugins.transformers import Transformers


@dataclass(frozen=True)
class Loaded:
    """A model and what belongs to it.

    Attributes:
        model: The model.
        images: Its image processor; None where there is none.
        tokenizer: Its tokenizer; None where there is none.
        weights: Name on the hub, folder, or "as given".
        warnings: What whoever reads a result must know.
    """

    model: nn.Module
    images: Any
    tokenizer: Any
    weights: str
    warnings: tuple[str, ...] = ()


def library() -> Any:
    """Import transformers.

    Raises:
        EncoderError: It is not installed.
    """
    try:
        import transformers
    except ImportError as error:
        raise EncoderError(
            "models of transformers need the package transformers, which is not installed; run pip install "
            '"vision-explainer[transformers]"'
        ) from error
    return transformers


def take(config: Transformers) -> Loaded:
    """Take a module, and what was given beside it.

    Raises:
        EncoderError: It is no model of transformers, or something beside it is not what it should be.
    """
    if not isinstance(config.model, library().PreTrainedModel):
        raise EncoderError(
            f"this {type(config.model).__name__} is no model of transformers; leave encoder='transformers' out, and "
            "the encoder that fits is chosen"
        )
    check_kind(type(config.model), config.model.config, f"transformers:{type(config.model).__name__}")
    return Loaded(config.model, *_beside(config), "as given")


def load(config: Transformers, source: str) -> Loaded:
    """Load a model with its image processor and, where it reads texts, its tokenizer.

    Args:
        config: Says how.
        source: A name on the hub, or a folder that ``save_pretrained`` wrote.

    Raises:
        EncoderError: It cannot be had, or is no model that can be explained.
    """
    check_device(config.device)
    auto = library()
    images, tokenizer = _beside(config)
    with quick_hub():
        kind, settings = _kind(auto, source)
        check_kind(kind, settings, f"transformers:{source}")
        model, warnings = _weights(kind, source)
        if images is None:
            lost = "so pictures may be prepared in another way than it needs"
            images = _part(auto.AutoImageProcessor, source, warnings, "image processor", lost)
        if tokenizer is None and is_pair(kind):
            tokenizer = _tokenizer(auto, source, warnings)
    return Loaded(model.to(config.device).eval(), images, tokenizer, source, tuple(warnings))


def _beside(config: Transformers) -> tuple[Any, Any]:
    """The image processor and the tokenizer that were given."""
    processor = config.processor
    if processor is None:
        return None, config.tokenizer
    images = getattr(processor, "image_processor", processor)
    if not callable(images) or not hasattr(images, "preprocess"):
        raise EncoderError(
            "a processor is what AutoProcessor or AutoImageProcessor.from_pretrained(...) returns; got "
            f"{processor!r} ({type(processor).__name__})"
        )
    return images, getattr(processor, "tokenizer", None) if config.tokenizer is None else config.tokenizer


def _kind(auto: Any, source: str) -> tuple[type[Any], Any]:
    try:
        # Code from the hub is not run; without this the library asks on the terminal.
        config = auto.AutoConfig.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # what a hub client raises is not one kind
        raise EncoderError(_unloadable(source, error)) from error
    named: list[str] = config.architectures or []
    for name in named:
        if hasattr(auto, name):
            return getattr(auto, name), config
    raise EncoderError(
        f"transformers model '{source}' is of an architecture that transformers {auto.__version__} does not have "
        f"({', '.join(named) or 'it names none'}); load it in Python and give the module: "
        "explainer.wrap(model, processor=processor)"
    )


def _weights(kind: type[Any], source: str) -> tuple[nn.Module, list[str]]:
    try:
        model, report = kind.from_pretrained(source, dtype=torch.float32, output_loading_info=True)
    except Exception as error:  # a file can be missing or broken in every way
        raise EncoderError(_unloadable(source, error)) from error
    missing: list[str] = sorted(report["missing_keys"])
    if not missing:
        return model, []
    more = ", ..." if len(missing) > 2 else ""
    return model, [
        f"a part of transformers:{source} is random, because its weights do not hold {', '.join(missing[:2])}{more}, "
        "so its maps mean nothing"
    ]


def _tokenizer(auto: Any, source: str, warnings: list[str]) -> Any:
    found = _part(auto.AutoTokenizer, source, warnings, "tokenizer", "so it reads no prompts")
    # Where its files are missing, the library makes one that knows no words.
    if found is not None and len(found) <= len(found.all_special_tokens):
        warnings.append(
            f"the tokenizer of transformers:{source} knows no words, so it reads no prompts; give one with "
            "tokenizer=..."
        )
        return None
    return found


def _part(kind: Any, source: str, warnings: list[str], what: str, lost: str) -> Any:
    try:
        return kind.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # it may be missing, or need a package
        warnings.append(f"the {what} of transformers:{source} could not be loaded, {lost}: {brief(error)}")
        return None


def _unloadable(source: str, error: Exception) -> str:
    return (
        f"transformers model '{source}' could not be loaded: {brief(error)}; name a model on the hub, or a folder that "
        "save_pretrained wrote"
    )
