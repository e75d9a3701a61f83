"""The relay's loop on the memory ledger: what is published, what stays, and how it gives up."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from processor.codec.records import decode_result
from processor.core.errors import Misuse, Transient
from processor.core.identity import CallKey
from processor.core.results import CallResult
from processor.executor.crash_points import RELAY_POINTS
from processor.executor.errors import Unreachable
from processor.executor.relay import BODY_LEFT_OUT, Relay, RelaySettings
from processor.executor.relay_log import LogRelayObserver
from processor.executor.sink import TOO_LARGE_CODE, SinkRecord
from processor.ledger.memory import MemoryLedger
from processor.ledger.port import Begin, Claim, Outcome, Owned, Source
from processor.telemetry.logging import make_logger

TOPIC = "toolcalls.results.v1"


class Clock:
    """Time that passes by waiting only."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits: list[float] = []

    def monotonic_s(self) -> float:
        """Now."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.waits.append(seconds)
        self.now_s += seconds


class Sink:
    """A topic in memory that takes records up to a size, or refuses by a code for some time."""

    def __init__(self) -> None:
        self.records: list[SinkRecord] = []
        self.answers: list[str] = []
        self.bytes_max = 1_000_000
        self.batches: list[int] = []

    @property
    def topic(self) -> str:
        """Its name."""
        return TOPIC

    def publish(self, records: Sequence[SinkRecord]) -> list[str | None]:
        """As the client does: one record that is too large spoils the batch."""
        self.batches.append(len(records))
        if self.answers:
            return [self.answers.pop(0)] * len(records)
        if any(len(r.value or b"") > self.bytes_max for r in records):
            return [TOO_LARGE_CODE] * len(records)
        self.records.extend(records)
        return [None] * len(records)

    def results(self) -> list[CallResult]:
        """What a reader sees."""
        return [decode_result(r.key, r.value) for r in self.records]


class Rig:
    """A relay, its ledger and its topic."""

    def __init__(self, *, idle_end_s: float = 1.0, patience_s: float = 30.0) -> None:
        self.ledger = MemoryLedger(lambda: 1_800_000_000_000)
        self.sink = Sink()
        self.clock = Clock()
        self.observer = LogRelayObserver(make_logger("relay-test"))
        self.passed: list[str] = []
        self.stopping = False
        self.relay = Relay(
            self.ledger.outbox,
            self.sink,
            settings=RelaySettings(idle_end_s=idle_end_s, patience_s=patience_s),
            clock=self.clock,
            observer=self.observer,
            stop_requested=lambda: self.stopping,
            crash_point=self.passed.append,
        )

    def settle(self, number: int, outcome: Outcome, key: CallKey | None = None) -> Claim:
        """A call that has ended."""
        claim = Claim(
            key=key or CallKey("acme", f"req_{number}", f"resp_{number}", "call_1"),
            tool="refund",
            effect_class="at_most_once",
            args_hash=b"\x01" * 33,
            owner="slot-0/1",
            lease_s=60,
            emitted_at_ms=1_800_000_000_000,
            deadline_ms=1_900_000_000_000,
            source=Source("toolcalls.completed.v1", 0, number),
        )
        fence = self.ledger.claim(claim).fence
        assert fence is not None
        own = Owned(claim.key.tenant, claim.key.idempotency_key, fence)
        assert self.ledger.begin_effect(own, Begin(lease_s=60)).ok
        assert self.ledger.finish(own, outcome).ok
        return claim


def test_every_event_is_published_with_stable_headers_and_then_marked() -> None:
    """Key, CloudEvents attributes, state and the key to use next."""
    rig = Rig()
    rig.settle(1, Outcome("succeeded", body=b"{}"))
    rig.relay.run()
    (sent,) = rig.sink.records
    assert sent.key == b"acme/req_1/resp_1/call_1"
    headers = dict(sent.headers)
    assert headers["ce_id"] == b"acme/req_1/resp_1/call_1/succeeded/1099511627777"
    assert headers["ce_type"] == b"toolcall.succeeded"
    assert headers["ce_source"] == b"toolcalls/relay"
    (told,) = rig.sink.results()
    assert (told.state, told.body, told.retry, told.replayed) == (
        "succeeded",
        b"{}",
        "never",
        False,
    )
    assert rig.ledger.outbox.waiting().events == 0
    assert rig.passed == list(RELAY_POINTS)
    assert rig.observer.counts["published", ""] == 1


def test_a_repeat_is_marked_as_one() -> None:
    """The same answer under an id of its own."""
    rig = Rig()
    claim = rig.settle(1, Outcome("succeeded", body=b"{}"))
    rig.ledger.claim(replace(claim, source=Source("toolcalls.completed.v1", 1, 9)))
    rig.relay.run()
    assert [r.replayed for r in rig.sink.results()] == [False, True]
    assert len({dict(r.headers)["ce_id"] for r in rig.sink.records}) == 2


def test_what_kafka_does_not_confirm_stays_and_is_tried_again_after_growing_waits() -> None:
    """Rows stay; one log line each power of ten; then all goes out."""
    rig = Rig()
    rig.settle(1, Outcome("succeeded", body=b"{}"))
    rig.sink.answers = ["_MSG_TIMED_OUT"] * 4
    rig.relay.run()
    assert len(rig.sink.records) == 1
    assert rig.observer.counts["failing", "_MSG_TIMED_OUT"] == 4
    waits = rig.clock.waits[:9]
    assert sum(waits) >= 0.25 + 0.5 + 1 + 2


def test_patience_ends_with_a_name_and_without_a_loss() -> None:
    """A supervisor sees it; the ledger keeps the event."""
    rig = Rig(patience_s=5)
    rig.settle(1, Outcome("succeeded", body=b"{}"))
    rig.sink.answers = ["_MSG_TIMED_OUT"] * 1000
    with pytest.raises(Unreachable, match=TOPIC):
        rig.relay.run()
    assert rig.ledger.outbox.waiting().events == 1


def test_a_ledger_that_is_away_is_asked_again_until_patience_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error of the ledger is the one that is raised."""
    rig = Rig(patience_s=5)

    def away(events_max: int, body_bytes_max: int) -> None:
        raise Transient("the database cannot be reached")

    monkeypatch.setattr(rig.ledger.outbox, "batch", away)
    with pytest.raises(Transient, match="cannot be reached"):
        rig.relay.run()
    assert rig.clock.now_s >= 5


