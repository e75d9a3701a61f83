"""The low-water mark: named logs in which a careless restart would differ, and that it moves on.

The wild search for such logs is in tests/property/test_core_restart.py.
"""

from typing import NamedTuple

import pytest

from processor.core.assembly import Assembly
from processor.core.call import OPEN_STATES, State
from processor.core.events import SEQ_NONE, Body, CallExpired, StreamEvent
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.low_water import LowWater, Spans
from tests import builders as b
from tests.builders import Record

LINGER_MS = 10
A, B, C = (b.key(f"call_{name}") for name in "ABC")


class On(NamedTuple):
    """An event of a call, and how long after the record before it."""

    of: CallKey
    seq: int
    body: Body
    after_ms: int = 0


def records_of(ons: list[On]) -> list[Record]:
    """A log, one offset apart."""
    records: list[Record] = []
    clock_ms = 0
    for offset, on in enumerate(ons):
        clock_ms += on.after_ms
        seq = SEQ_NONE if isinstance(on.body, CallExpired) else on.seq
        event = StreamEvent(seq, on.body)
        records.append(Record(on.of.encode(), event, offset, clock_ms))
    return records


def assert_sound(ons: list[On], limits: Limits, after_ms: int) -> Assembly:
    """Restart at every commit position, compare states, and return the fold that never stopped."""
    records = records_of(ons)
    steady, store = b.assembly(limits), b.CheckpointStore()
    for count in range(len(records) + 1):
        store.commit(steady, count, after_ms)
        low = store.low
        again = b.assembly(limits, log_time_ms=low.log_time_ms, checkpoints=store.checkpoints())
        again.resume(low.offset)
        b.feed(again, records[low.offset : count])
        again.resume(count)
        assert b.tracked_state(again) == b.tracked_state(steady), f"restart at {low} for {count}"
        if count < len(records):
            b.feed(steady, records[count : count + 1])
        repeated = {name for name, call in steady.calls.items() if call.repeat_offset >= 0}
        seen_again = repeated - open_keys(steady) - steady.checkpoints.held
        assert steady._reopenable == seen_again
    return steady


def open_keys(fold: Assembly) -> set[bytes]:
    """Keys that are counted as open calls."""
    return {name for name, call in fold.calls.items() if call.state in OPEN_STATES}


START_B = On(B, 0, b.started(B))
FORGET = On(C, 1, b.delta("x"), LINGER_MS)
LOGS: dict[str, list[On]] = {
    "late events after an expiry": [
        On(A, 0, b.started(A)),
        START_B,
        On(A, 0, b.expired(0)),
        On(A, 1, b.delta("late")),
        FORGET,
    ],
    "a repeat before an expiry": [
        On(A, 0, b.started(A)),
        On(A, 1, b.delta("x")),
        START_B,
        On(A, 0, b.started(A)),
        On(A, 0, b.expired(1)),
        FORGET,
    ],
    "a late start without an end": [
        On(A, 0, b.started(A)),
        On(A, 1, b.ended()),
        START_B,
        On(A, 0, b.started(A)),
        FORGET,
    ],
    "a late start, and an event much later": [
        On(A, 0, b.started(A)),
        On(A, 1, b.ended()),
        START_B,
        On(A, 0, b.started(A)),
        On(A, 1, b.delta("x"), LINGER_MS - 1),
        On(A, 2, b.delta("x"), LINGER_MS - 1),
        FORGET,
    ],
    "a late abort without an end": [
        On(A, 0, b.started(A)),
        On(A, 1, b.ended()),
        START_B,
        On(A, 0, b.aborted()),
        FORGET,
    ],
    "a whole redelivery after the end": [
        On(A, 0, b.started(A)),
        On(A, 1, b.done("{}")),
        On(A, 2, b.ended()),
        START_B,
        On(A, 0, b.started(A)),
        On(A, 1, b.done("{}")),
        On(A, 2, b.ended()),
        FORGET,
    ],
    "a count that older calls made": [
        On(A, 0, b.started(A)),
        START_B,
        On(C, 0, b.started(C)),
        On(A, 1, b.ended()),
        FORGET._replace(of=A),
    ],
    "a count that a repeat would make": [
        On(A, 0, b.started(A)),
        On(A, 1, b.done()),
        START_B,
        On(A, 0, b.started(A)),
        On(A, 1, b.delta("x")),
        On(C, 0, b.started(C)),
        On(A, 2, b.ended()),
        FORGET._replace(of=b.key("call_D")),
    ],
    "a count that a swallowed start would make": [
        On(A, 0, b.started(A)),
        On(A, 1, b.aborted()),
        START_B,
        On(A, 0, b.started(A)),
        On(C, 0, b.started(C)),
        On(A, 2, b.ended()),
        FORGET._replace(of=b.key("call_D")),
    ],
    "a missing start that goes on and pauses": [
        On(A, 4, b.delta("x")),
        START_B,
        On(A, 5, b.delta("x"), LINGER_MS - 1),
        On(A, 6, b.delta("x"), LINGER_MS),
        On(A, 7, b.ended()),
        FORGET,
    ],
    "an expiry of a key that nobody knows": [
        On(A, 0, b.expired(3)),
        START_B,
        On(A, 0, b.started(A), LINGER_MS - 1),
        On(A, 0, b.started(A), 1),
    ],
}


