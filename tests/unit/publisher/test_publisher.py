"""What goes out for a response: identity, order, end, and nothing that the reader can feel."""

import json
from collections.abc import Iterator

import pytest

from processor.codec.records import decode_usage
from processor.core.errors import Misuse
from processor.core.identity import decode_call_key
from processor.core.outcomes import CallCompleted
from processor.publisher import MemorySink, Publisher, PublisherSettings, SchemaIds
from tests.unit.publisher.model_streams import (
    ARGUMENTS,
    AT_MS,
    DIALECT,
    OPEN_COUNT,
    Rig,
    ends_of,
    events_of,
    folded,
    interleaved,
)


class StreamBroke(RuntimeError):
    """The model's stream raises it."""


def test_every_call_of_an_interleaved_response_completes_with_its_own_arguments() -> None:
    """Fragments join by the full call key, so the fold gives each call's exact text back."""
    rig = Rig()
    for _ in rig.stream().wrap(interleaved()):
        pass
    outcomes = folded(rig.sink.records)
    assert {
        call_id: outcome.arguments.decode()
        for call_id, outcome in outcomes.items()
        if isinstance(outcome, CallCompleted)
    } == ARGUMENTS
    assert rig.told == []


def test_the_seq_of_each_call_is_contiguous_from_zero_and_times_are_the_clocks() -> None:
    """Seqs count one call's events without holes; `at_ms` comes from the injected clock."""
    rig = Rig()
    for _ in rig.stream().wrap(interleaved()):
        pass
    for events in events_of(rig.sink.records).values():
        assert [event.seq for event in events] == list(range(len(events)))
        assert {event.at_ms for event in events} == {AT_MS}


def test_wrap_yields_the_same_objects_one_by_one_without_reading_ahead() -> None:
    """The wrapper hands on each chunk before it asks the stream for the next one."""
    asked: list[int] = []
    chunks = interleaved()

    def source() -> Iterator[dict[str, object]]:
        for number, chunk in enumerate(chunks):
            asked.append(number)
            yield chunk

    for number, chunk in enumerate(Rig().stream().wrap(source())):
        assert chunk is chunks[number]
        assert asked == list(range(number + 1))
    assert len(asked) == len(chunks)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_raw_bytes_in_any_cut_give_the_same_events_as_the_chunks(size: int) -> None:
    """Server-sent events may be cut anywhere on their way."""
    by_chunk, by_bytes = Rig(), Rig()
    for _ in by_chunk.stream().wrap(interleaved()):
        pass
    wire = b"".join(b"data: " + json.dumps(c).encode() + b"\n\n" for c in interleaved())
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
    assert list(by_bytes.stream().wrap(pieces)) == pieces
    assert by_bytes.sink.records == by_chunk.sink.records


def test_records_carry_the_call_key_cloudevents_and_the_callers_trace() -> None:
    """The key is the identity; the trace context of the caller is passed on unchanged."""
    rig = Rig()
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    stream = rig.publisher.stream(
        dialect=DIALECT, tenant="acme", request_id="req_1", traceparent=parent, tracestate="a=b"
    )
    for _ in stream.wrap(interleaved()):
        pass
    ids = set[object]()
    for record in rig.sink.records:
        headers = dict(record.headers)
        ids.add(headers["ce_id"])
        assert headers["traceparent"] == parent.encode()
        assert headers["tracestate"] == b"a=b"
        assert headers["ce_source"] == b"toolcalls/publisher"
        assert headers["ce_specversion"] == b"1.0"
    assert len(ids) == len(rig.sink.records)
    assert decode_call_key(rig.sink.records[0].key) == ("acme", "req_1", "resp_0001", "call_A")


def test_a_malformed_trace_context_is_not_passed_on() -> None:
    """W3C Trace Context: what cannot be parsed is ignored, not forwarded."""
    rig = Rig()
    stream = rig.publisher.stream(
        dialect=DIALECT, tenant="acme", request_id="req_1", traceparent="not one", tracestate="a=b"
    )
    for _ in stream.wrap(interleaved()):
        pass
    assert not {"traceparent", "tracestate"} & {n for r in rig.sink.records for n, _ in r.headers}


def test_usage_goes_to_its_own_topic_once_when_the_wire_had_it() -> None:
    """Counters are those of the wire, keyed by the response, after the last event."""
    rig = Rig()
    stream = rig.stream()
    for _ in stream.wrap(interleaved()):
        pass
    stream.end()
    (record,) = [out for out in rig.sink.records if out.topic == "toolcalls.usage.v1"]
    assert record is rig.sink.records[-1]
    usage = decode_usage(record.key, record.value)
    assert (usage.input_tokens, usage.output_tokens, usage.response_id) == (61, 18, "resp_0001")


