"""What a tool may say of itself: words and numbers within bounds, nothing that could quote."""

from collections.abc import ItemsView
from typing import cast

import pytest

from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.executor import NotSent, ToolContext, ToolFailed, ToolSet
from processor.executor.kafka_source import trace_headers
from processor.executor.log_observer import LogObserver
from processor.executor.raised import why_raised
from processor.executor.results import outcome_of
from processor.executor.runner import Ran
from tests.unit.executor.runner_rig import Rig, call_of

CANARY = "canary-31"


class Sealed(dict[str, object]):
    """Breaks when it is read."""

    def items(self) -> ItemsView[str, object]:  # type: ignore[override]  # a broken mapping
        """Raise."""
        raise KeyError(CANARY)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("card_declined", "card_declined"),
        ("x" * 64, "x" * 64),
        ("x" * 65, "tool_failed"),
        ("", "tool_failed"),
        (f"declined for {CANARY}", "tool_failed"),
        ("Declined", "tool_failed"),
        ("word\n", "tool_failed"),
        (402, "tool_failed"),
        (None, "tool_failed"),
    ],
)
def test_an_error_class_is_a_short_word_or_replaced(given: object, stored: str) -> None:
    """Also when it is set afterwards."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class="at_most_once")
    def refund(order: str) -> None:
        failed = ToolFailed("word")
        failed.error_class = cast("str", given)
        raise failed

    assert ToolFailed(cast("str", given)).error_class == stored
    rig = Rig(tools)
    call = call_of()
    assert rig.run(call) == Ran("settled", "failed")
    assert rig.result(call).error_class == stored


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (5, 5),
        (0, 0),
        (-1, 0),
        (1e15, 86_400),
        (float("inf"), 86_400),
        (float("-inf"), 0),
        (float("nan"), 1),
        (10**400, 86_400),
        ("soon", 1),
        (False, 0),
    ],
)
def test_a_delay_is_brought_inside_its_bounds(given: object, kept: float) -> None:
    """A call that was not sent must not end the process by a wrong number."""
    assert NotSent(retry_after_s=cast("float", given)).retry_after_s == kept


@pytest.mark.parametrize(
    ("effect_class", "word"),
    [("at_most_once", "in_doubt"), ("reconcilable", "in_doubt"), ("read_only", "ready")],
)
def test_a_result_that_breaks_while_it_is_read_leaves_the_outcome_unknown(
    effect_class: EffectClass, word: str
) -> None:
    """By class, with a word of its own."""
    assert outcome_of("succeeded", Sealed(a=1)) is None
    tools = ToolSet()

    @tools.tool(name="refund", effect_class=effect_class)
    def refund(order: str) -> object:
        return Sealed(a=1)

    rig = Rig(tools)
    call = call_of()
    assert rig.run(call) == Ran("parked", word)
    history = rig.ledger.history("acme", call.key.idempotency_key)
    assert history[-1].why == "result_unreadable"


def test_a_definite_no_with_an_unreadable_body_stays_a_no() -> None:
    """Only the body is missing."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class="at_most_once")
    def refund(order: str) -> None:
        raise ToolFailed("declined", result=Sealed(a=1))

    rig = Rig(tools)
    call = call_of()
    assert rig.run(call) == Ran("settled", "failed")
    assert (rig.result(call).error_class, rig.result(call).body) == ("declined", None)


def test_a_transactional_tool_that_never_returns_is_given_up_at_its_limit() -> None:
    """Its transaction is undone, so it may run again."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class="transactional", timeout_s=0.01)
    def refund(order: str, context: ToolContext) -> None:
        import threading

        threading.Event().wait()

    rig = Rig(tools)
    call = call_of()
    assert rig.run(call) == Ran("parked", "ready")
    assert rig.ledger.history("acme", call.key.idempotency_key)[-1].why == "timed_out"


def test_what_was_raised_is_named_by_type_and_place() -> None:
    """The innermost line of the tool's own file, not of a library below it."""
    error = BaseException()
    try:
        int(CANARY)
    except ValueError as e:
        error = e
    why = why_raised(error, test_what_was_raised_is_named_by_type_and_place)
    assert why.startswith("raised:ValueError test_tools_own_words.py:")
    assert CANARY not in why
    odd = type("declined for " + CANARY, (Exception,), {})()
    assert why_raised(odd, print) == "raised:exception"


class Unreadable:
    """A message with a header name that is not UTF-8, as the client answers it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def headers(self) -> list[tuple[str, bytes]]:
        """Raise."""
        raise self._error


@pytest.mark.parametrize(
    "error", [UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"), SystemError("x")]
)
def test_headers_that_cannot_be_read_cost_the_trace_and_not_the_call(error: Exception) -> None:
    """A foreign header is no reason to stop."""
    assert trace_headers(Unreadable(error)) == {}


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def info(self, event: str, **fields: object) -> None:
        """Keep."""
        self.lines.append((event, fields))

    warning = error = info


def test_a_skipped_call_is_told_once_and_by_a_name_that_we_know() -> None:
    """A model may ask for any name; repeats are thinned out."""
    log = Lines()
    observer = LogObserver(log, listed=frozenset({"refund"}))  # type: ignore[arg-type]  # keeps lines
    key = CallKey("acme", "req_1", "resp_1", "call_1")
    observer.started("group-1", "0", ["lookup"])
    for _ in range(5):
        observer.skipped(key, "refund")
        observer.skipped(key, CANARY)
    assert log.lines[0] == (
        "executor_started",
        {"group": "group-1", "slot": "0", "tools": ["lookup"]},
    )
    told = [(event, fields["tool"]) for event, fields in log.lines[1:]]
    assert told == [("call_skipped", "refund"), ("call_skipped", "_other")]
    assert observer.counts["skipped", "_other", ""] == 5
