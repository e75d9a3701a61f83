"""The table of transitions: every pair is listed, and does to the whole state what is said here."""

from itertools import product
from typing import get_args, get_type_hints

import pytest

from processor.core.assembly import TRANSITIONS, Assembly
from processor.core.call import Call, State
from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.limits import Limits
from processor.core.outcomes import CallCompleted, CallRejected
from processor.core.step import Step
from tests import builders as b

NAME = b.key().encode()
#: Place and time of the event under test; the events before it lie at offsets 0, 1, … and 1,000 ms.
OFFSET, NOW_MS = 10, 2_000
LINGER_MS = Limits().linger_ms

PREFIX: dict[State, list[Body]] = {
    State.NEW: [],
    State.OPEN: [b.started(), b.delta("{}")],
    State.DONE: [b.started(), b.delta("{}"), b.done()],
    State.RELEASED: [b.started(), b.delta("{}"), b.done()],
    State.REJECTED: [b.started(), b.delta("{}"), b.aborted()],
    State.CLOSED: [b.started(), b.delta("{}"), b.done(), b.ended()],
}
#: Changes of the whole state; "closed" stands for a key of which only the last record is known.
Changes = dict[str, object]
LEFT: Changes = {"items": [], "room_bytes": Limits().arguments_bytes_max - 2, "last_ms": NOW_MS}
VOID: Changes = {"expiries_void": 1}
SWALLOWED: Changes = {"last_ms": NOW_MS, "swallowed": 1}
CLOSED: Changes = {"state": State.CLOSED}
LATE: Changes = {"late": 1, "state": State.CLOSED}

ROWS: list[tuple[State, Body, str | None, Changes]] = [
    (State.NEW, b.started(), None, {"state": State.OPEN, "open_count": 1}),
    (State.NEW, b.delta("{}"), "missing_start", CLOSED),
    (State.NEW, b.done(), "missing_start", CLOSED),
    (State.NEW, b.ended(), "missing_start", CLOSED),
    (State.NEW, b.aborted(), "provider_sequence_gap", {"state": State.REJECTED}),
    (State.NEW, b.expired(), None, CLOSED | VOID),
    (State.OPEN, b.started(), "identity_conflict", {"state": State.REJECTED, "last_seq": 2}),
    (
        State.OPEN,
        b.delta("x"),
        None,
        {"items": [b.started(), b"{}", b"x"], "room_bytes": 262_141, "last_ms": NOW_MS},
    ),
    (
        State.OPEN,
        b.done(),
        None,
        {"state": State.DONE, "items": [b.started(), b"{}", b.done()], "last_ms": NOW_MS},
    ),
    (State.OPEN, b.ended(), "stream_ended", CLOSED),
    (State.OPEN, b.aborted(), "provider_sequence_gap", {"state": State.REJECTED, "last_seq": 2}),
    (State.OPEN, b.expired(1), "expired", CLOSED),
    (State.OPEN, b.expired(0), None, VOID),
    (State.OPEN, b.expired(0, cause="max_life"), "expired", CLOSED),
    (State.DONE, b.started(), "identity_conflict", {"state": State.REJECTED, "last_seq": 3}),
    (State.DONE, b.delta("x"), "fragment_after_end", {"state": State.REJECTED, "last_seq": 3}),
    (
        State.DONE,
        b.done("{}"),
        None,
        {
            "items": [b.started(), b"{}", b.done(), b.done("{}")],
            "last_ms": NOW_MS,
            "final_copy_seen": True,
        },
    ),
    (State.DONE, b.ended(), "completed", CLOSED),
    (State.DONE, b.aborted(), "provider_sequence_gap", {"state": State.REJECTED, "last_seq": 3}),
    (State.DONE, b.expired(2), "expired", CLOSED),
    (State.DONE, b.expired(1), None, VOID),
    (State.RELEASED, b.started(), None, SWALLOWED | {"last_seq": 3}),
    (State.RELEASED, b.delta("x"), None, SWALLOWED | {"last_seq": 3}),
    (State.RELEASED, b.done(), None, SWALLOWED | {"last_seq": 3}),
    (State.RELEASED, b.ended(), None, CLOSED),
    (State.RELEASED, b.aborted(), None, SWALLOWED | {"last_seq": 3}),
    (State.RELEASED, b.expired(2), None, CLOSED),
    (State.RELEASED, b.expired(1), None, VOID),
    (State.REJECTED, b.started(), None, SWALLOWED | {"last_seq": 3}),
    (State.REJECTED, b.delta("x"), None, SWALLOWED | {"last_seq": 3}),
    (State.REJECTED, b.done(), None, SWALLOWED | {"last_seq": 3}),
    (State.REJECTED, b.ended(), None, CLOSED),
    (State.REJECTED, b.aborted(), None, SWALLOWED | {"last_seq": 3}),
    (State.REJECTED, b.expired(2), None, CLOSED),
    (State.REJECTED, b.expired(7), None, VOID),
    (State.CLOSED, b.started(), None, LATE),
    (State.CLOSED, b.delta("x"), None, LATE),
    (State.CLOSED, b.done(), None, LATE),
    (State.CLOSED, b.ended(), None, LATE),
    (State.CLOSED, b.aborted(), None, LATE),
    (State.CLOSED, b.expired(), None, LATE),
]


