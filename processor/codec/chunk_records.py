"""Records of the chunks topic to Kafka values and back.

Rules:
    The key is the identity of the response; an envelope that says otherwise is refused.
    A value beginning with `{` is JSON: the envelope and the body's members in one flat object, such
    as `{"chunk":0,...,"type":"JsonChunk","json":"{...}"}`.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypedDict, cast

from processor.codec.avro import load_record_schema
from processor.codec.dead_letter_codes import Undecodable, Unencodable
from processor.codec.fields import (
    DIALECT_BYTES_MAX,
    LONG_MAX,
    MODEL_BYTES_MAX,
    SEQ_MAX,
    InvalidField,
    check_range,
    check_text,
)
from processor.codec.framed import (
    VALUE_BYTES_MAX,
    SchemaLookup,
    bounded,
    read_framed,
    response_identity,
    response_key,
    write_framed,
)
from processor.codec.json_members import FlatObject, Member, Members
from processor.core.chunks import ChunkBody, JsonChunk, RawChunk, ResponseChunk, StreamClosed
from processor.resources import schemas_dir

RESPONSE_CHUNK: Final = load_record_schema(schemas_dir(), "ResponseChunk")

_ENVELOPE: Final[Members] = {
    "chunk": Member("integer"),
    "at": Member("integer", needed=False, default=0),
    "tenant": Member("text"),
    "request_id": Member("text"),
    "response_id": Member("text"),
    "dialect": Member("text"),
    "model": Member("text", needed=False),
}
_BODIES: Final[dict[str, Members]] = {
    "JsonChunk": {"json": Member("bytes")},
    "RawChunk": {"data": Member("bytes")},
    "StreamClosed": {"cancelled": Member("boolean", needed=False, default=False)},
}


class _Envelope(TypedDict):
    chunk: int
    at: int
    tenant: str
    request_id: str
    response_id: str
    dialect: str
    model: str | None


def chunk_key(chunk: ResponseChunk) -> bytes:
    """Record key of a chunk."""
    return response_key(chunk.tenant, chunk.request_id, chunk.response_id)


def encode_chunk(chunk: ResponseChunk, *, schema_id: int | None = None) -> bytes:
    """Value of a chunk; its key is `chunk_key`. Raises: `Unencodable`."""
    try:
        _check(chunk)
    except InvalidField as e:
        raise Unencodable(f"ResponseChunk: {e}") from e
    body = chunk.body
    name = type(body).__name__
    fields: dict[str, object] = {
        "chunk": chunk.number,
        "at": chunk.at_ms or 0,
        "tenant": chunk.tenant,
        "request_id": chunk.request_id,
        "response_id": chunk.response_id,
        "dialect": chunk.dialect,
        "model": chunk.model,
        "body": (
            f"toolcalls.v1.{name}",
            {member: getattr(body, member) for member in _BODIES[name]},
        ),
    }
    return write_framed(RESPONSE_CHUNK, fields, schema_id)


def decode_chunk(
    key: bytes | None,
    value: bytes | None,
    *,
    value_bytes_max: int = VALUE_BYTES_MAX,
    lookup: SchemaLookup | None = None,
) -> ResponseChunk:
    """Read a chunk and check it against its key. Cost: about 10 µs and the bytes.

    Raises: `Undecodable`; `Transient` from `lookup` only.
    """
    identity = response_identity(key)
    value = bounded(value, value_bytes_max)
    try:
        if value.startswith(b"{"):
            given = FlatObject(value)
            kind = given.kind(_BODIES)
            fields = body = given.take(kind, _ENVELOPE, _BODIES[kind])
        else:
            fields = read_framed(RESPONSE_CHUNK, value, lookup)
            branch, body = cast("tuple[str, dict[str, object]]", fields["body"])
            kind = branch.rpartition(".")[2]
        chunk = _chunk(cast("_Envelope", fields), _MAKE[kind](body))
    except InvalidField as e:
        raise Undecodable("invalid_field", str(e)) from e
    if (chunk.tenant, chunk.request_id, chunk.response_id) != identity:
        raise Undecodable("key_mismatch", "the ids of the envelope are not those of the key")
    return chunk


def _chunk(given: _Envelope, body: ChunkBody) -> ResponseChunk:
    chunk = ResponseChunk(
        tenant=given["tenant"],
        request_id=given["request_id"],
        response_id=given["response_id"],
        dialect=given["dialect"],
        number=given["chunk"],
        body=body,
        model=given["model"],
        at_ms=given["at"] or None,
    )
    _check(chunk)
    return chunk


def _check(chunk: ResponseChunk) -> None:
    check_range("chunk", chunk.number, 0, SEQ_MAX)
    if chunk.at_ms is not None:
        check_range("at", chunk.at_ms, -LONG_MAX - 1, LONG_MAX)
    check_text("dialect", chunk.dialect, DIALECT_BYTES_MAX)
    if chunk.model is not None:
        check_text("model", chunk.model, MODEL_BYTES_MAX)


_MAKE: Final[Mapping[str, Callable[[Mapping[str, object]], ChunkBody]]] = {
    "JsonChunk": lambda fields: JsonChunk(cast("bytes", fields["json"])),
    "RawChunk": lambda fields: RawChunk(cast("bytes", fields["data"])),
    "StreamClosed": lambda fields: StreamClosed(cast("bool", fields["cancelled"])),
}
