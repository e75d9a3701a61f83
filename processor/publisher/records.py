"""Events of one call, and the usage of one response, as records for the sink."""

from typing import Final

from processor.codec import event_records
from processor.codec.headers import Headers
from processor.core.events import StreamEvent
from processor.core.identity import CallKey
from processor.core.limits import KEY_BYTES_MAX
from processor.core.usage import ResponseUsage
from processor.publisher.ports import OutRecord

SOURCE: Final = "toolcalls/publisher"
#: What the client adds to key and value at most: the id repeats the key, tracestate has up to 512
#: bytes, the rest are names, varints and the batch header.
OVERHEAD_BYTES: Final = KEY_BYTES_MAX + 1024


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
        value, headers = event_records.event_record(self.key, event, SOURCE, self.trace, schema_id)
        return OutRecord(topic, self.key, value, headers)


def usage_record(
    topic: str, usage: ResponseUsage, trace: Headers, schema_id: int | None
) -> OutRecord:
    """The record of a response's usage, keyed by the response. Raises: `Unencodable`."""
    return OutRecord(topic, *event_records.usage_record(usage, SOURCE, trace, schema_id))
