"""Reading is total: any bytes give a record or a refusal with a code of the closed list."""

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from processor.codec.chunk_records import RESPONSE_CHUNK, decode_chunk
from processor.codec.dead_letter_codes import DEAD_LETTER_CODES
from processor.codec.frames import single_object_frame
from processor.codec.records import (
    CALL_COMPLETED,
    CALL_REJECTED,
    CALL_RESULT,
    DELTA_PREFIX,
    RESPONSE_USAGE,
    STREAM_EVENT,
    Undecodable,
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
from processor.codec.varint import write_long
from processor.core.events import StreamEvent
from processor.core.outcomes import CallCompleted, CallRejected
from processor.core.results import CallResult
from processor.core.usage import ResponseUsage
from tests.builders import key
from tests.unit.codec.strategies import KEYED_EVENTS, RESULTS, USAGES, completed, rejected

KEY = key().encode()
Decode = Callable[[bytes | None, bytes | None], object]
DECODERS: dict[str, tuple[Decode, bytes]] = {
    "StreamEvent": (decode_event, STREAM_EVENT.fingerprint),
    "CallCompleted": (decode_completed, CALL_COMPLETED.fingerprint),
    "CallRejected": (decode_rejected, CALL_REJECTED.fingerprint),
    "CallResult": (decode_result, CALL_RESULT.fingerprint),
    "ResponseChunk": (decode_chunk, RESPONSE_CHUNK.fingerprint),
    "ResponseUsage": (decode_usage, RESPONSE_USAGE.fingerprint),
}
#: An array or map is announced with this many items, a text with this many bytes.
HUGE = [write_long(number) for number in (1 << 20, 1 << 31, (1 << 63) - 1, -(1 << 63), -1, -2)]


def refused_or_read(decode: Decode, record_key: bytes | None, value: bytes | None) -> str | None:
    """The code of the refusal, None if it was read; anything else raised fails the test."""
    refusal = refusal_of(decode, record_key, value)
    assert refusal is None or refusal.code in DEAD_LETTER_CODES
    return None if refusal is None else refusal.code


def refusal_of(decode: Decode, record_key: bytes | None, value: bytes | None) -> Undecodable | None:
    """The refusal, None if the record was read."""
    try:
        decode(record_key, value)
    except Undecodable as refusal:
        return refusal
    return None


@pytest.mark.parametrize("name", sorted(DECODERS))
@given(data=st.binary(max_size=300), framed=st.booleans())
@example(data=b"", framed=False)
@example(data=b"\x00", framed=False)
@example(data=b"\xc3\x01", framed=False)
@example(data=b"\xff" * 300, framed=True)
@example(data=b"\x80" * 300, framed=True)
def test_random_bytes_never_raise_anything_else(name: str, data: bytes, framed: bool) -> None:
    """Random bytes, bare and behind the right frame."""
    decode, fingerprint = DECODERS[name]
    refused_or_read(decode, KEY, single_object_frame(fingerprint) + data if framed else data)


@given(st.one_of(st.none(), st.binary(max_size=400)), st.one_of(st.none(), st.binary(max_size=20)))
def test_random_keys_never_raise_anything_else(
    record_key: bytes | None, value: bytes | None
) -> None:
    """Random keys, and none at all, for every record type."""
    for decode, _ in DECODERS.values():
        refused_or_read(decode, record_key, value)


@st.composite
def mutated(draw: st.DrawFn, value: bytes) -> bytes:
    """`value` with a few bytes changed, cut out, doubled, or replaced by an extreme number."""
    data = bytearray(value)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 4)):
            case 0 if at < len(data):
                data[at] = draw(st.integers(0, 255))
            case 1:
                del data[at : at + draw(st.integers(1, 20))]
            case 2:
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case 3:
                data[at : at + 1] = draw(st.sampled_from(HUGE))
            case _:
                del data[at:]
    return bytes(data)


@given(st.data(), KEYED_EVENTS)
def test_a_damaged_event_never_raises_anything_else(
    data: st.DataObject, keyed: tuple[bytes, StreamEvent]
) -> None:
    """Mutated valid bytes of an event."""
    record_key, event = keyed
    refused_or_read(decode_event, record_key, data.draw(mutated(encode_event(event))))


@given(st.data(), completed())
def test_a_damaged_completed_call_never_raises_anything_else(
    data: st.DataObject, call: CallCompleted
) -> None:
    """Mutated valid bytes of a completed call; what is read has the arguments of its digest."""
    value = data.draw(mutated(encode_completed(call)))
    refused_or_read(decode_completed, call.key.encode(), value)


