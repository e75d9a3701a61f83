"""When events cannot go out: no call is ever left looking complete, and the fault has a name."""

import threading

import pytest

from processor.core.outcomes import CallCompleted, CallRejected
from processor.publisher import (
    ChunkRefused,
    DeliveryFailed,
    MemorySink,
    ProducerFailed,
    Publisher,
    PublishError,
    PublisherSettings,
    PublishingBroken,
    PublishQueueFull,
    RecordTooLarge,
    ResponseUnfinished,
)
from processor.publisher.ports import OutRecord, Report
from tests.unit.publisher.model_streams import (
    OPEN_COUNT,
    Rig,
    ends_of,
    events_of,
    folded,
    fragment,
    interleaved,
)

SECRET = "sk-canary-0001"


class LossySink(MemorySink):
    """Reports the records at the positions `lost` as failed, and keeps them out of the log."""

    def __init__(self, lost: set[int]) -> None:
        super().__init__()
        self.log: list[OutRecord] = []
        self._lost = lost
        self._count = 0

    def offer(self, record: OutRecord, report: Report) -> bool:
        """Take the record; whether it is lost shows when it is reported."""
        position, self._count = self._count, self._count + 1
        taken = super().offer(record, report)
        if position not in self._lost:
            self.log.append(record)
        return taken

    def report_now(self) -> None:
        """Report all records offered so far, the lost ones as failed."""
        for record in self.records[:]:
            self.deliver(1, error=None if record in self.log else "_MSG_TIMED_OUT")

    def offer_late(self, record: OutRecord) -> None:
        """Aborts arrive."""
        self.log.append(record)


def events_count() -> int:
    """How many events the whole response has; its usage is one record more."""
    rig = Rig()
    for _ in rig.stream().wrap(interleaved()):
        pass
    return sum(map(len, events_of(rig.sink.records).values()))


def test_a_call_that_lost_any_one_event_never_completes_and_its_sibling_does() -> None:
    """Whichever event Kafka loses, the fold rejects that call and no other."""
    for lost in range(events_count()):
        sink = LossySink({lost})
        rig = Rig(sink=sink)
        for _ in rig.stream().wrap(interleaved()):
            pass
        victim = sink.records[lost].key.decode().rsplit("/", 1)[1]
        sink.report_now()
        outcomes = folded(sink.log)
        assert isinstance(outcomes.pop(victim), CallRejected)
        assert [type(outcome) for outcome in outcomes.values()] == [CallCompleted]
        (fault,) = rig.told
        assert isinstance(fault, DeliveryFailed)
        assert (fault.call_id, fault.request_id) == (victim, "req_1")
        assert fault.kafka_code == "_MSG_TIMED_OUT"


def test_a_failed_delivery_aborts_its_call_while_the_stream_runs() -> None:
    """The abort is the call's next event, and nothing of that call follows it."""
    rig = Rig()
    stream = rig.stream()
    for chunk in interleaved()[:4]:
        stream.observe(chunk)
    rig.sink.deliver(1, error="_MSG_TIMED_OUT")
    for chunk in interleaved()[4:]:
        stream.observe(chunk)
    stream.end()
    assert ends_of(rig.sink.records) == {"call_A": ["stream_error"], "call_B": ["completed"]}
    assert [event.seq for event in events_of(rig.sink.records)["call_A"]] == [0, 1, 2]
    assert [fault.call_id for fault in stream.faults] == ["call_A"]


def test_a_failed_delivery_is_raised_by_the_next_step_under_raise() -> None:
    """The application is told where it stands, once for each call that was lost."""
    rig = Rig("raise")
    stream = rig.stream()
    for chunk in interleaved()[:OPEN_COUNT]:
        stream.observe(chunk)
    rig.sink.deliver(1, error="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(
        DeliveryFailed, match=r"request req_1, call call_A, topic toolcalls\.events"
    ):
        stream.observe(interleaved()[OPEN_COUNT])
    stream.end()
    assert ends_of(rig.sink.records)["call_B"] == ["stream_ended"]


def test_a_failed_delivery_after_the_end_is_told_and_raised_by_confirm() -> None:
    """`end` does not wait for Kafka; `confirm` does, and says what came of it."""
    rig = Rig("raise")
    stream = rig.stream()
    for _ in stream.wrap(interleaved()):
        pass
    rig.sink.deliver(error="_MSG_TIMED_OUT")
    with pytest.raises(DeliveryFailed):
        stream.confirm(0)
    assert {fault.call_id for fault in rig.told} == {"call_A", "call_B", None}


