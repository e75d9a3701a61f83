"""Records to Kafka values and back: one pair of functions for each record type.

Rules:
    Reading is total: any bytes give a record or `Undecodable`. Only with a registry there is a
    third way, `Transient`, when the registry does not answer.
    A writer uses the single-object frame, or with `schema_id` the registry's; a reader takes both.
    The key is the identity; a value that says otherwise is refused (`key_mismatch`).
"""

from functools import lru_cache
from typing import Final, Protocol, TypedDict, cast

from processor.codec.avro import RecordSchema, load_record_schema
from processor.codec.avro_datum import SchemaRefused
from processor.codec.dead_letter_codes import DeadLetterCode, Undecodable, Unencodable
from processor.codec.ending_events import read_ending
from processor.codec.event_fields import check_event, event_from, fields_of
from processor.codec.fields import InvalidField
from processor.codec.frames import (
    FrameError,
    Json,
    SingleObject,
    read_frame,
    registry_frame,
    single_object_frame,
)
from processor.codec.json_frame import read_json_event
from processor.codec.record_fields import (
    Fields,
    completed_fields,
    completed_from,
    identity_of,
    rejected_fields,
    rejected_from,
    result_fields,
    result_from,
    usage_fields,
    usage_from,
)
from processor.codec.varint import Malformed, write_long
from processor.core.events import ArgumentsDelta, CallStarted, StreamEvent
from processor.core.identity import CallKey, IdentityError, decode_call_key
from processor.core.outcomes import CallCompleted, CallRejected
from processor.core.results import CallResult
from processor.core.usage import ResponseUsage
from processor.resources import schemas_dir

__all__ = [
    "CALL_COMPLETED",
    "CALL_REJECTED",
    "CALL_RESULT",
    "DELTA_PREFIX",
    "RESPONSE_USAGE",
    "STREAM_EVENT",
    "VALUE_BYTES_MAX",
    "DeadLetterCode",
    "SchemaLookup",
    "Undecodable",
    "Unencodable",
    "decode_completed",
    "decode_event",
    "decode_rejected",
    "decode_result",
    "decode_usage",
    "encode_completed",
    "encode_event",
    "encode_rejected",
    "encode_result",
    "encode_usage",
    "usage_key",
]

STREAM_EVENT: Final = load_record_schema(schemas_dir(), "StreamEvent")
CALL_COMPLETED: Final = load_record_schema(schemas_dir(), "CallCompleted")
CALL_REJECTED: Final = load_record_schema(schemas_dir(), "CallRejected")
CALL_RESULT: Final = load_record_schema(schemas_dir(), "CallResult")
RESPONSE_USAGE: Final = load_record_schema(schemas_dir(), "ResponseUsage")

#: The frame of an event; behind it stand seq, at and the branch of the body, 0 for a delta.
DELTA_PREFIX: Final = single_object_frame(STREAM_EVENT.fingerprint)
#: Default bound of a value: what a topic takes by default (`max.message.bytes`).
VALUE_BYTES_MAX: Final = 1024 * 1024

_DELTA_BRANCH: Final = b"\x00"
#: Completes the key of a response to a call key, so that both have the same rules.
_RESPONSE_KEY_END: Final = "/-"


class _EventFields(TypedDict):
    seq: int
    at: int
    body: tuple[str, Fields]


class SchemaLookup(Protocol):
    """Where a reader asks for the schema of a registry frame."""

    def schema(self, schema_id: int) -> str:
        """Text of the schema with this id; asked once, then remembered.

        Raises: `Undecodable` (unknown_schema), `Transient` when nobody answers.
        """
        ...


