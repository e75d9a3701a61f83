"""One response onto the chunks topic as it came: for a gateway or a log shipper, and for the CLI.

Rules:
    Records are numbered from 0 without holes; the normaliser refuses a response with a hole, so a
    lost record is never taken for a short stream.
    Nothing is read of the bytes: the normaliser does that, with the dialect that the envelope names.
"""

import threading

from processor.codec.chunk_records import chunk_key, encode_chunk
from processor.codec.headers import Headers, cloudevents_headers, event_id, trace_headers
from processor.core._record import record
from processor.core.chunks import ChunkBody, JsonChunk, RawChunk, ResponseChunk, StreamClosed
from processor.core.errors import Misuse
from processor.core.identity import IdentityError, call_key
from processor.publisher.clock import Monotonic, WallClock, monotonic_s, wall_ms
from processor.publisher.errors import Undelivered
from processor.publisher.ports import EventSink, OutRecord

SOURCE = "toolcalls/publisher"


@record
class ResponseName:
    """Whose response it is, and in which dialect. `response_id` differs at every try."""

    tenant: str
    request_id: str
    response_id: str
    dialect: str
    model: str | None = None


class ChunkWriter:
    """Writes one response. For one thread at a time; the sink is the caller's.

    Raises: `Misuse` when an id of `name` may be none.
    """

    def __init__(
        self,
        sink: EventSink,
        topic: str,
        name: ResponseName,
        *,
        traceparent: str | None = None,
        clocks: tuple[WallClock, Monotonic] = (wall_ms, monotonic_s),
    ) -> None:
        try:
            call_key(name.tenant, name.request_id, name.response_id, "-")
        except IdentityError as e:
            raise Misuse(str(e)) from None
        self._sink = sink
        self._topic = topic
        self._name = name
        self._trace: Headers = trace_headers([("traceparent", traceparent)])
        self._wall_ms, self._now_s = clocks
        self._next = 0
        self._failed_count = 0
        self._waiting_count = 0
        self._changed = threading.Lock()

    def write_json(self, text: bytes, *, timeout_s: float = 30.0) -> None:
        """One whole event of the vendor, as the text of a JSON object. Raises: as `write_raw`."""
        self._write(JsonChunk(text), timeout_s)

    def write_raw(self, data: bytes, *, timeout_s: float = 30.0) -> None:
        """Bytes of the stream, cut anywhere; waits while the local queue is full.

        Raises: `Undelivered` when there is no room within `timeout_s`; `Unencodable`.
        """
        self._write(RawChunk(data), timeout_s)

    def close(self, *, cancelled: bool = False, timeout_s: float = 30.0) -> None:
        """The stream is over, or was left before its end. Raises: as `write_raw`."""
        self._write(StreamClosed(cancelled), timeout_s)

    def confirm(self, timeout_s: float) -> None:
        """Wait until Kafka has every record. Raises: `Undelivered`."""
        self._sink.flush(timeout_s)
        lost = self._failed_count + self._waiting_count
        if lost:
            raise Undelivered(lost, (self._name.request_id,))

    def _write(self, body: ChunkBody, timeout_s: float) -> None:
        name = self._name
        chunk = ResponseChunk(
            name.tenant,
            name.request_id,
            name.response_id,
            name.dialect,
            self._next,
            body,
            name.model,
            self._wall_ms(),
        )
        key = chunk_key(chunk)
        headers = cloudevents_headers(event_id(key, chunk.number), SOURCE, "toolcall.chunk")
        out = OutRecord(self._topic, key, encode_chunk(chunk), headers + self._trace)
        deadline_s = self._now_s() + timeout_s
        while not self._sink.offer(out, self._report):
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                raise Undelivered(1, (name.request_id,))
            self._sink.wait_for_room(left_s)
        with self._changed:
            self._waiting_count += 1
        self._next += 1

    def _report(self, out: OutRecord, error: str | None) -> None:
        del out
        with self._changed:
            self._waiting_count -= 1
            self._failed_count += error is not None
