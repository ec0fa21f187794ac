"""Finding things by name or number, and naming them in messages."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from explainer_registry.errors import ExplainerError

_SHOWN = 8


def target_place(names: Sequence[str], target: int | str | None, labels: Sequence[Sequence[str]] = ()) -> int:
    """Find the place of a target.

    Args:
        names: The T targets.
        target: Name or number of the target; None is the first.
        labels: What the maps are about, which serves as a name where every picture has the same: the class where
            the top class was asked for.

    Returns:
        A number from 0 to T - 1.

    Raises:
        ExplainerError: There is no such target, or several have this name.
    """
    if not isinstance(target, str):
        return place("target", target or 0, len(names))
    places = [t for t, name in enumerate(names) if name == target]
    if len(places) > 1:
        numbers = " or ".join(map(str, places))
        raise ExplainerError(f"{len(places)} targets are named {target!r}; draw one by its number: target={numbers}")
    if not places and labels:
        places = [t for t in range(len(names)) if all(row[t] == target for row in labels)]
    if not places:
        near = get_close_matches(target, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ExplainerError(f"no target named {target!r}{hint} (available: {listing(names)})")
    return places[0]


def place(kind: str, number: int, count: int) -> int:
    """Check a number, which may count from the end as Python's indices do.

    Args:
        kind: What is numbered, such as "picture".
        number: From -count to count - 1.
        count: How many there are.

    Returns:
        A number from 0 to count - 1.

    Raises:
        ExplainerError: There is no such thing.
    """
    if not -count <= number < count:
        raise ExplainerError(f"no {kind} {number}: there {_are(count, kind)}, numbered from 0")
    return number % count


def listing(names: Sequence[str]) -> str:
    """List names for a message, the first ones of many.

    Args:
        names: Any number of names.

    Returns:
        Quoted names, separated by commas.
    """
    shown = [repr(name) for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        shown.append(f"and {len(names) - _SHOWN} more")
    return ", ".join(shown)


def counted(count: int, noun: str) -> str:
    """Put a number before a noun.

    Args:
        count: How many.
        noun: In the singular.

    Returns:
        Such as "1 picture" or "2 pictures".
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _are(count: int, noun: str) -> str:
    return f"{'is' if count == 1 else 'are'} {counted(count, noun)}"
