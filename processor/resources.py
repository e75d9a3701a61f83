"""Where the folders `schemas/` and `migrations/` are: in a checkout, or inside the wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def schemas_dir() -> Path:
    """The folder of the Avro schemas. Raises: `FileNotFoundError` when the package is damaged."""
    return _shipped("schemas")


def migrations_dir() -> Path:
    """The folder of the SQL migrations. Raises: `FileNotFoundError`, as `schemas_dir`."""
    return _shipped("migrations")


def _shipped(name: str) -> Path:
    """The wheel's copy wins: next to an installed package a folder of that name is not ours."""
    for folder in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"the folder {name} is neither in the package nor beside it: install the package again"
    )