@given(st.data(), rejected())
def test_a_damaged_rejected_call_never_raises_anything_else(
    data: st.DataObject, call: CallRejected
) -> None:
    """Mutated valid bytes of a rejected call."""
    value = data.draw(mutated(encode_rejected(call)))
    refused_or_read(decode_rejected, call.key.encode(), value)


@given(st.data(), RESULTS)
def test_a_damaged_result_never_raises_anything_else(
    data: st.DataObject, result: CallResult
) -> None:
    """Mutated valid bytes of a result."""
    refused_or_read(decode_result, result.key.encode(), data.draw(mutated(encode_result(result))))


@given(st.data(), USAGES)
def test_a_damaged_usage_never_raises_anything_else(
    data: st.DataObject, usage: ResponseUsage
) -> None:
    """Mutated valid bytes of a usage record."""
    refused_or_read(decode_usage, usage_key(usage), data.draw(mutated(encode_usage(usage))))


@given(KEYED_EVENTS, st.binary(min_size=1, max_size=20))
def test_bytes_behind_an_event_are_refused(keyed: tuple[bytes, StreamEvent], more: bytes) -> None:
    """A value is exactly one datum."""
    record_key, event = keyed
    assert refused_or_read(decode_event, record_key, encode_event(event) + more) == "malformed_avro"


@given(KEYED_EVENTS)
def test_an_event_that_ends_early_is_refused(keyed: tuple[bytes, StreamEvent]) -> None:
    """No proper prefix of a value is a value."""
    record_key, event = keyed
    value = encode_event(event)
    for size in range(len(value)):
        code = refused_or_read(decode_event, record_key, value[:size])
        assert code == ("unknown_frame" if size < len(DELTA_PREFIX) else "malformed_avro")


MARKS = ["{", "}", "[", "]", '"', ":", ",", " ", "\x00", "é", "\\u0000", "\\ud800"]
NAMES = ['"seq"', '"type"', '"ArgumentsDelta"', '"fragment"', '"at"']
VALUES = ["1", "-1", "1e999", "null", "true", "9" * 400]
JSON_BITS = st.sampled_from([*MARKS, *NAMES, *VALUES])


@given(st.lists(JSON_BITS, max_size=30))
def test_json_scraps_never_raise_anything_else(scraps: list[str]) -> None:
    """Anything that begins like a JSON object."""
    refused_or_read(decode_event, KEY, ("{" + "".join(scraps)).encode())


@given(st.binary(max_size=60))
def test_bytes_behind_a_brace_never_raise_anything_else(data: bytes) -> None:
    """Not even texts that are not UTF-8."""
    refused_or_read(decode_event, KEY, b"{" + data)


@pytest.mark.parametrize("opened", [b'{"seq":', b"[", b'{"a":['])
def test_deep_json_is_refused(opened: bytes) -> None:
    """Nesting does not reach the stack's end."""
    value = b'{"seq":' + opened * 100_000
    assert refused_or_read(decode_event, KEY, value) == "malformed_json"


@pytest.mark.parametrize("number", HUGE)
def test_a_length_beyond_the_record_costs_no_memory(number: bytes) -> None:
    """A length is compared with the data before anything is taken."""
    value = DELTA_PREFIX + write_long(1) + write_long(0) + b"\x00" + number + b"abc"
    tracemalloc.start()
    try:
        code = refused_or_read(decode_event, KEY, value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert code == "malformed_avro"
    assert peak_bytes < 64 * 1024


@given(st.binary(min_size=1, max_size=30), st.binary(min_size=1, max_size=30))
def test_a_refusal_quotes_nothing_of_the_record(record_key: bytes, value: bytes) -> None:
    """Details go to headers and logs: a secret in key or value must not be found there."""
    canary = b"canary-7f3a-" * 2
    for decode, _ in DECODERS.values():
        for bad_key, bad_value in (
            (record_key + canary, value + canary),
            (KEY, b"{" + value + canary),
            (KEY, b'{"seq":1,"type":"ArgumentsDelta","' + canary + b'":1}'),
            (KEY, b'{"seq":1,"type":"' + canary + b'"}'),
        ):
            refusal = refusal_of(decode, bad_key, bad_value)
            assert "canary" not in ("" if refusal is None else f"{refusal} {refusal.detail}")
