"""The asyncio publisher says the same on the topic, and never holds up the event loop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from processor.core.outcomes import CallCompleted
from processor.publisher import (
    AsyncPublisher,
    AsyncStreamPublisher,
    MemorySink,
    PublishError,
    PublisherSettings,
    PublishQueueFull,
)
from processor.publisher.ports import OutRecord, Report
from processor.publisher.settings import OnPublishError
from tests.unit.publisher.model_streams import (
    AT_MS,
    DIALECT,
    OPEN_COUNT,
    Rig,
    ends_of,
    folded,
    interleaved,
)


class AsyncRig:
    """An asyncio publisher on a sink in memory."""

    def __init__(
        self,
        on_publish_error: OnPublishError = "report",
        sink: MemorySink | None = None,
        block_ms: int = 60_000,
    ) -> None:
        self.sink = sink or MemorySink()
        self.told: list[PublishError] = []
        self.publisher = AsyncPublisher(
            PublisherSettings(
                bootstrap="unused:9092", on_publish_error=on_publish_error, block_ms=block_ms
            ),
            sink=self.sink,
            on_fault=self.told.append,
            clock_ms=lambda: AT_MS,
        )

    def stream(self) -> AsyncStreamPublisher:
        """A stream of the request that all tests publish."""
        return self.publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")


class FullSink(MemorySink):
    """Says by an event of the loop that it refused a record for want of room."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.refused = asyncio.Event()

    def offer(self, record: OutRecord, report: Report) -> bool:
        """As any sink in memory."""
        taken = super().offer(record, report)
        if not taken:
            self.refused.set()
        return taken


async def chunks_of(
    chunks: list[dict[str, object]], error: Exception | None = None
) -> AsyncIterator[dict[str, object]]:
    """The model's stream."""
    for chunk in chunks:
        yield chunk
    if error is not None:
        raise error


def test_the_records_are_those_of_the_sync_publisher() -> None:
    """One implementation, two ways to wait."""
    rig, sync = AsyncRig(), Rig()

    async def publish() -> list[dict[str, object]]:
        source = chunks_of(interleaved())
        return [chunk async for chunk in rig.stream().wrap(source)]

    assert asyncio.run(publish()) == interleaved()
    for _ in sync.stream().wrap(interleaved()):
        pass
    assert rig.sink.records == sync.sink.records


def test_an_exception_of_the_stream_ends_it_without_a_clean_end() -> None:
    """Raised on, and stream_ended on the topic."""
    rig = AsyncRig()

    async def publish() -> None:
        async for _ in rig.stream().wrap(chunks_of(interleaved()[:OPEN_COUNT], ValueError("gone"))):
            pass

    with pytest.raises(ValueError, match="gone"):
        asyncio.run(publish())
    assert ends_of(rig.sink.records) == {"call_A": ["stream_ended"], "call_B": ["stream_ended"]}


def test_leaving_the_loop_early_cancels_the_open_calls() -> None:
    """With `aclosing` at once, without it at the latest when the loop shuts down."""
    for closed_at_once in (True, False):
        rig = AsyncRig()

        async def publish(rig: AsyncRig = rig, *, closed_at_once: bool = closed_at_once) -> None:
            wrapped = rig.stream().wrap(chunks_of(interleaved()))
            if closed_at_once:
                async with aclosing(wrapped) as closing:
                    await take(closing)
                assert rig.sink.records
            else:
                await take(wrapped)

        asyncio.run(publish())
        assert ends_of(rig.sink.records) == {"call_A": ["cancelled"], "call_B": ["cancelled"]}


async def take(chunks: AsyncIterator[dict[str, object]]) -> None:
    """Read until both calls are open, then break off."""
    count = 0
    async for _ in chunks:
        count += 1
        if count == OPEN_COUNT:
            break


def test_cancelling_the_task_cancels_the_open_calls() -> None:
    """A cancelled task did not read the rest."""
    rig = AsyncRig()

    async def publish() -> None:
        reached = asyncio.Event()

        async def endless() -> AsyncIterator[dict[str, object]]:
            for chunk in interleaved()[:OPEN_COUNT]:
                yield chunk
            reached.set()
            await asyncio.Event().wait()

        async def read() -> None:
            async for _ in rig.stream().wrap(endless()):
                pass

        task = asyncio.create_task(read())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(publish())
    assert ends_of(rig.sink.records) == {"call_A": ["cancelled"], "call_B": ["cancelled"]}


def test_a_full_queue_holds_up_this_task_alone_until_there_is_room() -> None:
    """Another task runs meanwhile, and it is the one that makes the room."""
    sink = FullSink(capacity=1)
    rig = AsyncRig("raise", sink)

    async def publish() -> None:
        async def read() -> None:
            async for _ in rig.stream().wrap(chunks_of(interleaved())):
                pass

        async def make_room() -> None:
            while True:
                await sink.refused.wait()
                sink.refused.clear()
                sink.deliver(1)

        room = asyncio.create_task(make_room())
        await read()
        room.cancel()

    asyncio.run(publish())
    assert {type(outcome) for outcome in folded(sink.records).values()} == {CallCompleted}


def test_a_queue_that_stays_full_is_named_and_its_calls_are_aborted() -> None:
    """As for threads."""
    rig = AsyncRig("raise", MemorySink(capacity=2), block_ms=1)

    async def publish() -> None:
        async with rig.stream() as stream:
            for chunk in interleaved():
                await stream.observe(chunk)

    with pytest.raises(PublishQueueFull):
        asyncio.run(publish())
    rig.sink.flush(0)
    assert ends_of(rig.sink.records) == {"call_A": ["stream_error"], "call_B": ["stream_error"]}


def test_a_task_cancelled_while_it_ends_the_response_leaves_no_call_open() -> None:
    """The end found no room and nobody waits for it any more: the calls are aborted."""
    sink = FullSink(capacity=6)
    rig = AsyncRig(sink=sink)

    async def publish() -> None:
        stream = rig.stream()
        for chunk in interleaved()[:OPEN_COUNT]:
            await stream.observe(chunk)
        task = asyncio.create_task(stream.end())
        await sink.refused.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(publish())
    sink.flush(0)
    assert ends_of(sink.records) == {"call_A": ["stream_ended"], "call_B": ["stream_ended"]}


def test_close_and_confirm_answer_after_delivery() -> None:
    """The usual life of a publisher: open, publish, confirm, close."""
    rig = AsyncRig("raise")

    async def publish() -> bool:
        async with rig.publisher as publisher:
            stream = rig.stream()
            async for _ in stream.wrap(chunks_of(interleaved())):
                pass
            assert not await stream.confirm(0)
            assert await publisher.flush(1) == 0
            return await stream.confirm(0)

    assert asyncio.run(publish())
    assert rig.sink.closed