def test_no_usage_is_published_when_the_wire_had_none() -> None:
    """Absent is not zero."""
    rig = Rig()
    for _ in rig.stream().wrap(interleaved()[:OPEN_COUNT]):
        pass
    assert {out.topic for out in rig.sink.records} == {"toolcalls.events.v1"}


def test_a_stream_that_stops_without_its_end_is_stream_ended() -> None:
    """End of input without a terminal event is no clean end."""
    rig = Rig()
    for _ in rig.stream().wrap(interleaved()[:OPEN_COUNT]):
        pass
    assert ends_of(rig.sink.records) == {"call_A": ["stream_ended"], "call_B": ["stream_ended"]}


def test_leaving_the_loop_early_cancels_the_open_calls() -> None:
    """Breaking off, as closing the generator, means that nobody read the rest."""
    rig = Rig()
    wrapped = rig.stream().wrap(interleaved())
    for _ in range(OPEN_COUNT):
        next(wrapped)
    wrapped.close()
    assert ends_of(rig.sink.records) == {"call_A": ["cancelled"], "call_B": ["cancelled"]}


def test_breaking_out_of_the_loop_cancels_the_open_calls() -> None:
    """The generator is closed when the loop drops it."""
    rig = Rig()
    for number, _ in enumerate(rig.stream().wrap(interleaved()), 1):
        if number == OPEN_COUNT:
            break
    assert ends_of(rig.sink.records) == {"call_A": ["cancelled"], "call_B": ["cancelled"]}


@pytest.mark.parametrize("count", range(len(interleaved())))
def test_an_exception_of_the_stream_is_raised_on_and_no_open_call_completes(count: int) -> None:
    """Wherever the stream raises, what had not ended by then ends as stream_ended."""
    rig = Rig()

    def source() -> Iterator[dict[str, object]]:
        yield from interleaved()[:count]
        raise StreamBroke

    with pytest.raises(StreamBroke):
        list(rig.stream().wrap(source()))
    ends = ends_of(rig.sink.records)
    assert all(end == ["stream_ended"] for end in ends.values())
    assert not any(isinstance(o, CallCompleted) for o in folded(rig.sink.records).values())


def test_an_exception_out_of_a_with_block_ends_the_response_without_a_clean_end() -> None:
    """The block did not come to its end, so nothing vouches for the rest of the stream."""
    rig = Rig()

    def fail_after_the_open_calls() -> None:
        with rig.stream() as stream:
            for chunk in interleaved()[:OPEN_COUNT]:
                stream.observe(chunk)
            raise StreamBroke

    with pytest.raises(StreamBroke):
        fail_after_the_open_calls()
    assert ends_of(rig.sink.records) == {"call_A": ["stream_ended"], "call_B": ["stream_ended"]}


def test_chunks_after_the_end_are_not_published() -> None:
    """A response ends once."""
    rig = Rig()
    with rig.stream() as stream:
        for chunk in interleaved():
            stream.observe(chunk)
    before = list(rig.sink.records)
    stream.observe(interleaved()[3])
    stream.cancel()
    assert rig.sink.records == before


def test_two_streams_of_one_publisher_do_not_mix() -> None:
    """Each response has its own identity and count, however their chunks alternate."""
    rig = Rig()
    first = rig.publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
    second = rig.publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_2")
    for _ in zip(first.wrap(interleaved()), second.wrap(interleaved()), strict=True):
        pass
    for request_id in ("req_1", "req_2"):
        mine = [r for r in rig.sink.records if r.key.decode().split("/")[1] == request_id]
        assert set(folded(mine)) == set(ARGUMENTS)


@pytest.mark.parametrize(
    ("dialect", "tenant", "request_id"),
    [
        ("no-such-dialect", "acme", "req_1"),
        (DIALECT, "", "req_1"),
        (DIALECT, "acme", "a:b"),
        (DIALECT, "acme", "x" * 129),
    ],
)
def test_wrong_ids_and_dialects_are_refused_before_the_first_chunk(
    dialect: str, tenant: str, request_id: str
) -> None:
    """The model is not asked for a response that could not be published."""
    with pytest.raises(Misuse):
        Rig().publisher.stream(dialect=dialect, tenant=tenant, request_id=request_id)


def test_a_closed_publisher_opens_no_stream() -> None:
    """After `close` nothing would ever be delivered."""
    publisher = Publisher(PublisherSettings(bootstrap="unused:9092"), sink=MemorySink())
    publisher.close()
    with pytest.raises(Misuse, match="closed"):
        publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")


def test_a_schema_id_selects_the_registry_frame() -> None:
    """With a registry every value begins with its five-byte frame."""
    sink = MemorySink()
    settings = PublisherSettings(bootstrap="unused:9092", schema_ids=SchemaIds(events=7))
    with Publisher(settings, sink=sink) as publisher:
        stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
        stream.observe(interleaved()[0])
        stream.observe(interleaved()[1])
    assert sink.records[0].value.startswith(b"\x00\x00\x00\x00\x07")
