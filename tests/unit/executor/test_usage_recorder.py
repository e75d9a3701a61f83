"""The usage recorder's loop on a topic in memory: committed only behind the database, nothing twice."""

from collections.abc import Mapping, Sequence

import pytest

from processor.codec.records import decode_usage, encode_usage, usage_key
from processor.core.errors import Misuse, Transient
from processor.core.usage import ResponseUsage
from processor.executor.errors import Unreachable
from processor.executor.meter_host import LogMeterObserver
from processor.executor.sink import TOO_LARGE_CODE, SinkRecord
from processor.executor.source import Assigned, Delivered, Listener
from processor.executor.usage_recorder import MeterSettings, UsageRecorder
from processor.ledger.memory import MemoryLedger
from processor.ledger.usage import Selection
from processor.telemetry.logging import make_logger

TOPIC = "toolcalls.usage.v1"


def usage(number: int, **counters: int | None) -> ResponseUsage:
    """What one response used."""
    given = {"input_tokens": 10, "output_tokens": 5, **counters}
    return ResponseUsage("acme", f"req_{number}", f"resp_{number}", "openai-chat", "m", **given)  # type: ignore[arg-type]  # counters only


class Topic:
    """One partition, read from the committed offset by each member."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes | None, bytes | None]] = []
        self.committed = 0
        self.paused = False
        self.next_offset = 0
        self.listener: Listener | None = None
        self.refuse_commits = False

    @property
    def topic(self) -> str:
        """Its name."""
        return TOPIC

    def put(self, *reports: ResponseUsage) -> None:
        """Reports, each as a record."""
        self.records += [(usage_key(u), encode_usage(u)) for u in reports]

    def subscribe(self, listener: Listener) -> None:
        """Join; the partition comes at once."""
        self.listener = listener
        self.next_offset = self.committed
        listener.assigned([Assigned(0, self.committed, fresh=False)])

    def poll(self, timeout_s: float) -> Delivered | None:
        """The next record."""
        if self.paused or self.next_offset >= len(self.records):
            return None
        offset = self.next_offset
        self.next_offset += 1
        key, value = self.records[offset]
        return Delivered(TOPIC, 0, offset, key, value, {}, timestamp_ms=1_764_547_200_000)

    def pause(self) -> None:
        """Deliver nothing."""
        self.paused = True

    def resume(self) -> None:
        """Deliver again."""
        self.paused = False

    def commit(self, next_offsets: Mapping[int, int]) -> bool:
        """Store."""
        if self.refuse_commits:
            return False
        self.committed = next_offsets[0]
        return True

    def close(self) -> None:
        """Leave."""


class Letters:
    """A dead-letter topic that may refuse."""

    def __init__(self) -> None:
        self.records: list[SinkRecord] = []
        self.bytes_max = 1_000
        self.answers: list[str] = []

    @property
    def topic(self) -> str:
        """Its name."""
        return "toolcalls.deadletter.v1"

    def publish(self, records: Sequence[SinkRecord]) -> list[str | None]:
        """Take it, or not."""
        (record,) = records
        if self.answers:
            return [self.answers.pop(0)]
        if len(record.value or b"") > self.bytes_max:
            return [TOO_LARGE_CODE]
        self.records.append(record)
        return [None]


class Clock:
    """Each look at it takes a moment, so that batches end."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        """Now."""
        self.now_s += 0.01
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


class KilledError(Exception):
    """The process is gone."""


class Rig:
    """One recorder after another on one topic and one book."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger(lambda: 1_800_000_000_000)
        self.topic = Topic()
        self.letters = Letters()
        self.observer = LogMeterObserver(make_logger("usage-test"))
        self.stopping = False

    def run(self, *, crash_at: str | None = None, patience_s: float = 30.0) -> None:
        """A process from start to idleness."""

        def crash(point: str) -> None:
            if point == crash_at:
                raise KilledError

        UsageRecorder(
            self.topic,
            self.ledger.usage,
            self.letters,
            decode=decode_usage,
            settings=MeterSettings(idle_end_s=1.0, patience_s=patience_s),
            clock=Clock(),
            observer=self.observer,
            stop_requested=lambda: self.stopping,
            crash_point=crash,
        ).run()

    def totals(self) -> tuple[int, int | None, int]:
        """Responses, their input tokens, corrected ones."""
        found = self.ledger.usage.usage_totals((), Selection())
        return (
            (found[0].responses, found[0].input_tokens, found[0].corrected)
            if found
            else (0, None, 0)
        )


