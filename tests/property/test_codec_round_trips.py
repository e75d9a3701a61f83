"""What is written is read back the same, in every frame, and as the Avro library reads it."""

from hypothesis import given
from hypothesis import strategies as st

from processor.codec.frames import SCHEMA_ID_MAX
from processor.codec.record_fields import (
    completed_fields,
    rejected_fields,
    result_fields,
    usage_fields,
)
from processor.codec.records import (
    CALL_COMPLETED,
    CALL_REJECTED,
    CALL_RESULT,
    DELTA_PREFIX,
    RESPONSE_USAGE,
    STREAM_EVENT,
    decode_completed,
    decode_event,
    decode_rejected,
    decode_result,
    decode_usage,
    encode_completed,
    encode_event,
    encode_rejected,
    encode_result,
    encode_usage,
    usage_key,
)
from processor.core.events import ArgumentsDelta, StreamEvent
from processor.core.outcomes import CallCompleted, CallRejected
from processor.core.results import CallResult
from processor.core.usage import ResponseUsage
from processor.resources import schemas_dir
from tests.unit.codec.library import Json, library_reads, library_writes, load_json
from tests.unit.codec.strategies import (
    AT,
    INDEXES,
    KEYED_EVENTS,
    RESULTS,
    USAGES,
    completed,
    rejected,
)

SCHEMA_IDS = st.integers(0, SCHEMA_ID_MAX)


class OneSchema:
    """A registry that knows one id."""

    def __init__(self, schema_id: int, text: str) -> None:
        self._known = {schema_id: text}

    def schema(self, schema_id: int) -> str:
        """Its text."""
        return self._known[schema_id]


def schema(record_name: str) -> Json:
    """Version 1 of a record."""
    return load_json(schemas_dir() / record_name / "v1.avsc")


@given(KEYED_EVENTS)
def test_an_event_is_read_as_it_was_written(keyed: tuple[bytes, StreamEvent]) -> None:
    """decode(encode(x)) = x in the single-object frame."""
    key, event = keyed
    assert decode_event(key, encode_event(event)) == event


@given(KEYED_EVENTS, SCHEMA_IDS)
def test_an_event_is_read_from_the_registry_frame(
    keyed: tuple[bytes, StreamEvent], schema_id: int
) -> None:
    """The registry's frame differs in its first bytes only."""
    key, event = keyed
    value = encode_event(event, schema_id=schema_id)
    assert value[5:] == encode_event(event)[10:]
    assert decode_event(key, value, lookup=OneSchema(schema_id, STREAM_EVENT.text)) == event


@given(INDEXES, AT, st.binary(max_size=2_000))
def test_a_delta_has_the_layout_that_the_hot_loop_relies_on(
    seq: int, at_ms: int | None, fragment: bytes
) -> None:
    """Frame, seq, at, branch 0, length, bytes: the same bytes that the Avro library writes."""
    value = encode_event(StreamEvent(seq, ArgumentsDelta(fragment), at_ms))
    body = ("toolcalls.v1.ArgumentsDelta", {"fragment": fragment})
    expected = library_writes(schema("StreamEvent"), {"seq": seq, "at": at_ms or 0, "body": body})
    assert value == DELTA_PREFIX + expected


@given(completed())
def test_a_completed_call_is_read_as_it_was_written(call: CallCompleted) -> None:
    """Round trip, and the same bytes as the library's."""
    value = encode_completed(call)
    assert decode_completed(call.key.encode(), value) == call
    assert value[10:] == library_writes(schema("CallCompleted"), completed_fields(call))


@given(rejected())
def test_a_rejected_call_is_read_as_it_was_written(call: CallRejected) -> None:
    """Round trip, and the same bytes as the library's."""
    value = encode_rejected(call)
    assert decode_rejected(call.key.encode(), value) == call
    assert value[10:] == library_writes(schema("CallRejected"), rejected_fields(call))


@given(RESULTS)
def test_a_result_is_read_as_it_was_written(result: CallResult) -> None:
    """Round trip, and the same bytes as the library's."""
    value = encode_result(result)
    assert decode_result(result.key.encode(), value) == result
    assert value[10:] == library_writes(schema("CallResult"), result_fields(result))


@given(USAGES)
def test_a_usage_is_read_as_it_was_written(usage: ResponseUsage) -> None:
    """Round trip, and the same bytes as the library's; absent stays absent, zero stays zero."""
    value = encode_usage(usage)
    assert decode_usage(usage_key(usage), value) == usage
    assert value[10:] == library_writes(schema("ResponseUsage"), usage_fields(usage))


@given(KEYED_EVENTS)
def test_the_library_reads_every_event_that_we_write(keyed: tuple[bytes, StreamEvent]) -> None:
    """Another language's reader gets one whole datum. Times outside of its calendar are left out."""
    _, event = keyed
    value = encode_event(StreamEvent(event.seq, event.body))
    assert isinstance(library_reads(schema("StreamEvent"), value[10:]), dict)


@given(completed(), SCHEMA_IDS)
def test_outcomes_are_read_from_the_registry_frame(call: CallCompleted, schema_id: int) -> None:
    """The registry's frame carries the outcomes too."""
    value = encode_completed(call, schema_id=schema_id)
    lookup = OneSchema(schema_id, CALL_COMPLETED.text)
    assert decode_completed(call.key.encode(), value, lookup=lookup) == call


def test_every_record_has_its_own_fingerprint() -> None:
    """A value of one type can never be read as another."""
    schemas = (STREAM_EVENT, CALL_COMPLETED, CALL_REJECTED, CALL_RESULT, RESPONSE_USAGE)
    assert len({schema.fingerprint for schema in schemas}) == len(schemas)
