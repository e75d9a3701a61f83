"""The files of the repository as the house rules see them: what is built or cached is left out."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IGNORED_FOLDERS = frozenset(
    {
        ".git",
        ".hypothesis",
        ".import_linter_cache",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".venv",
        "__pycache__",
        "build",
        "dist",
        "htmlcov",
    }
)
TEXT_SUFFIXES = frozenset(
    {
        "",
        ".avsc",
        ".cfg",
        ".css",
        ".html",
        ".ini",
        ".js",
        ".json",
        ".jsonl",
        ".md",
        ".py",
        ".pyi",
        ".sh",
        ".sql",
        ".toml",
        ".tpl",
        ".txt",
        ".yaml",
        ".yml",
    }
)


@functools.cache
def all_files() -> tuple[Path, ...]:
    """Every file that would be committed, in a fixed order."""
    return tuple(sorted(_walk(ROOT)))


def python_files(*folders: str) -> list[Path]:
    """The Python files below these top-level folders."""
    return [p for p in all_files() if p.suffix == ".py" and name_of(p).split("/")[0] in folders]


def text_files() -> list[Path]:
    """The files that people read."""
    return [p for p in all_files() if p.suffix in TEXT_SUFFIXES]


def name_of(path: Path) -> str:
    """The path from the top of the repository, with slashes."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of one file."""
    return ast.parse(path.read_text(), str(path))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function of a file, also nested ones and methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _walk(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in IGNORED_FOLDERS and not entry.name.endswith(".egg-info"):
                yield from _walk(entry)
        elif not entry.name.startswith(".coverage"):
            yield entry
