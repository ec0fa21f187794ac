"""Copying a part of a module: one function with everything it uses, under other names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

_Import: TypeAlias = ast.Import | ast.ImportFrom

_DOCSTRING = re.compile(r'(""".*?""")', re.DOTALL)


def only_declaration(source: str, hook: str, name: str) -> str:
    """Leave out of a hook the declarations of other names.

    Args:
        source: The face of a plugin, whose hook returns a list with a declaration on lines of its own.
        hook: Name of the hook.
        name: Whose declaration stays.
    """
    (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == hook)
    lines = source.splitlines(keepends=True)
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        named = [word.value for word in call.keywords if word.arg == "name"]
        if named and ast.literal_eval(named[0]) != name:
            lines[call.lineno - 1 : call.end_lineno] = [""] * _height(call)
    return "".join(lines)


def part(source: str, wanted: str) -> str:
    """Keep of a module one function or class, and what it uses.

    What stays is kept to the letter; a module of which everything is used stays as it is.

    Args:
        source: The module.
        wanted: The name of the function or class.
    """
    body = ast.parse(source).body
    used = _used(body, wanted)
    lines, kept = source.splitlines(keepends=True), list[str]()
    begin, gap, stays = 0, 0, True
    for node in body:
        text = "".join(lines[begin : node.end_lineno])
        begin = node.end_lineno or begin
        bare = text.lstrip("\n")
        gap = max(gap, len(text) - len(bare))
        # A text below a definition is about it; the first one is about the module.
        bare = bare if isinstance(node, ast.Expr) and stays else _kept(node, bare, used)
        stays = bool(bare)
        if stays:
            kept.append("\n" * gap + bare)
            gap = 0
    return "".join(kept)


def renamed(source: str, patterns: Mapping[str, str]) -> str:
    """Replace names in code; docstrings stay as they are.

    Args:
        source: A module.
        patterns: Regular expressions with what takes the place of their matches, applied in order.
    """
    pieces = _DOCSTRING.split(source)
    for pattern, new in patterns.items():
        pieces[::2] = [re.sub(pattern, new, piece) for piece in pieces[::2]]
    return "".join(pieces)


def identifiers(source: str) -> frozenset[str]:
    """Collect the names that a module uses: its own, imported and built-in ones."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, _Import):
            found.update(map(_bound, node.names))
    return frozenset(found)


def _used(body: Iterable[ast.stmt], wanted: str) -> frozenset[str]:
    uses: dict[str, set[str]] = {}
    for node in body:
        for name in _defined(node):
            uses[name] = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    used, open_names = set[str](), {wanted}
    while open_names:
        used |= open_names
        open_names = {name for known in open_names for name in uses.get(known, ())} - used
    return frozenset(used)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [target.id for target in targets if isinstance(target, ast.Name)]
    return []


def _kept(node: ast.stmt, text: str, used: frozenset[str]) -> str:
    """Give what stays of a statement; nothing where it is not used."""
    if isinstance(node, _Import):
        return _import(node, text, used)
    if isinstance(node, ast.If):  # if TYPE_CHECKING: imports only
        head, *inner = text.splitlines(keepends=True)
        imports = [one for one in node.body if isinstance(one, _Import)]
        stays = [_import(one, inner[one.lineno - imports[0].lineno], used, "    ") for one in imports]
        return head + "".join(stays) if any(stays) else ""
    return text if used.intersection(_defined(node)) else ""


def _import(node: _Import, text: str, used: frozenset[str], indent: str = "") -> str:
    if isinstance(node, ast.ImportFrom) and node.module == "__future__":
        return text
    names = [name for name in node.names if _bound(name) in {*used, "TYPE_CHECKING"}]
    if len(names) == len(node.names):
        return text
    node.names = names
    return f"{indent}{ast.unparse(node)}\n" if names else ""


def _bound(name: ast.alias) -> str:
    return name.asname or name.name.partition(".")[0]


def _height(node: ast.expr) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1
