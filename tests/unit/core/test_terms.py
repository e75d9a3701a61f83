"""A change of terms counts from one record on: what was decided before stays decided."""

from processor.core.assembly import Assembly, Place
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.gate import NoCatalogue, ToolRule
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.outcomes import CallCompleted, CallRejected, Outcome
from processor.core.terms import Terms, TermsMark

KEY = CallKey("acme", "req_1", "resp_1", "call_A")
START = CallStarted(*KEY, tool="lookup_order", dialect="openai-chat")


class ReadOnly:
    """Every tool is read-only."""

    digest: str | None = "read-only"

    def rule(self, tool: str) -> ToolRule:
        """The same rule for every tool."""
        del tool
        return ToolRule("read_only")


def assembly() -> Assembly:
    """A fold under the default terms."""
    return Assembly(Place("events", 0), Limits(linger_ms=100), NoCatalogue())


def apply(fold: Assembly, seq: int, body: Body, time_ms: int = 0) -> Outcome | None:
    """One event of the call."""
    return fold.apply(KEY.encode(), StreamEvent(seq, body), seq, time_ms)


def test_the_class_in_force_at_the_calls_own_end_decides_when_it_leaves() -> None:
    """Adopted before its end a call leaves early, adopted after it waits as it did."""
    for before_end in (True, False):
        fold = assembly()
        apply(fold, 0, START)
        apply(fold, 1, ArgumentsDelta(b"{}"))
        if before_end:
            fold.adopt(Terms(Limits(), ReadOnly()))
        at_call_end = apply(fold, 2, ArgumentsDone())
        if not before_end:
            fold.adopt(Terms(Limits(), ReadOnly()))
        at_response_end = apply(fold, 3, ResponseEnded("completed"))
        assert isinstance(at_call_end, CallCompleted) is before_end
        assert isinstance(at_response_end, CallCompleted) is not before_end


def test_a_lowered_limit_rejects_an_open_call_when_it_grows_on() -> None:
    """It is not silent: the next fragment above the limit is named."""
    fold = assembly()
    apply(fold, 0, START)
    apply(fold, 1, ArgumentsDelta(b"{"))
    fold.adopt(Terms(Limits(fragments_max=1), NoCatalogue()))
    outcome = apply(fold, 2, ArgumentsDelta(b"}"))
    assert isinstance(outcome, CallRejected)
    assert outcome.reason == "too_many_fragments"


def test_a_new_linger_counts_for_keys_that_are_closed_already() -> None:
    """What is forgotten next follows from today's terms."""
    fold = assembly()
    apply(fold, 0, START)
    apply(fold, 1, ResponseEnded("cancelled"))
    assert fold.forget_at_ms == 100
    fold.adopt(Terms(Limits(linger_ms=7), NoCatalogue(), wait_for_response=True))
    assert fold.forget_at_ms == 7
    assert fold.wait_for_response


def test_the_mark_names_the_catalogue_by_its_digest() -> None:
    """Limits and release setting are written down, the catalogue is named."""
    terms = Terms(Limits(depth_max=3), ReadOnly(), wait_for_response=True)
    assert terms.mark == TermsMark("read-only", Limits(depth_max=3), wait_for_response=True)
