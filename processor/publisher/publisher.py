"""The publisher for threads: what an application or gateway holds in its hands.

Rules:
    The model's chunks are passed through unchanged, in order, one by one, as the same objects.
    Under `on_publish_error="report"` nothing that happens here reaches the reader of the model.
    A response that is left early is `cancelled`; one whose stream raises is `stream_ended`.
"""

from collections.abc import Generator, Iterable
from types import TracebackType
from typing import TypeVar

from processor.dialects.stream import ResponseStream
from processor.publisher.clock import Monotonic, WallClock, monotonic_s, wall_ms
from processor.publisher.engine import CloseReport, Engine, OnFault, log_fault, raise_undelivered
from processor.publisher.errors import PublishError
from processor.publisher.flow import Ending, ResponseFlow
from processor.publisher.ports import EventSink
from processor.publisher.settings import PublisherSettings

T = TypeVar("T")


class StreamPublisher:
    """Publishes one response; made by `Publisher.stream`. For one thread at a time.

    As a context manager it ends the response: cleanly, or, when an exception leaves the block,
    without a clean end, so that no call waiting for it is ever executed.
    """

    def __init__(self, engine: Engine, flow: ResponseFlow) -> None:
        self._engine = engine
        self._flow = flow

    @property
    def faults(self) -> tuple[PublishError, ...]:
        """What went wrong so far; empty when all is well."""
        return self._flow.faults

    @property
    def request_id(self) -> str:
        """The request that this response answers."""
        return self._flow.request_id

    @property
    def response_id(self) -> str | None:
        """The response's id, once the wire has told it."""
        return self._flow.response_id

    @property
    def call_ids(self) -> tuple[str, ...]:
        """The calls seen so far; after the end, all calls of the response."""
        return self._flow.call_ids

    def observe(self, chunk: object) -> None:
        """Publish what one chunk says: an SDK's object, a mapping, or raw bytes cut anywhere.

        Waits only when the local queue is full, at most `block_ms`.

        Raises: `PublishError`, only under `on_publish_error="raise"`.
        """
        self._flow.feed(chunk)
        self._drain()
        self._raise_if_asked()

    def wrap(self, chunks: Iterable[T]) -> Generator[T, None, None]:
        """Yield `chunks` unchanged and publish each just before it is handed on.

        A `break`, `close()` or the end of the reader ends the response as cancelled; an exception
        of `chunks` ends it without a clean end and is raised on.
        """
        try:
            for chunk in chunks:
                self.observe(chunk)
                yield chunk
        except BaseException as e:
            self._finish(_ending(e))
            raise
        self.end()

    def end(self) -> None:
        """The stream was read to its end. Idempotent; does not wait for Kafka, see `confirm`.

        Raises: `PublishError`, only under `on_publish_error="raise"`.
        """
        self._finish("end")
        self._raise_if_asked()

    def cancel(self) -> None:
        """The stream will not be read to its end: its calls must not run. Idempotent."""
        self._finish("cancelled")
        self._raise_if_asked()

    def confirm(self, timeout_s: float) -> bool:
        """Wait until Kafka has confirmed every event; False when not all are, or one failed.

        Raises: `PublishError`, only under `on_publish_error="raise"`, for a failed delivery.
        """
        confirmed = self._flow.confirm(timeout_s)
        self._raise_if_asked()
        return confirmed

    def __enter__(self) -> "StreamPublisher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.end()
        else:
            self._finish(_ending(error))

    def _finish(self, ending: Ending) -> None:
        try:
            self._flow.finish(ending)
            self._drain()
        finally:
            self._flow.leave()
            self._engine.done(self._flow)

    def _drain(self) -> None:
        flow, engine = self._flow, self._engine
        if flow.pump():
            return
        block_ms = engine.settings.block_ms
        deadline_s = engine.now_s() + block_ms / 1000
        while not flow.pump():
            left_s = deadline_s - engine.now_s()
            if left_s <= 0:
                flow.give_up(block_ms)
                return
            engine.sink.wait_for_room(left_s)

    def _raise_if_asked(self) -> None:
        if self._engine.raises:
            fault = self._flow.next_to_raise()
            if fault is not None:
                raise fault


class Publisher:
    """Owns one Kafka producer, for any number of responses and threads. Close it, or use `with`.

    Make one per process, after forking. `on_fault` is told of every fault, on whichever thread
    finds it; the default logs it. `sink` and the clocks are for tests.

    Raises: `Misuse` for wrong settings. A broker that cannot be reached is found out while
    publishing: events fail with `DeliveryFailed` after `delivery_timeout_ms`.
    """

    def __init__(
        self,
        settings: PublisherSettings,
        *,
        on_fault: OnFault = log_fault,
        sink: EventSink | None = None,
        clock_ms: WallClock = wall_ms,
        monotonic: Monotonic = monotonic_s,
    ) -> None:
        self._engine = Engine(settings, sink, on_fault, (clock_ms, monotonic))

    def stream(
        self,
        *,
        dialect: str,
        tenant: str,
        request_id: str,
        model: str | None = None,
        traceparent: str | None = None,
        tracestate: str | None = None,
    ) -> StreamPublisher:
        """Start publishing the response to ONE model request.

        A retry of the same request keeps `request_id`; the next turn of a conversation has its
        own. It may not contain a colon. `traceparent` is passed on when well-formed.

        Raises: `Misuse` for a wrong id, an unknown dialect, or a closed publisher.
        """
        stream = ResponseStream(dialect, tenant=tenant, request_id=request_id, model=model)
        flow = self._engine.open(stream, request_id, (traceparent, tracestate))
        return StreamPublisher(self._engine, flow)

    def flush(self, timeout_s: float) -> int:
        """Wait until Kafka has answered for every event; returns how many are still unanswered."""
        return self._engine.sink.flush(timeout_s)

    def close(self, timeout_s: float = 10.0) -> CloseReport:
        """Abort responses still open, deliver, stop; says what stays undelivered. Idempotent.

        Raises: `Undelivered`, only under `on_publish_error="raise"`.
        """
        report = self._engine.close(timeout_s)
        if self._engine.raises:
            raise_undelivered(report)
        return report

    def __enter__(self) -> "Publisher":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            # The exception under way says more than what stays undelivered because of it.
            self._engine.close(timeout_s=10.0)


def _ending(error: BaseException) -> Ending:
    """An `Exception` is the stream's; leaving early and stopping the program are the reader's."""
    return "failed" if isinstance(error, Exception) else "cancelled"
