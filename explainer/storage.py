"""Explanations on disk: one .npz file, or a folder that also holds the drawings."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from explainer.frame import Frame
from explainer.provenance import Provenance
from explainer_registry.errors import ExplainerError

if TYPE_CHECKING:
    from explainer.explanation import Explanation

_FORMAT = 1
_FILE = "explanation.npz"
_PICTURE_SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})


def save(explanation: Explanation, path: Path) -> list[Path]:
    """Write an explanation to a file or a folder.

    Args:
        explanation: Any.
        path: Ends in .npz for one file; otherwise a folder for an overlay of each picture and target,
            named by the picture's number and the label, and an explanation.npz.

    Returns:
        The files written. Each appears whole or not at all.

    Raises:
        ExplainerError: The path names a picture, or a file where a folder is meant.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return [_write(path, lambda stream: _pack(explanation, stream))]
    if suffix in _PICTURE_SUFFIXES:
        raise ExplainerError(
            f"save writes a folder or an .npz file; for one drawing: e.overlay(...).save({str(path)!r})"
        )
    if path.is_file():
        raise ExplainerError(f"{str(path)!r} is a file; give a folder, or a name that ends in .npz")
    written: list[Path] = []
    for (b, t), name in _file_names(explanation).items():
        drawing = explanation.overlay(t, b)
        written.append(_write(path / name, lambda stream, it=drawing: it.save(stream, format="PNG")))
    return [*written, *save(explanation, path / _FILE)]


def read(path: Path) -> dict[str, Any]:
    """Read the fields of an explanation that `save` wrote.

    Args:
        path: The .npz file, or the folder that holds an explanation.npz.

    Returns:
        The fields by name; tensors on the CPU, no pictures.

    Raises:
        ExplainerError: There is no such file, or `save` did not write it.
    """
    file = path / _FILE if path.is_dir() else path
    if not file.is_file():
        raise ExplainerError(f"no explanation at {str(file)!r}; e.save(path) writes one")
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            return _fields(arrays)
    except (zipfile.BadZipFile, EOFError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = "no .npz file" if "allow_pickle" in str(error) else error
        raise ExplainerError(f"{str(file)!r} is not an explanation that e.save wrote: {reason}") from None


def _pack(explanation: Explanation, stream: IO[bytes]) -> None:
    """Write the arrays, and everything else as one JSON text."""
    texts = {
        "format": _FORMAT,
        "names": explanation.names,
        "labels": explanation.labels,
        "frames": [{"picture": frame.picture, "box": frame.box} for frame in explanation.frames],
        "inputs_size": explanation.inputs_size,
        "method": explanation.method,
        "provenance": explanation.provenance.to_json(),
    }
    arrays = {"maps": explanation.maps.detach().cpu().numpy(), "json": np.array(json.dumps(texts))}
    if explanation.scores is not None:
        arrays["scores"] = explanation.scores.detach().cpu().numpy()
    np.savez_compressed(stream, allow_pickle=False, **arrays)


def _fields(arrays: Any) -> dict[str, Any]:
    import torch  # only reading needs it

    if "json" not in arrays:
        raise ValueError("it holds no 'json'")
    texts = json.loads(str(arrays["json"]))
    if texts["format"] != _FORMAT:
        raise ValueError(f"it has format {texts['format']}, this version reads format {_FORMAT}")
    maps = torch.as_tensor(arrays["maps"])
    return {
        "maps": maps,
        "names": tuple(texts["names"]),
        "labels": tuple(tuple(row) for row in texts["labels"]),
        "scores": torch.as_tensor(arrays["scores"]) if "scores" in arrays else None,
        "pictures": (None,) * len(maps),
        "inputs_size": tuple(texts["inputs_size"]),
        "frames": tuple(Frame(frame["picture"], frame["box"]) for frame in texts["frames"]),
        "method": texts["method"],
        "provenance": Provenance.from_json(texts["provenance"]),
    }


def _file_names(explanation: Explanation) -> dict[tuple[int, int], str]:
    """Name the drawing of each picture and target: distinct on any file system."""
    names: dict[tuple[int, int], str] = {}
    taken: set[str] = set()
    digits = len(str(len(explanation) - 1))
    for b, row in enumerate(explanation.labels):
        for t, label in enumerate(row):
            words = re.sub(r"[^\w-]+", "-", label).strip("-")[:60]
            stem = f"{b:0{digits}}-{words or 'target'}"
            # Some file systems do not tell upper from lower case.
            if stem.casefold() in taken:
                stem = f"{stem}-target{t}"
            taken.add(stem.casefold())
            names[b, t] = f"{stem}.png"
    return names


def _write(path: Path, write: Callable[[IO[bytes]], None]) -> Path:
    """Write a file under another name and rename it once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, for a rename across file systems is not atomic; not by the tempfile module,
    # whose files nobody else may read.
    draft = path.with_name(f".{uuid4().hex}.part")
    try:
        with draft.open("xb") as stream:
            write(stream)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