def test_confirm_is_true_only_when_every_event_was_delivered() -> None:
    """An event without an answer is not confirmed."""
    rig = Rig()
    stream = rig.stream()
    for _ in stream.wrap(interleaved()):
        pass
    rig.sink.deliver(events_count())
    assert not stream.confirm(0)
    rig.sink.deliver()
    assert stream.confirm(0)


def test_confirm_wakes_when_the_last_report_arrives_on_another_thread() -> None:
    """Waiting ends with the report, not with the timeout."""
    rig = Rig()
    stream = rig.stream()
    for _ in stream.wrap(interleaved()):
        pass
    reporter = threading.Thread(target=rig.sink.deliver)
    reporter.start()
    assert stream.confirm(60)
    reporter.join()


def test_a_queue_that_stays_full_is_named_within_block_ms_and_its_calls_are_aborted() -> None:
    """At the bound the publisher waits `block_ms` and then gives the response up."""
    rig = Rig("raise", MemorySink(capacity=3), block_ms=50)
    stream = rig.stream()
    chunks = interleaved()
    for chunk in chunks[:4]:
        stream.observe(chunk)
    before_s = rig.now_s
    with pytest.raises(PublishQueueFull, match="stayed full for 50 ms"):
        stream.observe(chunks[4])
    assert rig.now_s - before_s <= 0.05 + 0.03
    rig.sink.flush(0)
    assert ends_of(rig.sink.records) == {"call_A": ["stream_error"], "call_B": ["stream_error"]}
    for events in events_of(rig.sink.records).values():
        assert [event.seq for event in events] == list(range(len(events)))


def test_a_full_queue_that_empties_in_time_loses_nothing() -> None:
    """Waiting for room is the normal case at the bound."""
    rig = Rig("raise", MemorySink(capacity=2, on_wait=lambda sink: sink.deliver(1)))
    for _ in rig.stream().wrap(interleaved()):
        pass
    assert all(isinstance(o, CallCompleted) for o in folded(rig.sink.records).values())
    assert rig.told == []


def test_a_full_queue_never_leaves_a_call_short_that_completes() -> None:
    """Wherever the queue fills up for good, calls are whole or rejected; the reader sees nothing."""
    for capacity in range(1, events_count() + 1):
        rig = Rig(sink=MemorySink(capacity=capacity), block_ms=0)
        assert list(rig.stream().wrap(interleaved())) == interleaved()
        rig.sink.flush(0)
        (fault,) = rig.told
        assert isinstance(fault, PublishQueueFull)
        outcomes, ends = folded(rig.sink.records), ends_of(rig.sink.records)
        complete = {name for name, out in outcomes.items() if isinstance(out, CallCompleted)}
        assert complete == {name for name, end in ends.items() if end == ["completed"]}


def test_a_chunk_that_is_not_the_dialects_ends_the_response_by_name() -> None:
    """Two open calls are aborted as malformed; the text holds no content."""
    rig = Rig("raise")
    stream = rig.stream()
    for chunk in interleaved()[:OPEN_COUNT]:
        stream.observe(chunk)
    with pytest.raises(ChunkRefused) as caught:
        stream.observe(SECRET)
    assert ends_of(rig.sink.records) == {
        "call_A": ["malformed_event"],
        "call_B": ["malformed_event"],
    }
    assert SECRET not in str(caught.value)


def test_under_report_a_broken_chunk_never_reaches_the_reader() -> None:
    """The model's reader gets every chunk, also those that the publisher cannot read."""
    rig = Rig()
    chunks: list[object] = [*interleaved()[:OPEN_COUNT], object(), *interleaved()[OPEN_COUNT:]]
    assert list(rig.stream().wrap(chunks)) == chunks
    assert [type(fault) for fault in rig.told] == [ChunkRefused]
    assert not any(isinstance(o, CallCompleted) for o in folded(rig.sink.records).values())


class Exploding(dict[str, object]):
    """A mapping whose reading fails with a text that quotes content."""

    def get(self, *_: object) -> object:
        """Fail."""
        raise RuntimeError(SECRET)

    def __getitem__(self, _: str) -> object:
        """Fail."""
        raise RuntimeError(SECRET)