def test_a_stop_request_ends_the_wait_for_a_broker() -> None:
    """A graceful stop is not kept by an outage."""
    rig = Rig()
    rig.settle(1, Outcome("succeeded", body=b"{}"))
    rig.sink.answers = ["_MSG_TIMED_OUT"] * 1000
    wait = rig.clock.wait

    def wait_and_stop(seconds: float) -> None:
        wait(seconds)
        rig.stopping = True

    rig.clock.wait = wait_and_stop  # type: ignore[method-assign]  # the signal comes while it waits
    rig.relay.run()
    assert rig.sink.records == []


def test_a_body_that_is_too_large_for_the_topic_is_left_out_and_others_pass() -> None:
    """The client gives up the whole batch under that name; each is then tried alone."""
    rig = Rig()
    rig.sink.bytes_max = 500
    rig.settle(1, Outcome("succeeded", body=b"x" * 1000))
    rig.settle(2, Outcome("succeeded", body=b"{}"))
    rig.relay.run()
    first, second = rig.sink.results()
    assert (first.state, first.body, first.error_class) == ("succeeded", None, BODY_LEFT_OUT)
    assert (second.body, second.error_class) == (b"{}", None)
    assert rig.observer.counts["body_left_out", ""] == 1


def test_a_topic_that_takes_no_result_at_all_ends_the_relay_by_name() -> None:
    """A setting is wrong; nothing is lost."""
    rig = Rig()
    rig.sink.bytes_max = 1
    rig.settle(1, Outcome("succeeded", body=b"x" * 1000))
    with pytest.raises(Misuse, match=r"max\.message\.bytes"):
        rig.relay.run()
    assert rig.ledger.outbox.waiting().events == 1


def test_a_word_that_readers_would_refuse_does_not_stop_the_result() -> None:
    """A person's name may be long; the state still arrives."""
    rig = Rig()
    rig.settle(1, Outcome("failed", error_class="x" * 300))
    rig.relay.run()
    (told,) = rig.sink.results()
    assert (told.state, told.error_class) == ("failed", "error_class_refused")


def test_an_event_that_nobody_could_read_is_named_and_passed_over() -> None:
    """It must not stand in the way of all others."""
    rig = Rig()
    claim = rig.settle(1, Outcome("succeeded"))
    guard = rig.ledger._guards["acme", claim.key.idempotency_key]
    guard.claim = replace(claim, tool="x" * 300)
    rig.ledger.outbox.note(guard)
    rig.settle(2, Outcome("succeeded"))
    rig.relay.run()
    assert rig.observer.counts["untold", "unencodable"] == 1
    assert [r.key.request_id for r in rig.sink.results()] == ["req_1", "req_2"]
    assert rig.ledger.outbox.waiting().events == 0


def test_an_empty_outbox_is_looked_at_at_growing_and_bounded_intervals() -> None:
    """At most twice a second by default."""
    rig = Rig(idle_end_s=30)
    rig.relay.run()
    assert rig.clock.waits[0] == pytest.approx(0.02)
    assert max(rig.clock.waits) == pytest.approx(0.5)
    assert rig.clock.waits == sorted(rig.clock.waits)


@pytest.mark.parametrize(
    "settings",
    [
        RelaySettings(events_max=0),
        RelaySettings(events_max=100_000),
        RelaySettings(body_bytes_max=0),
        RelaySettings(poll_s_max=0.001),
        RelaySettings(poll_s_max=float("nan")),
        RelaySettings(patience_s=0),
    ],
)
def test_wrong_settings_are_refused(settings: RelaySettings) -> None:
    """By name, before any work."""
    with pytest.raises(Misuse):
        settings.checked()
