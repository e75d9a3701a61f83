"""Chunks of responses to Kafka values and back, in Avro and in JSON."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processor.codec.chunk_records import chunk_key, decode_chunk, encode_chunk
from processor.codec.dead_letter_codes import Undecodable, Unencodable
from processor.core.chunks import ChunkBody, JsonChunk, RawChunk, ResponseChunk, StreamClosed

BODIES: st.SearchStrategy[ChunkBody] = st.one_of(
    st.binary().map(JsonChunk),
    st.binary().map(RawChunk),
    st.booleans().map(StreamClosed),
)
IDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30).filter(
    lambda text: text not in {"None", "null", "undefined"}
)
CHUNKS = st.builds(
    ResponseChunk,
    tenant=IDS,
    request_id=IDS.map(lambda text: text.replace(":", ";")),
    response_id=IDS,
    dialect=st.sampled_from(["openai-chat", "anthropic"]),
    number=st.integers(0, 2**31 - 1),
    body=BODIES,
    model=st.none() | st.just("gpt-test"),
    at_ms=st.none() | st.integers(1, 2**60),
)
ENVELOPE: dict[str, object] = {
    "chunk": 3,
    "tenant": "acme",
    "request_id": "req_1",
    "response_id": "resp_1",
    "dialect": "openai-chat",
}
KEY = b"acme/req_1/resp_1"


def as_json(members: dict[str, object]) -> bytes:
    """A chunk as JSON, with `members` on top of the envelope."""
    return json.dumps({**ENVELOPE, **members}).encode()


def code_of(key: bytes | None, value: bytes | None, value_bytes_max: int = 1_000) -> str:
    """The code by which a record is refused."""
    with pytest.raises(Undecodable) as caught:
        decode_chunk(key, value, value_bytes_max=value_bytes_max)
    return caught.value.code


@given(CHUNKS)
def test_what_is_written_is_read_back(chunk: ResponseChunk) -> None:
    """Every body, every optional field, any id that may be one."""
    assert decode_chunk(chunk_key(chunk), encode_chunk(chunk)) == chunk


def test_a_chunk_may_be_json_for_a_first_step() -> None:
    """Bytes are given as text; optional members may be left out."""
    bodies: dict[str, ChunkBody] = {
        '{"type":"JsonChunk","json":"{}"}': JsonChunk(b"{}"),
        '{"type":"RawChunk","data":"data: {}\\n\\n"}': RawChunk(b"data: {}\n\n"),
        '{"type":"StreamClosed"}': StreamClosed(cancelled=False),
        '{"type":"StreamClosed","cancelled":true}': StreamClosed(cancelled=True),
    }
    for text, body in bodies.items():
        expected = ResponseChunk("acme", "req_1", "resp_1", "openai-chat", 3, body)
        assert decode_chunk(KEY, as_json(json.loads(text))) == expected


def test_what_breaks_a_rule_is_refused_by_name() -> None:
    """Wrong key, wrong members, wrong types, wrong bounds."""
    closed = as_json({"type": "StreamClosed"})
    assert code_of(None, closed) == "null_key"
    assert code_of(b"acme/req_1", closed) == "malformed_key"
    assert code_of(b"acme/req_2/resp_1", closed) == "key_mismatch"
    assert code_of(KEY, None) == "null_value"
    assert code_of(KEY, closed, value_bytes_max=10) == "too_large"
    assert code_of(KEY, b'{"chunk":') == "malformed_json"
    assert code_of(KEY, b"\x01\x02") == "unknown_frame"
    wrong: list[dict[str, object]] = [
        {"type": "Other"},
        {"type": "JsonChunk"},
        {"type": "JsonChunk", "json": "{}", "jsom": "{}"},
        {"type": "JsonChunk", "json": 7},
        {"type": "StreamClosed", "cancelled": "yes"},
        {"type": "StreamClosed", "chunk": -1},
        {"type": "StreamClosed", "chunk": True},
        {"type": "StreamClosed", "dialect": ""},
        {"type": "StreamClosed", "model": "\n"},
    ]
    for members in wrong:
        assert code_of(KEY, as_json(members)) == "invalid_field"


def test_a_writer_keeps_to_the_readers_rules() -> None:
    """What no reader takes is not written."""
    closed = StreamClosed(cancelled=False)
    for dialect, number in (("", 0), ("openai-chat", 2**31)):
        with pytest.raises(Unencodable):
            encode_chunk(ResponseChunk("acme", "req_1", "resp_1", dialect, number, closed))