def test_an_unexpected_exception_is_named_by_type_and_place_only() -> None:
    """What a foreign exception says may be content; its type and line are not."""
    rig = Rig("raise")
    stream = rig.stream()
    with pytest.raises(PublishingBroken, match=r"RuntimeError at \w+\.py:\d+") as caught:
        stream.observe(Exploding(type="response.created"))
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_an_event_beyond_the_record_limit_aborts_its_call_as_too_large() -> None:
    """Checked before it is handed to the client; the other call goes on."""
    rig = Rig(record_bytes_max=10_000)
    stream = rig.stream()
    for chunk in interleaved()[:4]:
        stream.observe(chunk)
    stream.observe({**fragment(0, "fc_A", "x" * 10_000), "sequence_number": 4})
    stream.cancel()
    assert [type(fault) for fault in rig.told] == [RecordTooLarge]
    assert ends_of(rig.sink.records) == {"call_A": ["too_large"], "call_B": ["cancelled"]}


def test_a_client_that_refuses_everything_is_named_and_asks_for_a_new_publisher() -> None:
    """A fatal client error ends every response that is published through it."""
    rig = Rig("raise")
    stream = rig.stream()
    stream.observe(interleaved()[0])
    rig.sink.refuse_code = "_FATAL"
    with pytest.raises(ProducerFailed, match="_FATAL"):
        stream.observe(interleaved()[1])
    with pytest.raises(ProducerFailed):
        stream.observe(interleaved()[2])


def test_closing_the_publisher_aborts_the_responses_still_open() -> None:
    """A response without its end is no complete response."""
    rig = Rig()
    stream = rig.stream()
    for chunk in interleaved()[:OPEN_COUNT]:
        stream.observe(chunk)
    report = rig.publisher.close()
    assert ends_of(rig.sink.records) == {"call_A": ["stream_ended"], "call_B": ["stream_ended"]}
    assert [type(fault) for fault in rig.told] == [ResponseUnfinished]
    assert (report.undelivered, report.request_ids) == (0, ())
    assert rig.publisher.close() == report


def test_an_on_fault_that_fails_disturbs_nothing() -> None:
    """The caller's function is foreign code on our delivery thread."""
    rig = Rig()

    def failing(_: PublishError) -> None:
        raise RuntimeError(SECRET)

    rig.publisher._engine._on_fault = failing
    chunks: list[object] = [*interleaved()[:OPEN_COUNT], object()]
    assert list(rig.stream().wrap(chunks)) == chunks


def test_the_default_report_is_one_warning_without_content(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Ids may be logged, arguments may not."""
    with Publisher(PublisherSettings(bootstrap="unused:9092"), sink=MemorySink()) as publisher:
        stream = publisher.stream(dialect="openai-responses", tenant="acme", request_id="req_1")
        stream.observe({"type": 7, "delta": SECRET})
        stream.observe(SECRET)
    (line,) = [r.getMessage() for r in caplog.records if r.name == "processor.publisher"]
    assert "chunk_refused" in line
    assert "req_1" in line
    assert SECRET not in caplog.text


def test_a_response_given_up_takes_nothing_more() -> None:
    """Whatever the reader still gets, nothing of it follows the aborts."""
    rig = Rig()
    chunks: list[object] = [*interleaved()[:OPEN_COUNT], SECRET]
    stream = rig.stream()
    for chunk in chunks:
        stream.observe(chunk)
    before = list(rig.sink.records)
    for chunk in interleaved()[OPEN_COUNT:]:
        stream.observe(chunk)
    stream.end()
    assert rig.sink.records == before
    assert len(stream.faults) == 1


def test_undelivered_usage_is_told_and_aborts_no_call() -> None:
    """The counters are no part of any call."""
    rig = Rig()
    stream = rig.stream()
    for _ in stream.wrap(interleaved()):
        pass
    rig.sink.deliver(events_count())
    rig.sink.deliver(error="_MSG_TIMED_OUT")
    (fault,) = rig.told
    assert (fault.call_id, fault.topic) == (None, "toolcalls.usage.v1")
    assert ends_of(rig.sink.records) == {"call_A": ["completed"], "call_B": ["completed"]}
