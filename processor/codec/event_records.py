"""Stream events and usage as whole records: key, value, and the headers that say what they are.

Rules:
    Every record of a call has the same key, so Kafka keeps their order.
    The same event written again is the same CloudEvent: its id is the call key and the seq.
"""

from typing import Final

from processor.codec.headers import Headers, cloudevents_headers, event_id
from processor.codec.records import encode_event, encode_usage, usage_key
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.usage import ResponseUsage

_KINDS: Final[dict[type[Body], str]] = {
    CallStarted: "toolcall.started",
    ArgumentsDelta: "toolcall.delta",
    ArgumentsDone: "toolcall.done",
    ResponseEnded: "toolcall.response_ended",
    CallAborted: "toolcall.aborted",
    CallExpired: "toolcall.expired",
}


def event_record(
    key: bytes, event: StreamEvent, source: str, trace: Headers, schema_id: int | None = None
) -> tuple[bytes, Headers]:
    """Value and headers of one event of the call `key`. Cost: about 3 µs. Raises: `Unencodable`."""
    headers = cloudevents_headers(event_id(key, event.seq), source, _KINDS[type(event.body)])
    return encode_event(event, schema_id=schema_id), headers + trace


def usage_record(
    usage: ResponseUsage, source: str, trace: Headers, schema_id: int | None = None
) -> tuple[bytes, bytes, Headers]:
    """Key, value and headers of a response's usage. Raises: `Unencodable`."""
    key = usage_key(usage)
    headers = cloudevents_headers(f"{key.decode()}/usage", source, "toolcall.usage")
    return key, encode_usage(usage, schema_id=schema_id), headers + trace
