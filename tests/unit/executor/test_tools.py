"""Declaring tools, joining them with the catalogue, and reading them from a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from processor.core.errors import Misuse
from processor.executor import ToolContext, ToolSet, tool
from processor.executor.crash_points import POINTS, crash_point_of, never_crash
from processor.executor.results import outcome_of
from processor.executor.served import serve
from processor.ledger.port import RESULT_BYTES_MAX
from processor.policy.catalogue import parse_catalogue

CATALOGUE = parse_catalogue(
    """
version: 1
tools:
  refund: {effect_class: idempotent, timeout_s: 3, max_attempts: 7, concurrency: 2}
  note: {arguments: text}
"""
)


@tool(effect_class="idempotent", timeout_s=2)
def refund(order: str, context: ToolContext) -> str:
    """A tool of this module."""
    return order + context.tool


def test_a_module_gives_its_declared_functions(tmp_path: Path) -> None:
    """By path or by name; imported helpers and plain functions are no tools."""
    path = tmp_path / "my_tools.py"
    path.write_text(
        "from processor.executor import ToolSet, tool\n"
        "more = ToolSet()\n"
        "@tool(name='shop.refund')\ndef refund(order): ...\n"
        "again = refund\n"
        "@more.tool(effect_class='read_only')\nasync def ping(): ...\n"
        "def plain(): ...\n"
    )
    found = {d.name: d.effect_class for d in ToolSet.from_module(str(path))}
    assert found == {"shop.refund": None, "ping": "read_only"}
    assert [d.name for d in ToolSet.from_module(__name__)] == ["refund"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "declares no tool"),
        (
            "import not_there_at_all",
            r"my_tools\.py:1 raised ModuleNotFoundError for not_there_at_all",
        ),
        ("def broken(:", r"my_tools\.py:1 raised SyntaxError"),
        ("x = 1\nraise KeyError('canary')", r"^my_tools\.py:2 raised KeyError$"),
        ("import sys; sys.exit(3)", r"^my_tools\.py:1 raised SystemExit$"),
        ("from processor.executor import tool\n@tool\ndef a(): ...\n", r"a: write @tool\(\)"),
        (
            "from processor.executor import tool\n"
            "@tool(name='a')\ndef a(): ...\n@tool(name='a')\ndef b(): ...\n",
            "two tools are named a",
        ),
    ],
)
def test_a_module_that_cannot_serve_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    """At the start, by name."""
    path = tmp_path / "my_tools.py"
    path.write_text(text)
    with pytest.raises(Misuse, match=problem):
        ToolSet.from_module(str(path))


def test_a_missing_file_is_refused() -> None:
    """By name."""
    with pytest.raises(Misuse, match="is not a file"):
        ToolSet.from_module("none/of/it.py")


async def _async_with_context(context: ToolContext) -> None: ...


def _without_context(order: str) -> None: ...


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (lambda: ToolSet().tool(timeout_s=0)(_without_context), "timeout_s"),
        (lambda: ToolSet().tool(arguments="text")(_without_context), "parameter named arguments"),
        (
            lambda: ToolSet().tool(arguments="text", schema={})(_without_context),
            "free text has no schema",
        ),
        (
            lambda: ToolSet().tool(effect_class="transactional")(_async_with_context),
            "must be a plain function",
        ),
        (
            lambda: ToolSet().tool(effect_class="transactional")(_without_context),
            "parameter named context",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(
    declare: Callable[[], object], problem: str
) -> None:
    """Before any call."""
    with pytest.raises(Misuse, match=problem):
        declare()


def test_function_and_catalogue_are_made_one() -> None:
    """The function's own statement wins where only preference is at stake."""
    served = serve(ToolSet.from_module(__name__), CATALOGUE)["refund"]
    assert (served.effect_class, served.timeout_s) == ("idempotent", 2)
    assert (served.max_attempts, served.concurrency) == (7, 2)
    alone = serve(ToolSet.from_module(__name__))["refund"]
    assert (alone.max_attempts, alone.concurrency, alone.is_async) == (3, 8, False)


def test_a_contradiction_about_the_effect_class_is_refused() -> None:
    """Nobody guesses which of the two is right."""
    tools = ToolSet()
    tools.tool(name="refund", effect_class="read_only")(_without_context)
    with pytest.raises(Misuse, match="the function says read_only, the catalogue idempotent"):
        serve(tools, CATALOGUE)
    text = ToolSet()
    text.tool(name="note")(_without_context)
    with pytest.raises(Misuse, match="disagree about `arguments`"):
        serve(text, CATALOGUE)


# --- results


@pytest.mark.parametrize(
    ("value", "body"),
    [
        (None, b"null"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'.encode()),
        (b"\x00raw", b"\x00raw"),
        ("text", b'"text"'),
    ],
)
def test_a_returned_value_is_stored_as_bytes_or_json(value: object, body: bytes) -> None:
    """With its digest."""
    outcome = outcome_of("succeeded", value)
    assert outcome is not None
    assert (outcome.state, outcome.body, outcome.error_class) == ("succeeded", body, None)
    assert outcome.body_sha256 is not None


@pytest.mark.parametrize(
    ("value", "problem", "has_digest"),
    [
        (object(), "result_not_json", False),
        (float("nan"), "result_not_json", False),
        ("x" * RESULT_BYTES_MAX, "result_too_large", True),
    ],
)
def test_a_value_that_cannot_be_stored_is_still_a_success(
    value: object, problem: str, *, has_digest: bool
) -> None:
    """The effect happened; what is missing is named."""
    outcome = outcome_of("succeeded", value)
    assert outcome is not None
    assert (outcome.state, outcome.body, outcome.error_class) == ("succeeded", None, problem)
    assert (outcome.body_sha256 is not None) is has_digest


# --- crash points


def test_crash_points_need_a_permission_and_a_known_name() -> None:
    """A variable left over from a test must not kill a real executor."""
    assert crash_point_of({}) is never_crash
    with pytest.raises(Misuse, match="TOOLCALLS_ALLOW_CRASH_POINTS"):
        crash_point_of({"TOOLCALLS_CRASH_AT": POINTS[0]})
    with pytest.raises(Misuse, match="no crash point is named here"):
        crash_point_of({"TOOLCALLS_CRASH_AT": "here", "TOOLCALLS_ALLOW_CRASH_POINTS": "1"})
    armed = crash_point_of({"TOOLCALLS_CRASH_AT": POINTS[0], "TOOLCALLS_ALLOW_CRASH_POINTS": "1"})
    armed(POINTS[1])
