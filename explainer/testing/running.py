"""Running encoders and methods as contracts do: raw maps, models that are in use, and how far results differ."""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from explainer.classifier import Classifier
from explainer.embedder import Embedder
from explainer.embedding import JointEmbedding
from explainer.encoder import Encoder
from explainer.explain import Explainer, MethodFunction, wrap
from explainer.hooks import HookManager
from explainer.inspection import suited
from explainer.pictures import read
from explainer.selection import with_defaults
from explainer.target import Targets, parse
from explainer.testing.models import SIDE, tiny_clip, tiny_cnn, tiny_deep_head, tiny_tokenizer, tiny_vit
from explainer_registry import Selected, registry

TOLERANCE = 1e-3
"""How far maps may differ where nothing but rounding should, in units of their range."""


Models = Mapping[str, Callable[[torch.dtype], Explainer | nn.Module]]
"""By name, what builds a model whose weights have a given type; the weights are the same each time."""

TINY_MODELS: Models = MappingProxyType(
    {
        "tiny_cnn": lambda dtype: wrap(tiny_cnn(dtype=dtype), size=SIDE),
        "tiny_deep_head": lambda dtype: wrap(tiny_deep_head(dtype=dtype), size=SIDE),
        "tiny_vit": lambda dtype: wrap(tiny_vit(dtype=dtype)),
        "tiny_clip": lambda dtype: wrap(tiny_clip(dtype=dtype), tokenizer=tiny_tokenizer),
        "tiny_clip without texts": lambda dtype: wrap(tiny_clip(dtype=dtype)),
    }
)
"""What methods and scores are tried on; between them they have each capability, and lack each but two."""


def questions(encoder: Encoder) -> list[Any]:
    """Find three targets that an encoder knows; fewer where it has fewer classes.

    Args:
        encoder: Any.
    """
    if isinstance(encoder, Classifier):
        return list(range(min(3, encoder.count)))
    if isinstance(encoder, JointEmbedding) and encoder.companion is None:
        return list(torch.randn(3, encoder.width, generator=torch.Generator().manual_seed(0), device="cpu"))
    return [0, 1, 2] if isinstance(encoder, Embedder) and not isinstance(encoder, JointEmbedding) else list(_PROMPTS)


_PROMPTS = ("a bus", "a cat", "a dog")


def raw(method: Selected, encoder: Encoder, pictures: Any, targets: Any = None) -> tuple[Any, tuple[int, int]]:
    """Run a method as an explainer does.

    Args:
        method: Name and settings.
        encoder: The wrapped model.
        pictures: As for an explainer.
        targets: As for an explainer.

    Returns:
        What the method returns, as it is, and how many pictures and targets it should have maps of.
    """
    with torch.inference_mode(False):
        chosen = with_defaults(method, suited(method.name, encoder))
        batch = read(pictures, encoder)
        asked = Targets(encoder, parse(targets, encoder, None), len(batch.images), lambda a: a.logits, "logit")
        run: MethodFunction = registry().methods.load(method.name)
        maps = run(chosen.options, encoder, batch.images, asked)
        return maps, (len(batch.images), len(asked))


def output(encoder: Encoder, images: Tensor) -> Tensor:
    """Run an encoder once.

    Args:
        encoder: The wrapped model.
        images: [B, 3, H, W].

    Returns:
        [B, D], detached.
    """
    with torch.inference_mode(False), encoder.session() as hooks:
        return encoder.forward(images.to(encoder.device, encoder.dtype), hooks).detach()


def difference(maps: Tensor, others: Tensor) -> float:
    """Give the largest difference between maps, in units of the wider of their ranges.

    Args:
        maps: Any shape.
        others: The same shape.
    """
    one, two = maps.double().cpu(), others.double().cpu()
    widest = max(float(values.max() - values.min()) for values in (one, two))
    scale = max(widest, float(two.abs().max()) * 1e-3, 1e-30)
    return float((one - two).abs().max()) / scale


def put_to_use(model: nn.Module) -> None:
    """Bring a model into a state that only its user can want back.

    Half of it is in training, every third parameter has a gradient, and every second one is frozen.

    Args:
        model: Changed in place.
    """
    modules = list(model.train().modules())
    for module in modules[: len(modules) // 2]:
        module.training = False
    for index, parameter in enumerate(model.parameters()):
        parameter.grad = torch.ones_like(parameter) if index % 3 == 0 else None
        if parameter.is_floating_point():
            parameter.requires_grad_(index % 2 == 0)


class Halt(BaseException):
    """What stops a run as Ctrl-C does: no ``except Exception`` catches it."""


@contextmanager
def failing(encoder: Encoder, layer: str, error: type[BaseException]) -> Generator[None, None, None]:
    """Let a layer of a model raise.

    Args:
        encoder: The wrapped model.
        layer: Dotted path.
        error: What is raised.
    """

    def fail(_module: nn.Module, _args: Any) -> None:
        raise error("raised on purpose")

    handle = HookManager(encoder.model).find(layer)[1].register_forward_pre_hook(fail)
    try:
        yield
    finally:
        handle.remove()


def stages(encoder: Encoder) -> Sequence[str]:
    """Name layers at which a run can be made to fail: an early one, and one in the middle.

    Args:
        encoder: The wrapped model.
    """
    layers = encoder.geometry(encoder.preprocess.size).layers
    return list(dict.fromkeys([layers[0], layers[len(layers) // 2]])) if layers else []


def without(encoder: Encoder, *, capability: str) -> Encoder:
    """Copy an encoder that says it lacks something; a readout is really taken away.

    Args:
        encoder: The wrapped model.
        capability: One of ``explainer_registry.CAPABILITIES``.
    """
    copied = copy.copy(encoder)
    vars(copied)["capabilities"] = encoder.capabilities - {capability}
    if capability == "readout":
        copied.readout = None
    return copied


_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def watched(encoder: Encoder) -> tuple[Encoder, list[tuple[int, int]]]:
    """Copy an encoder so that its runs are counted.

    Args:
        encoder: The wrapped model.

    Returns:
        The copy, and for each run, once it has begun, the number of pictures and of hooks on the model.
    """
    copied, seen = copy.copy(encoder), list[tuple[int, int]]()

    def forward(images: Tensor, *rest: Any, **options: Any) -> Tensor:
        stores = [vars(module)[kind] for module in encoder.model.modules() for kind in _HOOKS]
        seen.append((len(images), sum(map(len, stores))))
        return encoder.forward(images, *rest, **options)

    vars(copied)["forward"] = forward
    return copied, seen