@pytest.mark.parametrize(
    "point", ["before_record", "after_record", "after_dead_letters", "before_commit"]
)
def test_a_process_that_ends_between_database_and_offset_adds_nothing(point: str) -> None:
    """Every record twice on the topic, and read again from the start."""
    rig = Rig()
    rig.topic.put(*[usage(n) for n in range(5)], *[usage(n) for n in range(5)])
    rig.topic.records.append((b"no key", b"\x00"))
    with pytest.raises(KilledError):
        rig.run(crash_at=point)
    assert rig.topic.committed == 0
    rig.run()
    assert rig.topic.committed == 11
    assert rig.totals() == (5, 50, 0)
    assert len({dict(r.headers)["ce_id"] for r in rig.letters.records}) == 1


def test_what_cannot_be_read_goes_to_the_dead_letters_with_its_place_and_code() -> None:
    """The original bytes; one too large leaves size and digest."""
    rig = Rig()
    rig.topic.put(usage(1))
    rig.topic.records += [(None, b"\x00"), (b"acme/req_1/resp_1", b"\xff" * 2000)]
    rig.run()
    small, large = (dict(r.headers) for r in rig.letters.records)
    assert (small["error_code"], small["origin_offset"]) == (b"null_key", b"1")
    assert small["ce_source"] == b"toolcalls/usage"
    assert (large["error_code"], large["value_bytes"]) == (b"unknown_frame", b"2000")
    assert [r.value for r in rig.letters.records] == [b"\x00", None]
    assert rig.totals() == (1, 10, 0)
    assert rig.topic.committed == 3


def test_while_the_dead_letter_topic_is_away_the_offset_stays() -> None:
    """Nothing is read meanwhile; then all is done."""
    rig = Rig()
    rig.topic.records.append((None, b"\x00"))
    rig.letters.answers = ["_MSG_TIMED_OUT"] * 3
    rig.run()
    assert (len(rig.letters.records), rig.topic.committed) == (1, 1)
    assert rig.observer.counts["failing", "_MSG_TIMED_OUT"] == 3
    rig.topic.records.append((None, b"\x00"))
    rig.letters.answers = ["_MSG_TIMED_OUT"] * 1000
    with pytest.raises(Unreachable, match=r"deadletter.*did not move"):
        rig.run(patience_s=2)
    assert rig.topic.committed == 1


def test_while_the_database_is_away_the_member_stays_and_nothing_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Paused and polled, so that the group keeps it; patience ends with the database's error."""
    rig = Rig()
    rig.topic.put(usage(1))
    record = rig.ledger.usage.record
    refusals = [Transient("away")] * 2

    def away(reports: object) -> object:
        if refusals:
            raise refusals.pop()
        return record(reports)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(rig.ledger.usage, "record", away)
    rig.run()
    assert (rig.totals(), rig.topic.committed, rig.topic.paused) == ((1, 10, 0), 1, False)
    refusals.extend([Transient("away")] * 1000)
    rig.topic.put(usage(2))
    with pytest.raises(Transient, match="away"):
        rig.run(patience_s=2)
    assert rig.topic.committed == 1


def test_a_commit_that_a_rebalance_overtook_is_made_later() -> None:
    """And what is delivered again meanwhile is known."""
    rig = Rig()
    rig.topic.put(usage(1))
    rig.topic.refuse_commits = True
    rig.run()
    assert rig.topic.committed == 0
    rig.topic.refuse_commits = False
    rig.run()
    assert (rig.topic.committed, rig.totals()) == (1, (1, 10, 0))


def test_a_correction_counts_once_and_an_absent_counter_is_no_zero() -> None:
    """The newest number replaces the older one."""
    rig = Rig()
    rig.topic.put(usage(1), usage(1, input_tokens=12), usage(1), usage(2, input_tokens=None))
    rig.run()
    assert rig.totals() == (2, 12, 1)
    assert rig.observer.counts["recorded", "corrected"] == 1


@pytest.mark.parametrize(
    "settings",
    [
        MeterSettings(batch_max=0),
        MeterSettings(poll_s=0),
        MeterSettings(batch_s=float("nan")),
        MeterSettings(patience_s=0),
    ],
)
def test_wrong_settings_are_refused(settings: MeterSettings) -> None:
    """By name, before any work."""
    with pytest.raises(Misuse):
        settings.checked()
