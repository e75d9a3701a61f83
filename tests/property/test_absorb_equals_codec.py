"""The delta fast path and the codec leave the same state, whatever the bytes are."""

from hypothesis import given, settings
from hypothesis import strategies as st

from processor.codec.records import Undecodable, encode_event
from processor.core.assembly import Assembly, Place
from processor.core.call import Call
from processor.core.events import ArgumentsDelta, ArgumentsDone, Body, CallStarted, StreamEvent
from processor.core.gate import NoCatalogue
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.outcomes import Outcome
from processor.core.terms import Terms
from processor.runtime.absorb import Absorber, Message
from processor.runtime.outbox import Outbox, OutputRecord
from processor.runtime.task import Task

KEYS = [CallKey("acme", f"req_{n}", "resp_1", "call_A") for n in range(2)]
LIMITS = Limits(arguments_bytes_max=300, fragments_max=8_200)


class Record:
    """One consumed record."""

    def __init__(self, offset: int, key: bytes, value: bytes, timestamp_ms: int) -> None:
        self._fields = (offset, key, value, timestamp_ms)

    def error(self) -> None:
        """No error."""

    def partition(self) -> int:
        """The only partition."""
        return 0

    def offset(self) -> int:
        """Its offset."""
        return self._fields[0]

    def timestamp(self) -> tuple[int, int]:
        """Create time."""
        return 1, self._fields[3]

    def key(self) -> bytes:
        """Its key."""
        return self._fields[1]

    def value(self) -> bytes:
        """Its value."""
        return self._fields[2]

    def headers(self) -> None:
        """No headers."""


class Collector:
    """Keeps what the fold says, unencoded."""

    def __init__(self) -> None:
        self.said: list[object] = []

    def outcome(self, outcome: Outcome, message: Message) -> OutputRecord:
        """Keep an outcome."""
        self.said.append((message.offset(), outcome))
        return OutputRecord("", None, None, [])

    def dead_letter(self, message: Message, refusal: Undecodable) -> OutputRecord:
        """Keep the place and code of a refusal."""
        self.said.append((message.offset(), refusal.code))
        return OutputRecord("", None, None, [])


def fold(records: list[Record], *, fast: bool) -> tuple[object, ...]:
    """State and outputs after `records`; `fast` False takes the heads away from the fast path."""
    collector = Collector()
    absorber = Absorber(
        collector, value_bytes_max=10_000, fragments_max=LIMITS.fragments_max if fast else -1
    )
    assembly = Assembly(Place("events", 0), LIMITS, NoCatalogue())
    task = Task(
        0,
        assembly,
        start_offset=0,
        mute_below=0,
        committed_offset=None,
        topic_id="",
        partitions=1,
        terms=Terms(LIMITS, NoCatalogue()),
        since=0,
    )
    outbox: Outbox = []
    absorber.absorb(records, {0: task}, outbox)
    calls = {
        key: [getattr(call, slot) for slot in Call.__slots__]
        for key, call in assembly.calls.items()
    }
    return calls, assembly.log_time_ms, collector.said, task.next_offset


fragments = st.one_of(st.binary(max_size=5), st.binary(min_size=50, max_size=140))
at_values = st.sampled_from([None, 0, 1, 255, 1_764_550_000_000, 2**45, 2**62])


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Deltas in and out of order, other events, and bytes that were tampered with."""
    records: list[Record] = []
    seqs = [0, 0]
    for offset in range(draw(st.integers(1, 30))):
        which = draw(st.integers(0, 1))
        seq = seqs[which]
        if seq == 0:
            body: CallStarted | ArgumentsDelta | ArgumentsDone = CallStarted(
                *KEYS[which], tool="lookup_order", dialect="openai-chat"
            )
        elif draw(st.integers(0, 15)) == 0:
            body = ArgumentsDone(None)
        else:
            body = ArgumentsDelta(draw(fragments))
        jump = draw(st.sampled_from([0, 0, 0, 0, 0, 1, -1]))
        value = encode_event(StreamEvent(max(0, seq + jump), body, draw(at_values)))
        seqs[which] += 1
        if draw(st.integers(0, 9)) == 0:
            place = draw(st.integers(0, len(value) - 1))
            value = value[:place] + draw(st.binary(max_size=2)) + value[place + 1 :]
        records.append(Record(offset, KEYS[which].encode(), value, draw(st.integers(0, 30_000))))
    return records


@settings(max_examples=500, deadline=None)
@given(logs())
def test_fast_path_and_codec_leave_the_same_state_and_outputs(records: list[Record]) -> None:
    """Any log, tampered bytes included, is folded alike by both ways."""
    assert fold(records, fast=True) == fold(records, fast=False)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**14), st.data())
def test_long_calls_take_the_fast_path_alike(tail: int, data: st.DataObject) -> None:
    """Seqs of one, two and three bytes of varint are read alike."""
    key = KEYS[0]
    size = data.draw(st.sampled_from([3, 70, 130, 8_195])) + tail % 5
    bodies: list[Body] = [CallStarted(*key, tool="t", dialect="d"), *([ArgumentsDelta(b"")] * size)]
    records = [
        Record(n, key.encode(), encode_event(StreamEvent(n, body, 1_764_550_000_000)), n)
        for n, body in enumerate(bodies)
    ]
    assert fold(records, fast=True) == fold(records, fast=False)
