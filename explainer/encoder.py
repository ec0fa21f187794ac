"""A model made explainable: one tower over pictures, and what it offers to methods."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from explainer.frame import Frame
from explainer.geometry import Choice, Geometry
from explainer.hooks import HookManager, LayerError
from explainer.layout import Layout
from explainer.positions import Interpolation
from explainer.preprocess import Preprocess
from explainer.probe import Forward, Probe, entrance, probe
from explainer.readout import Readout
from explainer.session import session
from explainer.target import Question, Target
from explainer.unfit import is_quantised, way_out
from explainer_registry import ExplainerError


class EncoderError(ExplainerError):
    """A model that cannot be loaded or explained, or pictures that it cannot take."""


class Encoder(ABC):
    """One tower over pictures, with its output space and its capabilities.

    The output space has D dimensions: class logits of a classifier, the embedding of a model without classes,
    which a CLIP shares with texts. A target is a direction in it.

    Args:
        name: As in ``wrap``: "timm:resnet50".
        model: The user's model. It is never changed outside a session.
        preprocess: From a picture to the model's input.
        weights: Where the weights come from.
        warnings: What whoever reads a result must know, one sentence each.
        readout: From a cell of the last map into the output space; None where there is none.
        class_token_pooled: Whether the model reads only its class token at the end.
        layer: The last map, where the user names it; found by default.
        layout: How the output of `layer` is laid out, where its shape does not tell.

    Attributes:
        suited: Settings of methods, by the method's name, that take the place of the method's own defaults on this
            model, because they were measured to suit it better. Empty unless the encoder's plugin fills it.
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        preprocess: Preprocess,
        *,
        weights: str,
        warnings: Sequence[str] = (),
        readout: Readout | None = None,
        class_token_pooled: bool = False,
        layer: str | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.name = name
        self.model = model
        self.preprocess = preprocess
        self.weights = weights
        self.warnings = tuple(warnings)
        self.readout = readout
        self.suited: Mapping[str, Mapping[str, Any]] = {}
        self._class_token_pooled = class_token_pooled
        self._layer = layer
        self._layout: Layout | None = layout
        self._geometries: dict[tuple[int, int], Geometry] = {}

    @abstractmethod
    def call(
        self, model: nn.Module, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias"
    ) -> Tensor:
        """Run the tower.

        Args:
            model: The encoder's model, or a copy of it without data.
            images: [B, 3, H, W], preprocessed.
            hooks: Manager of `model`, for what must be set while it runs (another input size).
            positions: How learned position embeddings are brought to another input size.

        Returns:
            [B, D], in the output space.
        """

    @abstractmethod
    def resolve(self, targets: Sequence[Any], templates: str | Sequence[str] | None = None) -> list[Target]:
        """Turn targets, as the user wrote them, into directions.

        Args:
            targets: Each a class index, class name, prompt, sequence of prompts, or direction tensor.
            templates: Prompt templates, for encoders that read text.

        Raises:
            TargetError: It is unknown or ambiguous.
        """

    @abstractmethod
    def logits(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return the raw score [B, T] of outputs [B, D] for directions [B, T, D]."""

    @abstractmethod
    def log_probs(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return the log-probability [B, T] of each direction.

        Raises:
            ScoreError: These targets have no probability.
        """

    @abstractmethod
    def evidence(self, columns: Tensor, directions: Tensor) -> Tensor:
        """How far each cell speaks for each target, in the measure that the encoder itself compares with.

        Args:
            columns: [B, N, C], cells of the last map.
            directions: [B, T, D].

        Returns:
            [B, T, N], float32: contributions to the logit of a classifier, cosines of an embedding.
        """

    def default_question(self) -> Question | None:
        """What is asked of a picture where no target is given; None where a target has to be."""
        return None

    @property
    def class_names(self) -> Sequence[str] | None:
        """The names of the classes, in the order of the logits; None where there are none."""
        return None

    @cached_property
    def capabilities(self) -> frozenset[str]:
        """What methods may ask of this encoder; see ``explainer_registry.CAPABILITIES``."""
        geometry = self.geometry(self.preprocess.size)
        offered = {
            "features": geometry.last is not None,
            "gradient": geometry.last is not None and not any(map(is_quantised, self.model.modules())),
            "readout": self.readout is not None and geometry.last is not None,
            "attention": bool(geometry.blocks),
            "stream": bool(geometry.stream),
        }
        return frozenset(name for name, there in offered.items() if there) | self.own_capabilities

    @property
    def own_capabilities(self) -> frozenset[str]:
        """The capabilities that come from the kind of encoder, not from its layers."""
        return frozenset()

    @property
    def only_last_cells(self) -> bool:
        """Whether only the layers with as many cells as the last map are in the order of the picture."""
        return False

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type that the model computes in."""
        return entrance(self.model).dtype

    @property
    def device(self) -> torch.device:
        """Where the model's weights lie."""
        return entrance(self.model).device

    def frame(self, picture: Image.Image) -> Frame:
        """Say which part of a picture the model sees."""
        return self.preprocess.frame(picture)

    @contextmanager
    def session(self) -> Generator[HookManager, None, None]:
        """Hold the model still while it is looked at; see :func:`explainer.session.session`."""
        with session(self.model) as hooks:
            yield hooks

    def forward(self, images: Tensor, hooks: HookManager, positions: Interpolation = "bicubic_antialias") -> Tensor:
        """Run the tower once under hooks.

        Args:
            images: [B, 3, H, W], preprocessed.
            hooks: The manager of the session.
            positions: How learned position embeddings are brought to another input size.

        Returns:
            [B, D], in the output space.

        Raises:
            EncoderError: A table of the model does not reach as far as images of another size than its own.
        """
        try:
            return self.call(self.model, images, hooks, positions)
        except IndexError as error:  # which a run without data does not meet
            size, own = image_size(images), self.preprocess.size
            if size == own:
                raise
            raise EncoderError(f"{_failed(self.name, size, error)}; it was wrapped for {own[0]} x {own[1]}") from error

    def watched(self, model: nn.Module, images: Tensor, hooks: HookManager) -> Tensor:
        """Run the part of the tower that is searched for maps: all of it, unless an encoder knows better.

        Args:
            model: The encoder's model, or a copy of it without data.
            images: [B, 3, H, W].
            hooks: Manager of `model`.
        """
        return self.call(model, images, hooks)

    def geometry(self, size: tuple[int, int]) -> Geometry:
        """Find the layers that lie on the picture, for an input of this height and width.

        Raises:
            LayerError: The layer that was named for this encoder does not lie on the picture.
            EncoderError: The model cannot run on an input of this size.
        """
        if size not in self._geometries:
            self._geometries[size] = Geometry(
                observe(self.name, self.model, self.watched, size),
                class_token_pooled=self._class_token_pooled,
                layer=self._layer,
                layout=self._layout,
                only_last_cells=self.only_last_cells,
            )
        return self._geometries[size]

    @property
    def needed_readout(self) -> Readout:
        """The readout.

        Raises:
            EncoderError: There is none.
        """
        if self.readout is None:
            raise EncoderError(
                f"{self.name} has no readout: nothing says what one cell of its last map means for its output"
            )
        return self.readout

    def last_map(self, images: Tensor) -> Choice:
        """Choose the last map before the model pools, for images of this size.

        Raises:
            LayerError: The model has no map, or it cannot be told on so small images.
        """
        size, own = image_size(images), self.preprocess.size
        last = self._mapped(self.geometry(size).last)
        # On a few cells, shapes tell little. What the readout was made for has one width, whatever the size.
        usual = None if self.readout is None or size == own else self.geometry(own).last
        if usual is not None and usual.channels != last.channels:
            raise LayerError(
                f"on an input of {size[0]} x {size[1]} the last map of {self.name} cannot be told from its other "
                f"layers; give larger pictures, such as {own[0]} x {own[1]}"
            )
        return last

    def gradient_map(self, images: Tensor) -> Choice:
        """Choose the last map whose cells all reach the output, for images of this size.

        Raises:
            LayerError: The model has no map.
        """
        return self._mapped(self.geometry(image_size(images)).gradient)

    def _mapped(self, choice: Choice | None) -> Choice:
        if choice is None:
            raise LayerError(
                f"no layer of {self.name} gives a map of the picture; name one with layer=... and say how it is "
                "laid out with layout='NCHW', 'NHWC' or 'NLC'"
            )
        return choice


def observe(name: str, model: nn.Module, forward: Forward, size: tuple[int, int]) -> Probe:
    """Probe a model; see :func:`explainer.probe.probe`.

    Args:
        name: Name of the encoder, for messages.
        model: The model, or a part of it.
        forward: Runs it.
        size: Height and width of the input.

    Raises:
        EncoderError: The model cannot run on an input of this size.
    """
    # A run without data that fails is repeated with data; torch would print it as an error all the same.
    torch_log = logging.getLogger("torch._subclasses.fake_tensor")
    torch_log.addFilter(_nothing)
    try:
        return probe(model, forward, size)
    except ExplainerError:
        raise
    except Exception as error:  # what a model raises is not one kind
        raise EncoderError(f"{_failed(name, size, error)}; {way_out(model, error)}") from error
    finally:
        torch_log.removeFilter(_nothing)


def _failed(name: str, size: tuple[int, int], error: Exception) -> str:
    reason = str(error).strip().partition("\n")[0].rstrip(".")
    return f"{name} cannot run on an input of {size[0]} x {size[1]} ({type(error).__name__}: {reason})"


def _nothing(_record: logging.LogRecord) -> bool:
    return False


def image_size(images: Tensor) -> tuple[int, int]:
    """Height and width of images [B, 3, H, W]."""
    return int(images.shape[-2]), int(images.shape[-1])
