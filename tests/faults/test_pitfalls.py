"""House rule: every known pitfall has a row, and every test that a row names exists."""

import ast

from tests.faults.pitfalls import PITFALLS
from tests.tidy.tree import ROOT, functions, parsed

#: How many pitfalls each letter of the list has.
COUNTS = {"Z": 17, "O": 13, "G": 12, "C": 19, "R": 10, "W": 6, "D": 10, "P": 8, "L": 10}


def test_every_code_has_a_row() -> None:
    """The codes of each letter count from 1 without a gap, and there is no other."""
    expected = [f"{letter}{n}" for letter, count in COUNTS.items() for n in range(1, count + 1)]
    assert list(PITFALLS) == expected


def test_a_row_names_tests_or_says_why_there_are_none() -> None:
    """Covered rows name tests; the others name none and have words."""
    wrong = [
        code
        for code, row in PITFALLS.items()
        if bool(row.by) != (row.standing == "covered") or not (row.by or row.words)
    ]
    assert not wrong


def test_every_named_test_exists() -> None:
    """A test that is renamed or removed takes its row along."""
    missing: list[str] = []
    for code, row in PITFALLS.items():
        for node_id in row.by:
            name, _, test = node_id.partition("::")
            path = ROOT / name
            found: list[ast.FunctionDef | ast.AsyncFunctionDef] = (
                list(functions(parsed(path))) if path.exists() else []
            )
            if test not in {node.name for node in found}:
                missing.append(f"{code}: {node_id}")
    assert not missing, "\n".join(missing)
