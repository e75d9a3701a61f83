"""The three frames of a value, told apart by their first bytes.

Rules:
    `C3 01` + fingerprint, 8 bytes little endian: Avro single-object encoding (Avro 1.11
    specification, "Single object encoding"). The schema is one of `schemas/`.
    `00` + schema id, 4 bytes big endian: the frame of the Confluent schema registry.
    `{`: a JSON object, for first steps and for events only.
"""

from typing import Final, NamedTuple

SINGLE_OBJECT_MAGIC: Final = b"\xc3\x01"
SINGLE_OBJECT_BYTES: Final = 10
REGISTRY_MAGIC: Final = b"\x00"
REGISTRY_BYTES: Final = 5
JSON_MAGIC: Final = b"{"

SCHEMA_ID_MAX: Final = 2**31 - 1


class FrameError(ValueError):
    """The first bytes are those of no frame; the text says so without quoting them."""


class SingleObject(NamedTuple):
    """Avro data after the frame, written with the schema of this fingerprint."""

    fingerprint: bytes


class Registered(NamedTuple):
    """Avro data after the frame, written with the schema of this id in the registry."""

    schema_id: int


class Json(NamedTuple):
    """The whole value is a JSON text."""


Frame = SingleObject | Registered | Json


def single_object_frame(fingerprint: bytes) -> bytes:
    """The ten bytes before Avro data; `fingerprint` is CRC-64-AVRO, little endian."""
    return SINGLE_OBJECT_MAGIC + fingerprint


def registry_frame(schema_id: int) -> bytes:
    """The five bytes before Avro data; `schema_id` is 0 to 2^31-1."""
    if not 0 <= schema_id <= SCHEMA_ID_MAX:
        raise FrameError(f"a schema id is 0 to {SCHEMA_ID_MAX}")
    return REGISTRY_MAGIC + schema_id.to_bytes(4, "big")


def read_frame(value: bytes) -> tuple[Frame, int]:
    """Which frame `value` has, and where its data begins. Raises: `FrameError`."""
    if value.startswith(SINGLE_OBJECT_MAGIC) and len(value) >= SINGLE_OBJECT_BYTES:
        return SingleObject(value[2:SINGLE_OBJECT_BYTES]), SINGLE_OBJECT_BYTES
    if value.startswith(REGISTRY_MAGIC) and len(value) >= REGISTRY_BYTES:
        return Registered(int.from_bytes(value[1:REGISTRY_BYTES], "big")), REGISTRY_BYTES
    if value.startswith(JSON_MAGIC):
        return Json(), 0
    raise FrameError(f"the {len(value)} bytes begin like none of the frames 0xC3 0x01, 0x00 and {{")