@pytest.mark.parametrize("after_ms", [0, LINGER_MS, 1_000_000])
@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS.keys())
def test_a_restart_is_sound_at_every_position_of(log: list[On], after_ms: int) -> None:
    """The state after the re-fold equals that of the fold that never stopped, slot by slot.

    Whether checkpoints are written at once, after a while, or only where they must be.
    """
    assert_sound(log, Limits(open_calls_max=2, linger_ms=LINGER_MS), after_ms)


def test_an_open_call_holds_the_mark_at_its_first_record_and_a_closed_one_at_its_last() -> None:
    """Times are the log time just before the record; with nothing tracked, of the position."""
    fold = b.assembly(Limits(linger_ms=LINGER_MS))
    log = records_of(
        [
            On(A, 0, b.started(A), 50),
            On(B, 0, b.started(B), 5),
            On(A, 1, b.done("{}"), 1),
            On(A, 2, b.ended(), 1),
            On(B, 1, b.ended(), 1),
        ]
    )
    lows: list[LowWater] = []
    for record in log:
        b.feed(fold, [record])
        lows.append(fold.low_water(record.offset + 1))
    assert lows == [(0, -1), (0, -1), (0, -1), (1, 50), (3, 56)]
    fold.advance(10_000)
    assert fold.low_water(5) == (5, 10_000)


def test_a_publisher_that_ends_every_call_twice_does_not_hold_the_mark() -> None:
    """Each second end comes after the next call's; a restart at it finds the key closed by it."""
    fold = b.assembly(Limits(linger_ms=LINGER_MS))
    ons: list[On] = []
    for n in range(300):
        of, before = b.key(f"call_{n}"), b.key(f"call_{n - 1}")
        ons += [On(of, 0, b.started(of), 1), On(of, 1, b.done("{}")), On(of, 2, b.ended())]
        ons += [On(before, 2, b.ended())]
    records = records_of(ons)
    b.feed(fold, records)
    assert len(records) - fold.low_water(len(records)).offset <= 4 * (LINGER_MS + 2)
    assert len(fold._spans) == 0


def test_whole_calls_that_come_twice_leave_no_span() -> None:
    """A redelivery with its end closes whatever a restart in the middle of it takes it for."""
    fold = b.assembly(Limits(linger_ms=LINGER_MS))
    events = b.call_events(["{}"])
    for n in range(50):
        of = b.key(f"call_{n}")
        whole = [
            record._replace(timestamp_ms=n)
            for record in b.log([*events, *events], of=of, first_offset=8 * n)
        ]
        b.feed(fold, whole)
    fold.advance(1_000)
    assert len(fold._spans) == 0
    assert not fold.calls
    assert not fold._reopenable


