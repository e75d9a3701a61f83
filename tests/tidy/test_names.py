"""House rule: names say what is inside."""

import ast
import re

from tests.tidy.tree import ROOT, functions, name_of, parsed, python_files

BANNED_MODULES = frozenset(
    {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "stuff"}
)
MIGRATION = re.compile(r"(\d{4})_(pre|post)_[a-z0-9]+(_[a-z0-9]+)*\.sql")


def test_no_module_has_a_catch_all_name() -> None:
    """No module or package is called utils, helpers, common, manager or the like."""
    bad = [
        name_of(path)
        for path in python_files("processor", "tests")
        if {path.stem, path.parent.name} & BANNED_MODULES
    ]
    assert not bad


def test_migrations_are_named_by_number_phase_and_subject() -> None:
    """Each migration is NNNN_{pre|post}_slug.sql, and the numbers count from 1 without a gap."""
    names = sorted(p.name for p in (ROOT / "migrations").glob("*.sql"))
    matches = [MIGRATION.fullmatch(name) for name in names]
    assert [n for n, m in zip(names, matches, strict=True) if not m] == []
    assert [int(m[1]) for m in matches if m] == list(range(1, len(names) + 1))


def test_every_test_says_its_rule() -> None:
    """Every test function has a docstring with the rule it holds."""
    silent = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in python_files("tests")
        for node in functions(parsed(path))
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert not silent, "\n".join(silent)


def test_every_module_of_the_package_is_documented() -> None:
    """Every module of the package opens with a docstring (classes and functions: ruff D1)."""
    silent = [p for p in python_files("processor") if not ast.get_docstring(parsed(p))]
    assert [name_of(p) for p in silent] == []
