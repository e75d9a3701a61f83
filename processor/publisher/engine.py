"""What the sync and the asyncio publisher share: one sink, its settings, and the open responses.

Rules:
    Ids and dialect are checked when a response is opened, before the model's first chunk.
    A fault is always told to `on_fault`, whatever else happens with it; by default it is logged.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final

from processor.codec.headers import trace_headers
from processor.core._record import record
from processor.core.errors import Misuse
from processor.dialects.stream import ResponseStream
from processor.publisher.clock import Monotonic, WallClock, monotonic_s, wall_ms
from processor.publisher.errors import PublishError, Undelivered
from processor.publisher.flow import Outlet, ResponseFlow
from processor.publisher.ports import EventSink
from processor.publisher.producer import KafkaSink
from processor.publisher.settings import PublisherSettings

_log = logging.getLogger("processor.publisher")

OnFault = Callable[[PublishError], None]

#: Request ids named when events stay undelivered; the count is always whole.
_NAMED_MAX: Final = 100


def log_fault(fault: PublishError) -> None:
    """The default `on_fault`: one warning on the logger `processor.publisher`, ids only."""
    _log.warning("%s: %s", fault.code, fault)


@record
class CloseReport:
    """What `close` could not deliver: how many records, and (at most 100) requests hit by it."""

    undelivered: int
    request_ids: tuple[str, ...]


class Engine:
    """Owns the sink. Thread-safe."""

    def __init__(
        self,
        settings: PublisherSettings,
        sink: EventSink | None,
        on_fault: OnFault,
        clocks: tuple[WallClock, Monotonic] = (wall_ms, monotonic_s),
    ) -> None:
        self.settings = settings.checked()
        self.now_s = clocks[1]
        self.sink: EventSink = KafkaSink(settings) if sink is None else sink
        self._on_fault = on_fault
        self._outlet = Outlet(
            sink=self.sink,
            events_topic=settings.events_topic,
            usage_topic=settings.usage_topic,
            schema_ids=settings.schema_ids,
            record_bytes_max=settings.record_bytes_max,
            wall_ms=clocks[0],
            on_fault=self._told,
        )
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[ResponseFlow] = weakref.WeakSet()
        self._closing: dict[str, None] | None = None
        self._report: CloseReport | None = None
        self._process = os.getpid()

    @property
    def raises(self) -> bool:
        """True when faults are raised as well as told."""
        return self.settings.on_publish_error == "raise"

    def open(
        self, stream: ResponseStream, request_id: str, trace: tuple[str | None, str | None]
    ) -> ResponseFlow:
        """Start publishing one response. Raises: `Misuse` when closed, or in a forked process."""
        if self._process != os.getpid():
            raise Misuse("the publisher was made before a fork; make one in each process")
        context = trace_headers(zip(("traceparent", "tracestate"), trace, strict=True))
        flow = ResponseFlow(stream, request_id, self._outlet, context)
        with self._lock:
            if self._closing is not None:
                raise Misuse("the publisher is closed")
            self._open.add(flow)
        return flow

    def done(self, flow: ResponseFlow) -> None:
        """The response needs no care any more when the publisher closes."""
        with self._lock:
            self._open.discard(flow)

    def close(self, timeout_s: float) -> CloseReport:
        """Abort what is open, deliver what waits, at most `timeout_s`; then stop. Idempotent."""
        with self._lock:
            if self._closing is not None:
                return self._report or CloseReport(0, ())
            self._closing = {}
            flows = list(self._open)
            self._open.clear()
        for flow in flows:
            flow.leave()
        # Only what the sink loses from here on belongs to the report.
        self._closing.clear()
        left = self.sink.close(timeout_s)
        self._report = CloseReport(left, tuple(self._closing))
        return self._report

    def _told(self, fault: PublishError) -> None:
        closing = self._closing
        if closing is not None and len(closing) < _NAMED_MAX:
            closing[fault.request_id] = None
        try:
            self._on_fault(fault)
        except Exception as e:  # noqa: BLE001 - the caller's function must not end a delivery thread
            _log.warning("on_fault failed with %s", type(e).__name__)


def raise_undelivered(report: CloseReport) -> None:
    """Raise `Undelivered` when something is."""
    if report.undelivered:
        raise Undelivered(report.undelivered, report.request_ids)