def test_a_late_start_that_goes_on_without_end_holds_the_mark_for_one_linger_only() -> None:
    """After that a span is left behind, and the mark moves on with the key's last record."""
    fold = b.assembly(Limits(linger_ms=LINGER_MS))
    log = records_of(
        [
            On(A, 0, b.started(A)),
            On(A, 1, b.ended()),
            On(A, 0, b.started(A), 1),
            *[On(A, 1, b.delta("x"), 1)] * 30,
        ]
    )
    lows: list[int] = []
    for record in log:
        b.feed(fold, [record])
        lows.append(fold.low_water(record.offset + 1).offset)
    assert fold.calls[A.encode()].state is State.CLOSED
    held = 3 + LINGER_MS - 1
    assert lows == [0] + [1] * (held - 1) + list(range(held, len(log)))


def test_a_start_that_is_judged_by_the_count_gets_a_checkpoint_with_the_next_commit() -> None:
    """A restart may count otherwise, so it must not decide again; and the mark may move on."""
    fold = b.assembly(Limits(open_calls_max=1))
    b.feed(fold, records_of([On(A, 0, b.started(A))]))
    for n in range(1, 100):
        of = b.key(f"other_{n}")
        fold.apply(of.encode(), StreamEvent(0, b.started(of)), n, 0)
    written = fold.take_checkpoints(100, after_ms=1_000_000)
    assert [item.key for item in written] == [b.key(f"other_{n}").encode() for n in range(1, 100)]
    assert {item.call.state for item in written if item.call} == {State.REJECTED}
    assert len(fold._spans) == 0
    assert fold.low_water(100).offset == 0
    fold.advance(1)
    own = fold.take_checkpoints(101, after_ms=0)
    assert own[0].key == A.encode()
    assert fold.low_water(101).offset == 101


def spans(*given: tuple[int, int]) -> Spans:
    """Spans by cause and decision; the log time of a cause is ten times its offset."""
    built = Spans()
    for cause, decision in given:
        built.add(LowWater(cause, cause * 10), decision)
    return built


@pytest.mark.parametrize(
    ("given", "lows"),
    [
        ([], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ([(2, 4)], [0, 1, 2, 2, 2, 5, 6, 7, 8, 9]),
        ([(2, 4), (6, 8)], [0, 1, 2, 2, 2, 5, 6, 6, 6, 9]),
        ([(6, 8), (2, 4)], [0, 1, 2, 2, 2, 5, 6, 6, 6, 9]),
        ([(2, 5), (4, 8)], [0, 1, 2, 2, 2, 2, 2, 2, 2, 9]),
        ([(4, 8), (2, 5)], [0, 1, 2, 2, 2, 2, 2, 2, 2, 9]),
        ([(2, 4), (4, 6)], [0, 1, 2, 2, 2, 2, 2, 7, 8, 9]),
        ([(2, 8), (4, 5)], [0, 1, 2, 2, 2, 2, 2, 2, 2, 9]),
        ([(1, 3), (6, 8), (2, 7)], [0, 1, 1, 1, 1, 1, 1, 1, 1, 9]),
    ],
)
def test_low_falls_back_to_the_cause_of_its_span(
    given: list[tuple[int, int]], lows: list[int]
) -> None:
    """A span is open at its cause and closed at its decision; those that touch are one."""
    for low, settled in enumerate(lows):
        assert spans(*given).settle(LowWater(low, low * 10)) == (settled, settled * 10)


def test_spans_below_low_are_dropped() -> None:
    """They can never matter again."""
    built = spans((2, 4), (6, 8), (10, 12))
    assert len(built) == 3
    assert built.settle(LowWater(9, 0)) == (9, 0)
    assert len(built) == 1
    assert built.settle(LowWater(12, 0)) == (10, 100)
    assert built.settle(LowWater(13, 0)) == (13, 0)
    assert len(built) == 0
