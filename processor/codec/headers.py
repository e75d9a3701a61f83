"""Headers of the records that we write: CloudEvents attributes, and trace context passed on.

Rules:
    CloudEvents 1.0, Kafka protocol binding, binary content mode: attributes are headers `ce_...`,
    UTF-8; the value is the data alone.
    An id is derived from a position or from the content, never random: a replay writes the same.
    W3C Trace Context: `traceparent` is passed on only when well formed, `tracestate` only with it.
"""

import re
from collections.abc import Iterable
from typing import Final

from processor.core.canonical import sha256

#: Record headers as the Kafka client takes them.
Headers = list[tuple[str, str | bytes | None]]

SPECVERSION: Final = b"1.0"
#: What a tracestate must be passed on at least (W3C Trace Context, section 3.3.1.5).
TRACESTATE_BYTES_MAX: Final = 512

_TRACEPARENT: Final = re.compile(
    rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)


def cloudevents_headers(ce_id: str, source: str, kind: str) -> Headers:
    """The four attributes; `source` names the writer, `kind` is the type. A new list each time."""
    return [
        ("ce_id", ce_id.encode()),
        ("ce_source", source.encode()),
        ("ce_type", kind.encode()),
        ("ce_specversion", SPECVERSION),
    ]


def position_id(topic: str, partition: int, offset: int) -> str:
    """Id of a record that one record of another topic gave rise to: that record's place."""
    return f"{topic}/{partition}/{offset}"


def event_id(key: bytes, seq: int) -> str:
    """Id of a stream event: its call key and its seq."""
    return f"{key.decode()}/{seq}"


def content_id(key: bytes, value: bytes) -> str:
    """Id of a record without a place: SHA-256 of key and value. Cost: about 2 µs."""
    return sha256(len(key).to_bytes(4, "big") + key + value).hex()


def trace_headers(headers: Iterable[tuple[str, str | bytes | None]] | None) -> Headers:
    """The trace context among `headers`, to be passed on; the last one of each name counts.

    A context that breaks the rules is dropped: it would poison what reads it later.
    """
    found = {
        name: value.encode() if isinstance(value, str) else value
        for name, value in headers or ()
        if name in ("traceparent", "tracestate") and value
    }
    parent, state = found.get("traceparent"), found.get("tracestate")
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return []
    passed: Headers = [("traceparent", parent)]
    if state is not None and len(state) <= TRACESTATE_BYTES_MAX and _is_printable(state):
        passed.append(("tracestate", state))
    return passed


def _is_printable(text: bytes) -> bool:
    return all(0x20 <= byte <= 0x7E for byte in text)
