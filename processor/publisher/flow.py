"""One response on its way out: which events of which call were accepted, confirmed, or lost.

Rules:
    Nothing here waits: a full queue is an answer (`pump` returns False), and the caller waits.
    The lock is held only for short work, never while waiting or while telling `on_fault`.
    A call that lost an event is aborted, once, and gets no further event; so it can never be taken
    for complete. When the whole response is given up, every call of it that has not ended is.
"""

import threading
from collections import deque
from collections.abc import Callable
from pathlib import PurePath
from typing import Final, Literal, NamedTuple

from processor.codec.dead_letter_codes import Unencodable
from processor.codec.headers import Headers
from processor.core._record import record
from processor.core.events import CallAborted, ResponseEnded, StreamEvent
from processor.core.identity import CallKey
from processor.core.usage import ResponseUsage
from processor.dialects.stream import DialectError, KeyedEvent, ResponseStream
from processor.publisher.chunks import UnreadableChunk, as_mapping, is_raw
from processor.publisher.clock import WallClock
from processor.publisher.errors import (
    ChunkRefused,
    DeliveryFailed,
    EventRefused,
    ProducerFailed,
    PublishError,
    PublishingBroken,
    PublishQueueFull,
    RecordTooLarge,
    ResponseUnfinished,
    SinkRefused,
    Where,
)
from processor.publisher.ports import EventSink, OutRecord
from processor.publisher.records import OVERHEAD_BYTES, CallOut, usage_record
from processor.publisher.settings import SchemaIds

#: How a response ends for us: by itself, by its reader, or by an exception of the stream.
Ending = Literal["end", "cancelled", "failed"]

_TOO_LARGE_CODE: Final = "MSG_SIZE_TOO_LARGE"


@record
class Outlet:
    """What all responses of one publisher share."""

    sink: EventSink
    events_topic: str
    usage_topic: str
    schema_ids: SchemaIds
    record_bytes_max: int
    wall_ms: WallClock
    #: Must not raise.
    on_fault: Callable[[PublishError], None]


class _Pending(NamedTuple):
    """A record that waits to be offered; `call` is None for the usage record."""

    call: CallOut | None
    record: OutRecord
    ends_call: bool


