"""The publisher for asyncio: the same, with nothing that holds up the event loop.

Rules:
    Handing a record to the client does not wait; reports are served by the sink's own thread.
    When the queue is full, this task waits and every other one goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable
from types import TracebackType
from typing import Final, TypeVar

from processor.dialects.stream import ResponseStream
from processor.publisher.clock import Monotonic, WallClock, monotonic_s, wall_ms
from processor.publisher.engine import CloseReport, Engine, OnFault, log_fault, raise_undelivered
from processor.publisher.errors import PublishError
from processor.publisher.flow import Ending, ResponseFlow
from processor.publisher.ports import EventSink
from processor.publisher.settings import PublisherSettings

T = TypeVar("T")

#: How often a task that waits for room offers again.
_ROOM_POLL_S: Final = 0.01


class AsyncStreamPublisher:
    """Publishes one response; made by `AsyncPublisher.stream`. For one task at a time."""

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
        """As `StreamPublisher.call_ids`."""
        return self._flow.call_ids

    async def observe(self, chunk: object) -> None:
        """As `StreamPublisher.observe`; awaits only when the local queue is full."""
        self._flow.feed(chunk)
        await self._drain()
        self._raise_if_asked()

    async def wrap(self, chunks: AsyncIterable[T]) -> AsyncGenerator[T, None]:
        """As `StreamPublisher.wrap`. Cancelling the task, `break` and `aclose()` mean cancelled.

        After a `break` Python closes an async generator only when the event loop gets to it; use
        `contextlib.aclosing` to have the response ended at once.
        """
        try:
            async for chunk in chunks:
                await self.observe(chunk)
                yield chunk
        except Exception:
            await self._finish("failed")
            raise
        except BaseException:
            # Cancelled or closed: no await here, what finds no room now is aborted later.
            self._finish_now("cancelled")
            raise
        await self.end()

    async def end(self) -> None:
        """As `StreamPublisher.end`."""
        await self._finish("end")
        self._raise_if_asked()

    async def cancel(self) -> None:
        """As `StreamPublisher.cancel`."""
        await self._finish("cancelled")
        self._raise_if_asked()

    async def confirm(self, timeout_s: float) -> bool:
        """As `StreamPublisher.confirm`; waits on a thread of the default executor."""
        confirmed = await asyncio.to_thread(self._flow.confirm, timeout_s)
        self._raise_if_asked()
        return confirmed

    async def __aenter__(self) -> "AsyncStreamPublisher":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.end()
        elif isinstance(error, Exception):
            await self._finish("failed")
        else:
            self._finish_now("cancelled")

    async def _finish(self, ending: Ending) -> None:
        try:
            self._flow.finish(ending)
            await self._drain()
        finally:
            self._flow.leave()
            self._engine.done(self._flow)

    def _finish_now(self, ending: Ending) -> None:
        self._flow.finish(ending)
        self._flow.pump()
        self._flow.leave()
        self._engine.done(self._flow)

    async def _drain(self) -> None:
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
            await asyncio.sleep(min(left_s, _ROOM_POLL_S))

    def _raise_if_asked(self) -> None:
        if self._engine.raises:
            fault = self._flow.next_to_raise()
            if fault is not None:
                raise fault


class AsyncPublisher:
    """Owns one Kafka producer, for any number of tasks. Close it, or use `async with`.

    As `Publisher`; `on_fault` may be called on the delivery thread: to reach the loop from there
    use `loop.call_soon_threadsafe`.
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
    ) -> AsyncStreamPublisher:
        """As `Publisher.stream`."""
        stream = ResponseStream(dialect, tenant=tenant, request_id=request_id, model=model)
        flow = self._engine.open(stream, request_id, (traceparent, tracestate))
        return AsyncStreamPublisher(self._engine, flow)

    async def flush(self, timeout_s: float) -> int:
        """As `Publisher.flush`, on a thread of the default executor."""
        return await asyncio.to_thread(self._engine.sink.flush, timeout_s)

    async def close(self, timeout_s: float = 10.0) -> CloseReport:
        """As `Publisher.close`, on a thread of the default executor."""
        report = await asyncio.to_thread(self._engine.close, timeout_s)
        if self._engine.raises:
            raise_undelivered(report)
        return report

    async def __aenter__(self) -> "AsyncPublisher":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.close()
        else:
            await asyncio.to_thread(self._engine.close, 10.0)
