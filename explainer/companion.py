"""The second tower, whose outputs are directions in the picture tower's space."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from explainer.session import session
from explainer.target import TargetError
from explainer_registry.errors import ExplainerError, describe, did_you_mean, shown

CHUNK = 64
CACHED = 8192


class TextCompanion:
    """Texts as directions, each embedded once.

    Args:
        model: The module that holds the text tower.
        encode: Takes a list of texts to embeddings [n, D].
        templates: Named sets of prompt templates, each made when it is first asked for. The first is the
            default.
    """

    def __init__(
        self,
        model: nn.Module,
        encode: Callable[[list[str]], Tensor],
        templates: Mapping[str, Callable[[], Sequence[str]]],
    ) -> None:
        self._model = model
        self._encode = encode
        self._sets = templates
        self._cache: OrderedDict[tuple[torch.dtype | None, str], Tensor] = OrderedDict()
        self._version: tuple[int, ...] = ()

    def directions(self, prompts: Sequence[Sequence[str]], templates: str | Sequence[str] | None = None) -> Tensor:
        """Embed groups of prompts; each group is one direction.

        Every prompt is put into every template; the embeddings are normalised, averaged over the group and
        normalised again (Radford et al. 2021, section 3.1.4).

        Args:
            prompts: T groups of prompts.
            templates: Name of a set, one template with ``{}`` in the place of the prompt, or several; the
                prompt as it is by default.

        Returns:
            [T, D], float32, unit length.

        Raises:
            TargetError: A template or a prompt cannot be used.
        """
        forms = self._forms(templates)
        texts = [[form.replace("{}", prompt) for form in forms for prompt in group] for group in prompts]
        rounded = self._rounded()
        self._embed([text for group in texts for text in group], rounded)
        means = [torch.stack([self._cache[rounded, text] for text in group]).mean(dim=0) for group in texts]
        self._trim()
        return F.normalize(torch.stack(means), dim=-1)

    def _forms(self, templates: str | Sequence[str] | None) -> Sequence[str]:
        if templates is None:
            templates = next(iter(self._sets))
        if isinstance(templates, str) and templates in self._sets:
            return self._sets[templates]()
        single = isinstance(templates, str) or not isinstance(cast("object", templates), Iterable)
        forms: list[Any] = [templates] if single else list(templates)
        for text in forms:
            if not isinstance(text, str) or text.count("{}") != 1:
                raise TargetError(
                    f"{text!r} is neither a set of templates ({', '.join(self._sets)}) nor a template with one {{}} "
                    f"in the place of the prompt{did_you_mean(str(text), self._sets)}"
                )
        if not forms:
            raise TargetError("the list of templates is empty; give at least one, such as 'a photo of a {}.'")
        return forms

    def _rounded(self) -> torch.dtype | None:
        """To what type the caller's autocast rounds on the way; what it rounds is of no use outside it."""
        device = next(self._model.parameters()).device.type
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None

    def _embed(self, texts: Sequence[str], rounded: torch.dtype | None) -> None:
        # Any in-place change of the weights (training, loading) counts their version up.
        version = tuple(n for p in self._model.parameters() for n in (id(p), p._version))  # pyright: ignore[reportPrivateUsage]
        if version != self._version:
            self._cache.clear()
            self._version = version
        missing = [text for text in dict.fromkeys(texts) if (rounded, text) not in self._cache]
        for start in range(0, len(missing), CHUNK):
            chunk = missing[start : start + CHUNK]
            embeddings = F.normalize(self._embeddings(chunk).float(), dim=-1)
            self._cache.update(zip([(rounded, text) for text in chunk], embeddings, strict=True))

    def _embeddings(self, texts: list[str]) -> Tensor:
        try:
            with session(self._model), torch.no_grad():
                return self._encode(texts)
        except ExplainerError:
            raise
        except Exception as error:  # what a tokenizer and a model raise is not one kind
            raise TargetError(
                f"the text tower of this {type(self._model).__name__} cannot read {shown(texts)} ({describe(error)}); "
                "check that the tokenizer is the model's own, and that the model can encode its tokens"
            ) from error

    def _trim(self) -> None:
        while len(self._cache) > CACHED:
            self._cache.popitem(last=False)
