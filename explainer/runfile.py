"""Reading YAML so that every mistake can be shown on its line."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml
from yaml.reader import ReaderError

from explainer.selection import ConfigError


@dataclass(frozen=True)
class Document:
    """A mapping read from YAML, together with where its parts are.

    Attributes:
        values: The mapping.
        node: What YAML made it from.
    """

    values: dict[str, object]
    node: yaml.Node

    def line(self, location: Sequence[int | str]) -> int:
        """Find the line of a part.

        Args:
            location: Keys and indices that lead to it.

        Returns:
            Its line, counted from 1, or that of the innermost thing around it that is in the file.
        """
        node, line = self.node, self.node.start_mark.line
        for part in location:
            key, child = _child(node, part)
            if key is None or child is None:
                break
            node, line = child, key.start_mark.line
        return line + 1


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and isinstance(key, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem=f"'{key.value}' stands twice", problem_mark=key.start_mark)
            seen.update([key.value] if isinstance(key, yaml.ScalarNode) else [])
        return super().construct_mapping(node, deep)


def parse(path: Path) -> Document:
    """Read a file that holds one YAML mapping.

    Args:
        path: The file.

    Returns:
        The mapping.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or holds something else.
    """
    text = _text(path)
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        values: object = cast("Any", loader).construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: this is not valid YAML: {error.problem}") from None
    except ReaderError as error:
        line, what = text.count("\n", 0, error.position) + 1, repr(text[error.position])
        raise ConfigError(f"{path}:{line}: this is not valid YAML: it holds the character {what}") from None
    if node is None:
        raise ConfigError(f"{path}: the file is empty; a run needs at least 'pictures' and 'model'")
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}:{node.start_mark.line + 1}: a run is a mapping, such as 'model: timm:resnet50', one "
            f"field on a line; the file holds a {type(values).__name__}"
        )
    mapping = cast("dict[object, object]", values)
    return Document({str(key): value for key, value in mapping.items()}, node)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no file '{path}'") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"'{path}' is not a text file in UTF-8: {error}") from None
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error.strerror}") from None


def _child(node: yaml.Node, part: int | str) -> tuple[yaml.Node | None, yaml.Node | None]:
    """Give the node that marks the place of a part, and the part."""
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return key, value
    return None, None
