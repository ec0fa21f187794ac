"""What every method test needs of the package."""

from __future__ import annotations

from functools import lru_cache

from oracles.helpers import FakeTokenizer
from torch import nn

import explainer


@lru_cache(maxsize=16)
def explained(model: nn.Module) -> explainer.Explainer:
    """The model wrapped once for all tests that share it, with a tokenizer if it is a CLIP."""
    if hasattr(model, "visual"):
        return explainer.wrap(model, tokenizer=FakeTokenizer())
    return explainer.wrap(model)
