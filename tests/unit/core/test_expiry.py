"""Which keys are due, and that the fold has the last word."""

import pytest

from processor.core.assembly import Assembly, Place
from processor.core.errors import Misuse
from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.expiry import Due, ExpiryLimits, due
from processor.core.gate import NoCatalogue
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.outcomes import CallRejected

LIMITS = ExpiryLimits(idle_ttl_ms=100, max_life_ms=1_000)
KEY = CallKey("acme", "req_1", "resp_1", "call_A")
START = CallStarted(*KEY, tool="lookup_order", dialect="openai-chat")


def fold(*events: tuple[int, Body]) -> Assembly:
    """An assembly after `events`, each with its log time; seq counts on."""
    assembly = Assembly(Place("events", 0), Limits(), NoCatalogue())
    for seq, (time_ms, body) in enumerate(events):
        assembly.apply(KEY.encode(), StreamEvent(seq, body), seq, time_ms)
    return assembly


def test_a_silent_call_is_due_at_its_idle_limit_and_not_before() -> None:
    """The limit counts from the last event of the call."""
    assembly = fold((0, START), (50, ArgumentsDelta(b"{")))
    assert list(due(assembly, 149, LIMITS)) == []
    assert list(due(assembly, 150, LIMITS)) == [Due(KEY.encode(), CallExpired("idle", 1))]


def test_a_call_that_lived_too_long_is_due_however_busy_it_is() -> None:
    """The limit counts from the first event of the call."""
    assembly = fold((0, START), (990, ArgumentsDelta(b"{")))
    assert list(due(assembly, 999, LIMITS)) == []
    assert list(due(assembly, 1_000, LIMITS)) == [Due(KEY.encode(), CallExpired("max_life", 1))]


def test_a_rejected_call_is_due_too_and_a_closed_one_is_not() -> None:
    """A rejected key holds the low-water mark until its response ends."""
    rejected = fold((0, START), (1, CallAborted("truncated")))
    assert [found.key for found in due(rejected, 200, LIMITS)] == [KEY.encode()]
    closed = fold((0, START), (1, ResponseEnded("cancelled")))
    assert list(due(closed, 200, LIMITS)) == []


def test_an_expiry_does_nothing_when_the_call_moved_on() -> None:
    """What stands between the proposal and the reading of it in the log decides."""
    assembly = fold((0, START))
    [proposed] = due(assembly, 100, LIMITS)
    assembly.apply(KEY.encode(), StreamEvent(1, ArgumentsDelta(b"{")), 1, 101)
    expiry = StreamEvent(SEQ_NONE, proposed.event)
    assert assembly.apply(KEY.encode(), expiry, 2, 102) is None
    [later] = due(assembly, 300, LIMITS)
    outcome = assembly.apply(KEY.encode(), StreamEvent(SEQ_NONE, later.event), 3, 300)
    assert isinstance(outcome, CallRejected)
    assert (outcome.reason, outcome.stage) == ("expired", "expiry")
    assert list(due(assembly, 10_000, LIMITS)) == []


@pytest.mark.parametrize("limits", [ExpiryLimits(0, 10), ExpiryLimits(11, 10)])
def test_contradictory_limits_are_refused_by_name(limits: ExpiryLimits) -> None:
    """Idle time is positive and not above the life."""
    with pytest.raises(Misuse, match="idle_ttl_ms"):
        limits.checked()
    assert LIMITS.checked() is LIMITS
