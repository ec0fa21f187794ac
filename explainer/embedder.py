"""Encoders whose output space is an embedding, without classes and without a text tower."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from explainer.encoder import Encoder
from explainer.probe import entrance
from explainer.score import ScoreError
from explainer.target import Question, Target, TargetError, as_index, directions
from explainer_registry.errors import shown


class Embedder(Encoder):
    """An encoder that turns pictures into embeddings [B, D], and names nothing in them."""

    @property
    def width(self) -> int:
        """D, the width of the embedding; here, of what :meth:`Encoder.watched` gives."""
        return self.geometry(self.preprocess.size).probe.output[1]

    def resolve(self, targets: Sequence[Any], templates: str | Sequence[str] | None = None) -> list[Target]:
        """Turn numbers of channels and directions in the embedding into directions of unit length.

        Args:
            targets: Each an int, or a tensor [D] or [T, D].
            templates: Must be None: there is no text to put into them.

        Raises:
            TargetError: A target is of another kind, a channel is not there, or a direction has another width.
        """
        if templates is not None:
            raise TargetError(f"{self.name} reads no text, so it takes no templates")
        return [direction for target in targets for direction in self._resolve(target)]

    def _resolve(self, target: Any) -> list[Target]:
        if isinstance(target, Tensor):
            rows = directions(target, self.width, f"a direction of {self.name} in its embedding", self.device)
            return [Target(row.name, F.normalize(row.direction, dim=0)) for row in rows]
        index = as_index(target)
        if index is None:
            raise TargetError(
                f"{self.name} has neither classes nor a text tower, so {shown(target)} means nothing to it; ask for "
                f"nothing to explain the embedding itself, for a channel (0 to {self.width - 1}), or for a direction "
                f"tensor [{self.width}], such as the embedding of another picture"
            )
        if not 0 <= index < self.width:
            raise TargetError(
                f"channel {index} is out of range: the embedding of {self.name} has {self.width} channels, 0 to "
                f"{self.width - 1}"
            )
        direction = torch.zeros(self.width, device=self.device, dtype=torch.float32)
        direction[index] = 1
        return [Target(f"channel {index}", direction)]

    def default_question(self) -> Question | None:
        """Ask what sets a picture's embedding apart from that of an evenly grey one.

        The direction is the difference of the two. The embedding's own direction would not do: most of these
        models end in a norm that gives every embedding the same length, so that no change of the picture moves it
        further along itself, and the gradient is zero but for the norm's weights.
        """
        return Question("own embedding", partial(self._apart_from, self._grey()))

    def _grey(self) -> Tensor:
        """Embed an evenly grey picture of the model's own input size: [1, D]."""
        look = self.preprocess
        values = [(0.5 - mean) / std for mean, std in zip(look.mean, look.std, strict=True)]
        colour = torch.tensor(values, device="cpu")  # whatever the default device is
        picture = colour.to(entrance(self.model))[:, None, None].expand(1, -1, *look.size).contiguous()
        with self.session() as hooks, torch.no_grad():
            return self.forward(picture, hooks).float()

    def _apart_from(self, grey: Tensor, outputs: Tensor) -> list[Target]:
        embeddings = outputs.detach().float()
        differences = embeddings - grey
        rounding = 1e-5 if outputs.dtype in (torch.float32, torch.float64) else 1e-2
        if bool((differences.square().sum(dim=1) <= rounding**2 * embeddings.square().sum(dim=1)).any()):
            raise TargetError(
                f"{self.name} gives the same embedding for a picture as for an evenly grey one, so nothing sets it "
                "apart; ask for a channel or a direction"
            )
        return [Target("own embedding", direction) for direction in F.normalize(differences, dim=1)]

    def logits(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Return how far [B, T] the embeddings [B, D] reach along the directions [B, T, D]."""
        return torch.einsum("bd,btd->bt", outputs.float(), directions)

    def log_probs(self, outputs: Tensor, directions: Tensor) -> Tensor:
        """Refuse: nothing in an embedding has a probability.

        Raises:
            ScoreError: Always.
        """
        raise ScoreError(
            f"{self.name} has neither classes nor prompts, so nothing has a probability; explain how far its embedding "
            "reaches along a direction with score='logit'"
        )

    def evidence(self, columns: Tensor, directions: Tensor) -> Tensor:
        """Return each cell's cosine with the directions: [B, T, N] in [-1, 1]."""
        return self.needed_readout.similarities(columns, directions)