def in_state(state: State) -> Assembly:
    """A fold that tracks the key in `state`."""
    fold = b.assembly(rules=b.one_rule("read_only" if state is State.RELEASED else "at_most_once"))
    for seq, body in enumerate(PREFIX[state]):
        fold.apply(NAME, StreamEvent(seq, body), seq, 1_000)
    return fold


def whole_state(fold: Assembly) -> dict[str, object]:
    """The key's slots, what the fold knows besides, and what it has counted."""
    whole: dict[str, object] = {
        "open_count": fold.open_count,
        "forget_at_ms": fold.forget_at_ms,
        "log_time_ms": fold.log_time_ms,
        "tracked": list(fold.calls),
    }
    for name in fold.counts.__slots__:
        whole[name] = getattr(fold.counts, name)
    return whole | (b.call_state(fold.calls[NAME]) if fold.calls else {})


def closed_call() -> Call:
    """What is left of a key that was closed by the event under test."""
    call = Call(OFFSET, NOW_MS, 1_000, 0)
    call.state = State.CLOSED
    return call


def fresh_call(prior_ms: int) -> Call:
    """A key whose first record is the event under test."""
    return Call(OFFSET, NOW_MS, prior_ms, Limits().arguments_bytes_max)


def test_every_pair_of_state_and_event_is_listed() -> None:
    """The table is total: 6 states, 6 kinds of event."""
    assert set(TRANSITIONS) == set(product(State, get_args(Body)))


def test_each_transition_takes_the_body_that_it_is_listed_for() -> None:
    """The one place that the type checkers do not see: the body type of a row fits its function."""
    for (_, body), transition in TRANSITIONS.items():
        hint = get_type_hints(transition)["step"]
        (taken,) = get_args(hint)
        assert issubclass(Step, hint.__origin__)
        assert body in (get_args(taken) or (taken,))


def test_every_pair_has_a_row_in_this_test() -> None:
    """No pair goes untested."""
    assert {(state, type(body)) for state, body, _, _ in ROWS} == set(TRANSITIONS)


@pytest.mark.parametrize(
    ("state", "body", "said", "changes"),
    ROWS,
    ids=[f"{n}-{row[0].value}-{type(row[1]).__name__}" for n, row in enumerate(ROWS)],
)
def test_a_transition_changes_what_its_row_says_and_nothing_else(
    state: State, body: Body, said: str | None, changes: Changes
) -> None:
    """The whole state after one event equals the state before it plus the row's changes."""
    fold = in_state(state)
    before = whole_state(fold)
    seq = SEQ_NONE if isinstance(body, CallExpired) else len(PREFIX[state])
    outcome = fold.apply(NAME, StreamEvent(seq, body), OFFSET, NOW_MS)

    match outcome:
        case CallCompleted():
            assert said == "completed"
        case CallRejected():
            assert said == outcome.reason
        case None:
            assert said is None
    after = whole_state(fold)
    assert after == expected(state, body, before, changes)


def expected(state: State, body: Body, before: Changes, changes: Changes) -> Changes:
    """The state that a row asks for."""
    was_open = state in (State.OPEN, State.DONE)
    to = changes.get("state", state)
    whole = before | {"log_time_ms": NOW_MS, "tracked": [NAME]}
    if state is State.NEW:
        whole |= b.call_state(fresh_call(-1))
    if was_open and to not in (State.OPEN, State.DONE):
        whole |= LEFT | {"open_count": 0, "text": b"", "judged": None}
    if state is State.OPEN and to is State.DONE:
        fold = in_state(State.DONE)
        whole |= {"text": b"{}", "judged": fold.calls[NAME].judged}
    whole |= changes
    if state is State.NEW and isinstance(body, CallStarted):
        whole |= {"started": body, "items": [body]}
    if state is State.NEW and isinstance(body, CallAborted):
        whole |= {"last_seq": 0}
    if to is State.CLOSED:
        whole |= b.call_state(closed_call()) | {"forget_at_ms": NOW_MS + LINGER_MS}
        if state is State.NEW:
            whole |= {"need_time_ms": -1}
    return whole


@pytest.mark.parametrize(
    "state", [State.RELEASED, State.REJECTED, State.CLOSED], ids=lambda state: state.value
)
@pytest.mark.parametrize("body", [b.started(), b.aborted()], ids=["started", "aborted"])
def test_a_repeated_first_event_is_remembered_until_the_response_ends(
    state: State, body: Body
) -> None:
    """A restart must not take it for a new call; the response's end closes whatever it took."""
    fold = in_state(state)
    before = b.call_state(fold.calls[NAME])
    fold.apply(NAME, StreamEvent(0, body), OFFSET, NOW_MS)
    noted = b.call_state(fold.calls[NAME])
    assert (noted["repeat_offset"], noted["repeat_ms"]) == (OFFSET, NOW_MS)
    assert noted["need_offset"] == before["need_offset"]
    fold.apply(NAME, StreamEvent(0, body), OFFSET + 1, NOW_MS + 5)
    assert fold.calls[NAME].repeat_offset == OFFSET + 1
    assert fold.calls[NAME].repeat_ms == NOW_MS
    fold.apply(NAME, StreamEvent(1, b.ended()), OFFSET + 2, NOW_MS + 5)
    assert fold.calls[NAME].repeat_offset == -1
    assert fold.calls[NAME].need_offset == OFFSET + 2


