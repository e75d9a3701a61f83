"""House rule: small functions, small files."""

from tests.tidy.tree import functions, name_of, parsed, python_files

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
CORE_LINES_MAX = 2000


def test_no_function_is_longer_than_its_limit() -> None:
    """A function has at most 60 lines, its docstring included."""
    long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {lines} lines"
        for path in python_files("processor", "tests")
        for node in functions(parsed(path))
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_no_file_is_longer_than_its_limit() -> None:
    """A Python file has at most 500 lines."""
    long = [
        f"{name_of(path)}: {lines} lines"
        for path in python_files("processor", "tests")
        if (lines := len(path.read_text().splitlines())) > FILE_LINES_MAX
    ]
    assert not long, "\n".join(long)


def test_the_core_stays_small() -> None:
    """`core/` has at most 2,000 lines that are neither blank nor a comment."""
    core = [p for p in python_files("processor") if name_of(p).startswith("processor/core/")]
    lines = sum(
        1
        for path in core
        for line in path.read_text().splitlines()
        if line.strip() and not line.strip().startswith("#")
    )
    assert lines <= CORE_LINES_MAX
