"""What a view may give: a picture, an animation, or a document such as a table or a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast

from PIL import Image

from explainer_registry import ExplainerError, Selected, registry
from explainer_registry.errors import shown

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True)
class Animation:
    """Pictures that follow each other, again and again.

    Args:
        frames: Of one size.
        milliseconds: How long each is seen.
        suffix: What kind of file it becomes: "gif", "webp", or "png" for APNG.
    """

    frames: tuple[Image.Image, ...]
    milliseconds: int = 50
    suffix: Literal["gif", "webp", "png"] = "webp"


@dataclass(frozen=True)
class Document:
    """A text that becomes a file.

    Args:
        text: What stands in it.
        suffix: What kind of file it becomes, such as "csv", "html" or "geojson".
    """

    text: str
    suffix: str

    def __post_init__(self) -> None:
        if not self.suffix or set(self.suffix) - set(_LETTERS):
            raise ExplainerError(
                f"suffix is lower-case letters and digits without a dot, such as 'csv'; got {self.suffix!r}"
            )


Piece: TypeAlias = Image.Image | Animation | Document


def draw(view: Selected, subject: object) -> list[Piece]:
    """Draw something by a view that a plugin offers.

    Args:
        view: Name and settings of the view.
        subject: What its declaration says that it draws.

    Returns:
        One or several pictures (RGB), animations and documents.

    Raises:
        ExplainerError: The view cannot be loaded, or gave something else.
    """
    drawn: object = registry().views.load(view.name)(view.options, subject)
    several = isinstance(drawn, (list, tuple))
    pieces: list[object] = list(cast("Sequence[object]", drawn)) if several else [drawn]
    if not pieces or not all(isinstance(piece, (Image.Image, Animation, Document)) for piece in pieces):
        raise ExplainerError(
            f"view '{view.name}' ({registry().views.source(view.name)}) has to give a PIL.Image.Image, an Animation or "
            f"a Document, or several; it gave {shown(drawn)} ({type(drawn).__name__})"
        )
    return [piece.convert("RGB") if isinstance(piece, Image.Image) else piece for piece in cast("list[Piece]", pieces)]


def picture(view: Selected, subject: object) -> Image.Image:
    """Draw something by a view that gives one picture.

    Args:
        view: Name and settings of the view.
        subject: What its declaration says that it draws.

    Raises:
        ExplainerError: As for `draw`; or the view gives something else than one picture.
    """
    pieces = draw(view, subject)
    if len(pieces) == 1 and isinstance(pieces[0], Image.Image):
        return pieces[0]
    raise ExplainerError(
        f"view '{view.name}' gives more than a picture ({', '.join(type(piece).__name__ for piece in pieces)}); "
        f"`explainer explain --view {view.name}` writes all of it"
    )


def save(pieces: Sequence[Piece], folder: Path, name: str) -> list[Path]:
    """Write what a view gave.

    Args:
        pieces: Pictures, animations and documents.
        folder: Where; it is there.
        name: Name of the files, without suffix. Several of one suffix are numbered.

    Returns:
        The files.

    Raises:
        OSError: A file cannot be written.
    """
    files: list[Path] = []
    for piece in pieces:
        suffix = piece.suffix if isinstance(piece, (Animation, Document)) else "png"
        before = sum(file.suffix == f".{suffix}" for file in files)
        file = folder / f"{name}{f'-{before + 1}' if before else ''}.{suffix}"
        if isinstance(piece, Document):
            file.write_text(piece.text, encoding="utf-8", newline="\n")
        elif isinstance(piece, Animation):
            first, *others = piece.frames
            first.save(file, save_all=True, append_images=others, duration=piece.milliseconds, loop=0)
        else:
            piece.save(file)
        files.append(file)
    return files