def encode_event(event: StreamEvent, *, schema_id: int | None = None) -> bytes:
    """Value of an event. Cost: about 1 µs for a delta, 5 µs for others. Raises: `Unencodable`."""
    try:
        check_event(event)
    except InvalidField as e:
        raise Unencodable(f"StreamEvent: {e}") from e
    body = event.body
    if isinstance(body, ArgumentsDelta):
        # Written by hand: nearly all records are deltas, and this is their whole layout.
        fragment = body.fragment
        frame = DELTA_PREFIX if schema_id is None else registry_frame(schema_id)
        at, size = write_long(event.at_ms or 0), write_long(len(fragment))
        return b"".join((frame, write_long(event.seq), at, _DELTA_BRANCH, size, fragment))
    branch = f"toolcalls.v1.{type(body).__name__}"
    fields: Fields = {"seq": event.seq, "at": event.at_ms or 0, "body": (branch, fields_of(body))}
    return _write(STREAM_EVENT, fields, schema_id)


def decode_event(
    key: bytes | None,
    value: bytes | None,
    *,
    value_bytes_max: int = VALUE_BYTES_MAX,
    lookup: SchemaLookup | None = None,
) -> StreamEvent:
    """Read an event and check it against its key. Cost: 5 to 10 µs.

    Raises: `Undecodable`; `Transient` from `lookup` only.
    """
    identity = _call_identity(key)
    value = _bounded(value, value_bytes_max)
    if value.startswith(DELTA_PREFIX):
        ending = read_ending(value, len(DELTA_PREFIX))
        if ending is not None:
            return ending
    try:
        if value.startswith(b"{"):
            event = read_json_event(value)
        else:
            fields = cast("_EventFields", _avro_fields(STREAM_EVENT, value, lookup))
            branch, body = fields["body"]
            event = event_from(fields["seq"], fields["at"], branch.rpartition(".")[2], body)
    except InvalidField as e:
        raise Undecodable("invalid_field", str(e)) from e
    started = event.body
    if isinstance(started, CallStarted) and identity != (
        started.tenant,
        started.request_id,
        started.response_id,
        started.call_id,
    ):
        raise Undecodable("key_mismatch", "the ids of CallStarted are not those of the key")
    return event


def encode_completed(completed: CallCompleted, *, schema_id: int | None = None) -> bytes:
    """Value of a completed call. Cost: about 6 µs."""
    return _write(CALL_COMPLETED, completed_fields(completed), schema_id)


def decode_completed(
    key: bytes | None,
    value: bytes | None,
    *,
    value_bytes_max: int = VALUE_BYTES_MAX,
    lookup: SchemaLookup | None = None,
) -> CallCompleted:
    """Read a completed call; its digest is checked again. Raises: as `decode_event`."""
    identity, fields = _read(CALL_COMPLETED, key, value, value_bytes_max, lookup)
    try:
        return completed_from(identity, fields)
    except InvalidField as e:
        raise Undecodable("invalid_field", str(e)) from e


def encode_rejected(rejected: CallRejected, *, schema_id: int | None = None) -> bytes:
    """Value of a rejected call."""
    return _write(CALL_REJECTED, rejected_fields(rejected), schema_id)


def decode_rejected(
    key: bytes | None,
    value: bytes | None,
    *,
    value_bytes_max: int = VALUE_BYTES_MAX,
    lookup: SchemaLookup | None = None,
) -> CallRejected:
    """Read a rejected call. Raises: as `decode_event`."""
    identity, fields = _read(CALL_REJECTED, key, value, value_bytes_max, lookup)
    try:
        return rejected_from(identity, fields)
    except InvalidField as e:
        raise Undecodable("invalid_field", str(e)) from e


def encode_result(result: CallResult, *, schema_id: int | None = None) -> bytes:
    """Value of a result. Raises: `Unencodable`."""
    try:
        fields = result_fields(result)
    except InvalidField as e:
        raise Unencodable(f"CallResult: {e}") from e
    return _write(CALL_RESULT, fields, schema_id)


def decode_result(
    key: bytes | None,
    value: bytes | None,
    *,
    value_bytes_max: int = VALUE_BYTES_MAX,
    lookup: SchemaLookup | None = None,
) -> CallResult:
    """Read a result. Raises: as `decode_event`."""
    identity, fields = _read(CALL_RESULT, key, value, value_bytes_max, lookup)
    try:
        return result_from(identity, fields)
    except InvalidField as e:
        raise Undecodable("invalid_field", str(e)) from e