class ResponseFlow:
    """The publishing of one response. One thread at a time feeds it; reports come from any."""

    def __init__(
        self, stream: ResponseStream, request_id: str, outlet: Outlet, trace: Headers
    ) -> None:
        self._where = Where(request_id, outlet.events_topic)
        self._stream = stream
        self._outlet = outlet
        self._trace = trace
        self._changed = threading.Condition(threading.Lock())
        self._calls: dict[CallKey, CallOut] = {}
        self._by_key: dict[bytes, CallOut] = {}
        self._pending: deque[_Pending] = deque()
        self._unconfirmed = 0
        self._over = False
        self._given_up: PublishError | None = None
        self._faults: list[PublishError] = []
        self._untold: deque[PublishError] = deque()
        self._raised_count = 0

    # --- what the application's thread or task calls -------------------------------------------

    @property
    def faults(self) -> tuple[PublishError, ...]:
        """Everything that went wrong so far, in order."""
        return tuple(self._faults)

    @property
    def request_id(self) -> str:
        """The request that this response answers."""
        return self._where.request_id

    @property
    def response_id(self) -> str | None:
        """The response's id, once the wire has told it."""
        return self._stream.response_id

    @property
    def call_ids(self) -> tuple[str, ...]:
        """The calls seen so far, in the order in which they began."""
        return tuple(key.call_id for key in self._calls)

    def feed(self, chunk: object) -> None:
        """Turn one chunk into records to send. Never raises; a fault ends the response here."""
        if not self._over:
            self._attempt(lambda: self._enqueue(self._read(chunk)))

    def finish(self, ending: Ending) -> None:
        """The input is over. Idempotent; never raises."""
        if not self._over:
            self._over = True
            self._attempt(lambda: self._enqueue_end(ending))

    def pump(self) -> bool:
        """Offer what waits; False when the queue is full. Never raises."""
        if not self._pending:
            return True
        with self._changed:
            try:
                emptied = self._offer_pending()
            except Exception as e:  # noqa: BLE001 - the model's reader must not meet a broken sink
                self._pending.clear()
                self._abandon(PublishingBroken(self._where, _place(e)))
                emptied = True
        self._tell()
        return emptied

    def give_up(self, waited_ms: int) -> None:
        """The queue stayed full: abort every call that has not ended."""
        text = f"the local queue stayed full for {waited_ms} ms; is Kafka reachable?"
        self._break(PublishQueueFull(self._where, text))

    def leave(self) -> None:
        """Nobody comes back: abort what has not ended, if anything. Any thread may call it."""
        if not self._over or self._pending:
            self._break(ResponseUnfinished(self._where, "left before its end was published"))

    def next_to_raise(self) -> PublishError | None:
        """The next fault not raised yet; once the response was given up, that fault again."""
        if self._raised_count < len(self._faults):
            self._raised_count += 1
            return self._faults[self._raised_count - 1]
        return self._given_up

    def confirm(self, timeout_s: float) -> bool:
        """Wait until every accepted record is reported; True when all are, and without a fault."""
        with self._changed:
            settled = self._changed.wait_for(lambda: self._unconfirmed == 0, timeout_s)
            return settled and not self._pending and not self._faults

    # --- chunks to records ---------------------------------------------------------------------

    def _attempt(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (DialectError, UnreadableChunk) as e:
            # Both texts are ours and hold no content.
            self._break(ChunkRefused(self._where, str(e)))
        except Exception as e:  # noqa: BLE001 - the model's reader must not meet a bug of ours
            self._break(PublishingBroken(self._where, _place(e)))

    def _read(self, chunk: object) -> list[KeyedEvent]:
        if is_raw(chunk):
            return self._stream.observe_bytes(bytes(chunk))
        return self._stream.observe(as_mapping(chunk))

    def _enqueue(self, events: list[KeyedEvent]) -> None:
        if not events:
            return
        at_ms = self._outlet.wall_ms()
        for key, event in events:
            call = self._calls.get(key) or self._new_call(key)
            try:
                out = self._record(call, StreamEvent(event.seq, event.body, at_ms))
            except Unencodable as e:
                self._fail(call, EventRefused(self._where_of(call), str(e)))
                continue
            if len(out.key) + len(out.value) + OVERHEAD_BYTES > self._outlet.record_bytes_max:
                self._fail(call, self._too_large(call))
                continue
            ends_call = isinstance(event.body, ResponseEnded | CallAborted)
            self._pending.append(_Pending(call, out, ends_call))

    def _enqueue_end(self, ending: Ending) -> None:
        events = self._stream.end(cancelled=ending == "cancelled")
        if ending == "failed":
            events = [_fail_closed(item) for item in events]
        self._enqueue(events)
        if self._stream.usage is not None:
            self._enqueue_usage(self._stream.usage)

    def _enqueue_usage(self, usage: ResponseUsage) -> None:
        outlet = self._outlet
        try:
            out = usage_record(outlet.usage_topic, usage, self._trace, outlet.schema_ids.usage)
        except Unencodable as e:
            with self._changed:
                self._note(EventRefused(self._where._replace(topic=outlet.usage_topic), str(e)))
            self._tell()
        else:
            self._pending.append(_Pending(None, out, ends_call=False))

    def _record(self, call: CallOut, event: StreamEvent) -> OutRecord:
        return call.record(self._outlet.events_topic, event, self._outlet.schema_ids.events)

    def _new_call(self, key: CallKey) -> CallOut:
        call = CallOut(key, self._trace)
        with self._changed:
            self._calls[key] = self._by_key[call.key] = call
        return call

    # --- records to the sink; the lock is held -------------------------------------------------

    def _offer_pending(self) -> bool:
        if self._given_up is not None:
            self._pending.clear()
        while self._pending:
            item = self._pending[0]
            call = item.call
            if call is None or not call.broken:
                try:
                    if not self._outlet.sink.offer(item.record, self._reported):
                        return False
                    self._accepted(item)
                except SinkRefused as e:
                    self._refused(item.call, e)
            if self._given_up is not None:
                self._pending.clear()
            else:
                self._pending.popleft()
        return True

    def _accepted(self, item: _Pending) -> None:
        self._unconfirmed += 1
        if item.call is not None:
            item.call.next_seq += 1
            item.call.ended = item.call.ended or item.ends_call

    def _refused(self, call: CallOut | None, refusal: SinkRefused) -> None:
        if call is not None and refusal.sink_code == _TOO_LARGE_CODE:
            self._lose(call, self._too_large(call))
        else:
            text = f"the Kafka client refuses events ({refusal.sink_code}); make a new publisher"
            self._abandon(ProducerFailed(self._where, text))

    def _too_large(self, call: CallOut) -> RecordTooLarge:
        text = f"an event is larger than record_bytes_max, {self._outlet.record_bytes_max}"
        return RecordTooLarge(self._where_of(call), text)

    def _where_of(self, call: CallOut) -> Where:
        return self._where._replace(call_id=call.call_id)

    def _lose(self, call: CallOut, fault: PublishError) -> None:
        """One call cannot become whole any more: say so once, and abort it."""
        if not call.broken:
            self._note(fault)
            self._abort(call, fault.reason)

    def _abandon(self, fault: PublishError) -> None:
        """The response cannot go on: abort every call whose end was not accepted."""
        self._over = True
        self._given_up = fault
        self._note(fault)
        for call in self._calls.values():
            if not call.ended and not call.broken:
                self._abort(call, fault.reason)

    def _abort(self, call: CallOut, reason: str) -> None:
        call.broken = True
        event = StreamEvent(call.next_seq, CallAborted(reason), self._outlet.wall_ms())
        try:
            self._outlet.sink.offer_late(self._record(call, event))
        except Exception as e:  # noqa: BLE001 - a broken sink too: the call stays open and expires
            self._note(PublishingBroken(self._where_of(call), _place(e)))

    def _note(self, fault: PublishError) -> None:
        self._faults.append(fault)
        self._untold.append(fault)

    # --- reports and faults --------------------------------------------------------------------

    def _reported(self, out: OutRecord, error: str | None) -> None:
        with self._changed:
            self._unconfirmed -= 1
            if error is not None:
                self._undelivered(out, error)
            if self._unconfirmed == 0:
                self._changed.notify_all()
        self._tell()

    def _undelivered(self, out: OutRecord, error: str) -> None:
        call = self._by_key.get(out.key)
        if call is not None:
            self._lose(call, DeliveryFailed(self._where_of(call), error))
        else:
            self._note(DeliveryFailed(self._where._replace(topic=out.topic), error))

    def _fail(self, call: CallOut, fault: PublishError) -> None:
        with self._changed:
            self._lose(call, fault)
        self._tell()

    def _break(self, fault: PublishError) -> None:
        with self._changed:
            if self._given_up is None:
                self._abandon(fault)
            self._pending.clear()
        self._tell()

    def _tell(self) -> None:
        while self._untold:
            try:
                fault = self._untold.popleft()
            except IndexError:
                return  # the other thread tells it
            self._outlet.on_fault(fault)


def _fail_closed(item: KeyedEvent) -> KeyedEvent:
    """A stream that raised has no clean end, whatever the wire had said before."""
    key, event = item
    if isinstance(event.body, ResponseEnded) and event.body.outcome == "completed":
        body = ResponseEnded("stream_ended", event.body.detail)
        return KeyedEvent(key, StreamEvent(event.seq, body, event.at_ms))
    return item


def _place(error: Exception) -> str:
    """Type and innermost place of an exception; its text may quote content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    file = PurePath(trace.tb_frame.f_code.co_filename).name
    return f"{type(error).__name__} at {file}:{trace.tb_lineno}"
