"""The errors that a user can cause, and the phrases that their messages share."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class ExplainerError(ValueError):
    """Base of every error that a user can cause and can put right."""


class RegistryError(ExplainerError):
    """A name, a plugin or a declaration is not what the registry can work with."""


def did_you_mean(given: str, valid: Iterable[str]) -> str:
    """Offer the valid name that is nearest to a wrong one.

    Case and the choice between ``-``, blank and ``_`` do not count as differences.

    Args:
        given: What was asked for.
        valid: The names that exist.

    Returns:
        ``"; did you mean 'gem'?"``, ready to be appended to a message, or ``""`` where nothing is near.
    """
    by_fold = {_fold(name): name for name in valid}
    near = get_close_matches(_fold(given), by_fold, n=1)
    return f"; did you mean '{by_fold[near[0]]}'?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Join names for a message.

    Returns:
        ``"cam, gem"``, or ``"none"`` where there are no names.
    """
    return ", ".join(names) or "none"


def describe(cause: BaseException) -> str:
    """Put an exception into words, whole, on as many lines as it has.

    Returns:
        The message alone for our own errors, which are complete sentences; else type and message.
    """
    if isinstance(cause, ExplainerError):
        return str(cause)
    return f"{type(cause).__name__}: {cause}".removesuffix(": ")


def shown(value: object) -> str:
    """Write a value for a message, short and on one line though it may be a tensor or a whole model.

    Returns:
        The ``repr``, of 80 characters at most.
    """
    text = repr(value)
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _fold(name: str) -> str:
    return name.lower().replace("-", "_").replace(" ", "_")
