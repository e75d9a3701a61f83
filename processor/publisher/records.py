"""Events of one call, and the usage of one response, as records for the sink.

Rules:
    Every record of a call has the same key, so Kafka keeps their order.
    The same event published again is the same CloudEvent: its id is the call key and the seq.
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
from processor.core.identity import CallKey
from processor.core.limits import KEY_BYTES_MAX
from processor.core.usage import ResponseUsage
from processor.publisher.ports import OutRecord

SOURCE: Final = "toolcalls/publisher"
#: What the client adds to key and value at most: the id repeats the key, tracestate has up to 512
#: bytes, the rest are names, varints and the batch header.
OVERHEAD_BYTES: Final = KEY_BYTES_MAX + 1024

_KINDS: Final[dict[type[Body], str]] = {
    CallStarted: "toolcall.started",
    ArgumentsDelta: "toolcall.delta",
    ArgumentsDone: "toolcall.done",
    ResponseEnded: "toolcall.response_ended",
    CallAborted: "toolcall.aborted",
    CallExpired: "toolcall.expired",
}


class CallOut:
    """One call as far as it has gone out; `next_seq` counts the accepted events."""

    __slots__ = ("broken", "call_id", "ended", "key", "next_seq", "trace")

    def __init__(self, key: CallKey, trace: Headers) -> None:
        self.call_id = key.call_id
        self.key = key.encode()
        self.next_seq = 0
        self.ended = self.broken = False
        self.trace = trace

    def record(self, topic: str, event: StreamEvent, schema_id: int | None) -> OutRecord:
        """The record of one event of this call. Cost: about 3 µs. Raises: `Unencodable`."""
        headers = cloudevents_headers(
            event_id(self.key, event.seq), SOURCE, _KINDS[type(event.body)]
        )
        headers += self.trace
        return OutRecord(topic, self.key, encode_event(event, schema_id=schema_id), headers)


def usage_record(
    topic: str, usage: ResponseUsage, trace: Headers, schema_id: int | None
) -> OutRecord:
    """The record of a response's usage, keyed by the response. Raises: `Unencodable`."""
    key = usage_key(usage)
    headers = cloudevents_headers(f"{key.decode()}/usage", SOURCE, "toolcall.usage")
    headers += trace
    return OutRecord(topic, key, encode_usage(usage, schema_id=schema_id), headers)
