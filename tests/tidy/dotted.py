"""Dotted names as a file uses them, with its imports resolved: `from time import time` is `time.time`."""

import ast
from collections.abc import Iterator


def used_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of every use of something imported, called or not."""
    imported = dict(_imports(tree))
    inner = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and id(node) not in inner:
            parts = _parts(node)
            if parts and parts[0] in imported:
                yield node.lineno, ".".join([imported[parts[0]], *parts[1:]])


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".")[0]
                yield local, alias.name if alias.asname else local
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _parts(node: ast.expr) -> list[str] | None:
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        before = _parts(node.value)
        return [*before, node.attr] if before else None
    return None