@pytest.mark.parametrize("state", [State.OPEN, State.DONE], ids=lambda state: state.value)
@pytest.mark.parametrize("body", [b.delta("x"), b.done("x"), b.ended("failed"), b.aborted()])
def test_in_an_open_state_the_sequence_is_judged_first(state: State, body: Body) -> None:
    """Whatever the event is: a jump, another content under a used seq or no seq at all rejects."""
    for seq, reason in ((9, "sequence_gap"), (1, "sequence_conflict"), (-1, "sequence_conflict")):
        fold = in_state(state)
        outcome = fold.apply(NAME, StreamEvent(seq, body), OFFSET, NOW_MS)
        assert isinstance(outcome, CallRejected)
        assert outcome.reason == reason
        after = State.CLOSED if isinstance(body, ResponseEnded) else State.REJECTED
        assert fold.calls[NAME].state is after


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_an_equal_repeat_of_an_open_call_only_counts(seq: int) -> None:
    """Nothing but the two counters moves, not even the time that idle expiry looks at."""
    fold = in_state(State.DONE)
    before = whole_state(fold)
    outcome = fold.apply(NAME, StreamEvent(seq, PREFIX[State.DONE][seq]), OFFSET, 1_000)
    assert outcome is None
    changed: Changes = {"duplicates": 1}
    if seq == 0:
        changed |= {"repeat_offset": OFFSET, "repeat_ms": 1_000}
    # `duplicates` is a slot of the call and a counter of the fold, both are 1 now.
    assert fold.counts.duplicates == 1
    assert whole_state(fold) == before | changed


def test_only_seq_0_begins_a_call_or_reports_one_that_never_began() -> None:
    """CallStarted and CallAborted under another seq are a call whose start is missing."""
    for body in (b.started(), b.aborted()):
        fold = b.assembly()
        outcome = fold.apply(NAME, StreamEvent(1, body), 0, 0)
        assert isinstance(outcome, CallRejected)
        assert outcome.reason == "missing_start"
        assert outcome.key == b.key()
        assert outcome.tool is None
        assert outcome.dialect is None


def test_an_aborted_call_without_start_swallows_until_the_response_ends() -> None:
    """The publisher's report comes once; the end of the response that follows is not reported."""
    fold = b.assembly()
    events = b.numbered([b.aborted("tool_name_missing"), b.delta("{}"), b.ended()])
    late = b.log(events)
    late[2] = late[2]._replace(timestamp_ms=10_000_000)
    assert b.only_rejected(b.feed(fold, late)).reason == "tool_name_missing"


def test_a_late_first_event_does_not_keep_a_closed_key_alive() -> None:
    """Otherwise a publisher that repeats only it would pin the low-water mark for good."""
    fold = in_state(State.CLOSED)
    forget_at_ms = fold.forget_at_ms
    fold.apply(NAME, StreamEvent(0, b.started()), OFFSET, forget_at_ms - 1)
    assert fold.forget_at_ms == forget_at_ms
    fold.apply(NAME, StreamEvent(0, b.started()), OFFSET + 1, forget_at_ms)
    assert fold.calls[NAME].state is State.OPEN


def test_any_other_late_event_keeps_a_closed_key_for_another_linger() -> None:
    """It is forgotten `linger_ms` after its last record, not after the one that closed it."""
    fold = in_state(State.CLOSED)
    for n in range(5):
        fold.apply(NAME, StreamEvent(9, ArgumentsDelta(b"x")), OFFSET + n, 1_000 + 9_999 * (n + 1))
    assert fold.counts.late == 5
    assert fold.forget_at_ms == 1_000 + 9_999 * 5 + LINGER_MS
    outcome = fold.apply(NAME, StreamEvent(9, ArgumentsDone()), 90, fold.forget_at_ms)
    assert isinstance(outcome, CallRejected)
    assert outcome.reason == "missing_start"


def test_a_record_without_event_moves_log_time_and_forgets() -> None:
    """`advance` is what the runtime calls for a record that holds no readable event."""
    fold = in_state(State.CLOSED)
    fold.advance(fold.forget_at_ms - 1)
    assert list(fold.calls) == [NAME]
    fold.advance(5)
    assert fold.log_time_ms == 1_000 + LINGER_MS - 1
    fold.advance(1_000 + LINGER_MS)
    assert not fold.calls
    assert fold.low_water(77) == (77, 1_000 + LINGER_MS)
