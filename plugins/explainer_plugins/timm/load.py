"""Loading a timm model by name."""

from __future__ import annotations

import difflib
import re
import socket
import sys
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import timm
import torch
from huggingface_hub import constants
from timm.models import load_checkpoint
from torch import nn

from explainer.encoder import EncoderError
from explainer_plugins.timm.sizes import building_size
from explainer_registry import Schema

if TYPE_CHECKING:
    from explainer_plugins.timm import Timm

_SHOWN = 8  # tags shown of a long list
_LONGEST = 500  # characters of a library's own message


@dataclass(frozen=True)
class Loaded:
    """A model and where it came from.

    Attributes:
        model: The model, in evaluation mode.
        weights: Tag, path, name on the hub, or "random".
        warnings: What whoever reads a result must know.
    """

    model: nn.Module
    weights: str
    warnings: tuple[str, ...] = ()


def load(config: Timm, source: str) -> Loaded:
    """Load a timm model.

    Args:
        config: Says how.
        source: "architecture", "architecture.tag", or a hub or folder name.

    Raises:
        EncoderError: There is no such architecture, tag, file or device, or the weights do not fit.
    """
    check_device(config.device)
    if config.checkpoint is not None and not Path(config.checkpoint).is_file():
        raise EncoderError(f"there is no checkpoint at '{config.checkpoint}'; give the path of a file")
    published = config.pretrained and config.checkpoint is None
    options = _options(config, source)
    model = _created(source, published=published, **options)
    if config.checkpoint is not None:
        _fill(model, config.checkpoint, source, resized="img_size" in options)
    model = model.to(config.device).eval()
    if config.checkpoint is not None:
        return Loaded(model, config.checkpoint)
    if published:
        cfg: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
        weights, own = source if ":" in source else cfg.get("tag") or source, cfg.get("num_classes")
        if config.num_classes in (None, 0, own):
            return Loaded(model, weights)
        return Loaded(
            model,
            weights,
            (
                f"the classifier of timm:{source} is random: its published weights are for {own} classes, not "
                f"{config.num_classes}, so its maps mean nothing",
            ),
        )
    warning = f"the weights of timm:{source} are random: no published weights were loaded, so its maps mean nothing"
    return Loaded(model, "random", (warning,))


def check_device(device: str) -> None:
    """Check that a model can be put on a device.

    Raises:
        EncoderError: It cannot.
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise EncoderError(f"there is no device '{device}' here ({brief(error)}); say device='cpu'") from error


def check_given(config: Schema, names: Sequence[str]) -> None:
    """Refuse settings that only say how a model is loaded, beside a model that is there already.

    Args:
        config: The settings of an encoder to which a module was given.
        names: Settings of that kind.

    Raises:
        EncoderError: One of them was given.
    """
    for name in names:
        if name in config.model_fields_set:
            raise EncoderError(
                f"{name}={getattr(config, name)!r} says how a model is loaded by its name, but a module was given; "
                "leave it out"
            )


def brief(error: BaseException) -> str:
    """Put the message of a library's error on one line, shortened where it is very long."""
    text = " ".join(str(error).split()).rstrip(".")
    if not text:
        return "no further message"
    return text if len(text) <= _LONGEST else text[:_LONGEST].rstrip() + " ..."


def misfit(error: BaseException) -> str:
    """Tell in one sentence how a state dict does not fit; the library lists every single tensor."""
    parts: list[str] = []
    for line in str(error).splitlines():
        names = re.findall(r'"([^"]+)"', line)
        if "Missing key(s)" in line:
            parts.append(_some(names, "missing"))
        elif "Unexpected key(s)" in line:
            parts.append(_some(names, "unknown"))
    shapes = re.findall(r"size mismatch for (\S+): .*?Size\((\[.*?\])\).*?Size\((\[.*?\])\)", str(error))
    if shapes:
        name, given, wanted = shapes[0]
        more = f", and {len(shapes) - 1} more" if len(shapes) > 1 else ""
        parts.append(f"{name} is {given} where the model has {wanted}{more}")
    return "; ".join(parts) or brief(error)


@contextmanager
def quick_hub() -> Generator[None, None, None]:
    """Read only the hub's cache where the hub's host has no address: its client would retry for a minute."""
    host = urlsplit(constants.ENDPOINT).hostname
    before = constants.HF_HUB_OFFLINE
    try:
        # Behind a proxy the host need not have an address here.
        if not urllib.request.getproxies():
            socket.getaddrinfo(host, None)
    except OSError:
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _options(config: Timm, source: str) -> dict[str, Any]:
    """Say what a model is created with."""
    if ":" not in source:
        _check_name(source)
    options: dict[str, Any] = {} if config.num_classes is None else {"num_classes": config.num_classes}
    if config.size is not None:
        with quick_hub():
            size = building_size(source, config.size, f"timm:{source}", **options)
        options |= {} if size is None else {"img_size": size}
    return options


def _created(source: str, *, published: bool, **options: Any) -> nn.Module:
    try:
        with quick_hub():
            return timm.create_model(source, pretrained=published, **options)
    except Exception as error:  # what a hub client raises is not one kind
        if ":" in source:
            raise EncoderError(
                f"timm model '{source}' could not be loaded: {brief(error)}; for weights in a file name an "
                "architecture and the file: wrap('timm:resnet50', checkpoint='PATH')"
            ) from error
        raise EncoderError(
            f"the weights of timm model '{source}' could not be loaded: {brief(error)}; load a local file with "
            "checkpoint='PATH', or use pretrained=False to see the model with random weights"
        ) from error


def _check_name(source: str) -> None:
    name, _, tag = source.partition(".")
    if not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.5)
        raise EncoderError(
            f"timm has no model named '{name}'{_did_you_mean(near)} (timm.list_models('*{name[:6]}*') searches)"
        )
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{name}.*")]
    if tag and tag not in tags:
        near = difflib.get_close_matches(tag, tags, n=3, cutoff=0.4)
        raise EncoderError(f"timm has no weights '{tag}' for {name}{_did_you_mean(near)} (available: {_listed(tags)})")


def _fill(model: nn.Module, checkpoint: str, source: str, *, resized: bool) -> None:
    # Some families of timm bring their tables to the size that a model was built for.
    convert = getattr(sys.modules[type(model).__module__], "checkpoint_filter_fn", None) if resized else None
    try:
        load_checkpoint(model, checkpoint, filter_fn=convert)
    except Exception as error:  # a file can be broken in every way
        if "loading state_dict" in str(error):
            raise EncoderError(
                f"the checkpoint '{checkpoint}' does not fit timm model '{source}': {misfit(error)}; name the "
                "architecture that it was saved from, and its num_classes"
            ) from error
        raise EncoderError(unreadable(checkpoint, error)) from error


def unreadable(checkpoint: str, error: BaseException) -> str:
    """Say that a file holds no state dict."""
    pickled = "weights_only" in str(error)
    reason = "it holds Python objects, not only weights" if pickled else f"{type(error).__name__}: {brief(error)}"
    return (
        f"the checkpoint '{checkpoint}' cannot be read ({reason}); give a file written with "
        "torch.save(model.state_dict(), PATH), or a safetensors file"
    )


def _did_you_mean(near: list[str]) -> str:
    return f"; did you mean {' or '.join(repr(n) for n in near)}?" if near else ""


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more


def _some(names: list[str], what: str) -> str:
    verb = "tensor is" if len(names) == 1 else "tensors are"
    return f"{len(names)} {verb} {what} ({', '.join(names[:2])}{', ...' if len(names) > 2 else ''})"