def usage_key(usage: ResponseUsage) -> bytes:
    """Record key of a usage record: `tenant/request_id/response_id`, encoded as in a call key."""
    key = CallKey(usage.tenant, usage.request_id, usage.response_id, "-").encode()
    return key.removesuffix(_RESPONSE_KEY_END.encode())


def encode_usage(usage: ResponseUsage, *, schema_id: int | None = None) -> bytes:
    """Value of a usage record; its key is `usage_key`. Raises: `Unencodable`."""
    try:
        fields = usage_fields(usage)
    except InvalidField as e:
        raise Unencodable(f"ResponseUsage: {e}") from e
    return _write(RESPONSE_USAGE, fields, schema_id)


def decode_usage(
    key: bytes | None,
    value: bytes | None,
    *,
    value_bytes_max: int = VALUE_BYTES_MAX,
    lookup: SchemaLookup | None = None,
) -> ResponseUsage:
    """Read a usage record. Raises: as `decode_event`."""
    if key is None:
        raise Undecodable("null_key", "the record has no key")
    identity = _call_identity(key + _RESPONSE_KEY_END.encode())
    fields = _avro_fields(RESPONSE_USAGE, _bounded(value, value_bytes_max), lookup)
    try:
        usage = usage_from(fields)
    except InvalidField as e:
        raise Undecodable("invalid_field", str(e)) from e
    if (usage.tenant, usage.request_id, usage.response_id) != identity[:3]:
        raise Undecodable("key_mismatch", "the ids of ResponseUsage are not those of the key")
    return usage


def _write(schema: RecordSchema, fields: Fields, schema_id: int | None) -> bytes:
    if schema_id is None:
        frame = single_object_frame(schema.fingerprint)
    else:
        frame = registry_frame(schema_id)
    try:
        return schema.write(frame, fields)
    except (LookupError, ValueError) as e:
        raise Unencodable(f"{schema.name}: a field does not fit the schema") from e


def _read(
    schema: RecordSchema,
    key: bytes | None,
    value: bytes | None,
    value_bytes_max: int,
    lookup: SchemaLookup | None,
) -> tuple[CallKey, Fields]:
    identity = _call_identity(key)
    fields = _avro_fields(schema, _bounded(value, value_bytes_max), lookup)
    if identity_of(fields) != identity:
        raise Undecodable("key_mismatch", f"the ids of {schema.name} are not those of the key")
    return identity, fields


#: The events of one call follow each other closely, and a key costs as much as a small record.
_decode_key: Final = lru_cache(maxsize=8_192)(decode_call_key)


def _call_identity(key: bytes | None) -> CallKey:
    if key is None:
        raise Undecodable("null_key", "the record has no key")
    try:
        return _decode_key(key)
    except IdentityError as e:
        raise Undecodable("malformed_key", str(e)) from e


def _bounded(value: bytes | None, value_bytes_max: int) -> bytes:
    if value is None:
        raise Undecodable("null_value", "the record has no value")
    if len(value) > value_bytes_max:
        raise Undecodable("too_large", f"{len(value)} bytes, the limit is {value_bytes_max}")
    return value


def _avro_fields(schema: RecordSchema, value: bytes, lookup: SchemaLookup | None) -> Fields:
    try:
        frame, at = read_frame(value)
        if isinstance(frame, Json):
            raise Undecodable("unknown_frame", f"a {schema.name} is not read from JSON")
        if isinstance(frame, SingleObject):
            reader = schema.reader_of_fingerprint(frame.fingerprint)
            if reader is None:
                raise Undecodable(
                    "unknown_schema", f"the fingerprint is that of no version of {schema.name}"
                )
        elif lookup is None:
            raise Undecodable(
                "unknown_schema", f"schema id {frame.schema_id}, no registry is configured"
            )
        else:
            reader = schema.reader_of_text(lookup.schema(frame.schema_id))
        return reader.read(value, at)
    except FrameError as e:
        raise Undecodable("unknown_frame", str(e)) from e
    except SchemaRefused as e:
        raise Undecodable("unknown_schema", str(e)) from e
    except Malformed as e:
        raise Undecodable("malformed_avro", str(e)) from e
