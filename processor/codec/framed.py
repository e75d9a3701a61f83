"""A record's fields as the value of a Kafka record and back: frames, bounds, identity.

Rules:
    Reading is total: any bytes give fields or `Undecodable`. Only with a registry there is a third
    way, `Transient`, when the registry does not answer.
"""

from functools import lru_cache
from typing import Final, Protocol

from processor.codec.avro import RecordSchema
from processor.codec.avro_datum import SchemaRefused
from processor.codec.dead_letter_codes import Undecodable, Unencodable
from processor.codec.frames import (
    FrameError,
    Json,
    SingleObject,
    read_frame,
    registry_frame,
    single_object_frame,
)
from processor.codec.record_fields import Fields
from processor.codec.varint import Malformed
from processor.core.identity import CallKey, IdentityError, decode_call_key

#: Default bound of a value: what a topic takes by default (`max.message.bytes`).
VALUE_BYTES_MAX: Final = 1024 * 1024

#: Completes the key of a response to a call key, so that both have the same rules.
_RESPONSE_KEY_END: Final = "/-"


class SchemaLookup(Protocol):
    """Where a reader asks for the schema of a registry frame."""

    def schema(self, schema_id: int) -> str:
        """Text of the schema with this id; asked once, then remembered.

        Raises: `Undecodable` (unknown_schema), `Transient` when nobody answers.
        """
        ...


def write_framed(schema: RecordSchema, fields: Fields, schema_id: int | None) -> bytes:
    """A value with its frame: single-object, or the registry's. Raises: `Unencodable`."""
    if schema_id is None:
        frame = single_object_frame(schema.fingerprint)
    else:
        frame = registry_frame(schema_id)
    try:
        return schema.write(frame, fields)
    except (LookupError, ValueError) as e:
        raise Unencodable(f"{schema.name}: a field does not fit the schema") from e


#: The events of one call follow each other closely, and a key costs as much as a small record.
_decode_key: Final = lru_cache(maxsize=8_192)(decode_call_key)


def call_identity(key: bytes | None) -> CallKey:
    """The identity that a call key states. Raises: `Undecodable`."""
    if key is None:
        raise Undecodable("null_key", "the record has no key")
    try:
        return _decode_key(key)
    except IdentityError as e:
        raise Undecodable("malformed_key", str(e)) from e


def response_identity(key: bytes | None) -> tuple[str, str, str]:
    """Tenant, request and response that a response key states. Raises: `Undecodable`."""
    if key is None:
        raise Undecodable("null_key", "the record has no key")
    return call_identity(key + _RESPONSE_KEY_END.encode())[:3]


def response_key(tenant: str, request_id: str, response_id: str) -> bytes:
    """`tenant/request_id/response_id`, each part encoded as in a call key."""
    key = CallKey(tenant, request_id, response_id, "-").encode()
    return key.removesuffix(_RESPONSE_KEY_END.encode())


def bounded(value: bytes | None, value_bytes_max: int) -> bytes:
    """The value, if there is one and it is within its bound. Raises: `Undecodable`."""
    if value is None:
        raise Undecodable("null_value", "the record has no value")
    if len(value) > value_bytes_max:
        raise Undecodable("too_large", f"{len(value)} bytes, the limit is {value_bytes_max}")
    return value


def read_framed(schema: RecordSchema, value: bytes, lookup: SchemaLookup | None = None) -> Fields:
    """The fields of a value in any Avro frame. Raises: `Undecodable`; `Transient` from `lookup`."""
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
