"""Around a real SDK's stream: its own objects, one by one; leaving early; faults of the publisher.

Rules:
    For every SDK, on a stream that the server holds back in its midst: whoever buffers gets nothing.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import aclosing, closing
from dataclasses import replace
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from processor.codec.records import decode_event
from processor.core.events import CallAborted, ResponseEnded
from processor.publisher import (
    AsyncPublisher,
    MemorySink,
    Publisher,
    PublishError,
    PublishingBroken,
)
from processor.publisher.ports import OutRecord, Report
from tests.golden.test_streams import data_of
from tests.sdk.clients import SDKS, Sdk, allowed_warnings
from tests.sdk.conftest import Opened
from tests.sdk.published import REQUEST, SETTINGS
from tests.sdk.server import ModelServer, Wire

#: A stream of every dialect with a call whose fragments come after the gate.
STREAM_OF = {
    "anthropic": "anthropic/parallel",
    "bedrock-converse": "bedrock-converse/parallel",
    "cohere-v2": "cohere-v2/parallel",
    "gemini": "gemini/text-thought-and-call",
    "mistral": "mistral/fragmented-with-null-string-id",
    "ollama": "ollama/text-thinking-and-call",
    "openai-chat": "openai-chat/parallel-interleaved",
    "openai-responses": "openai-responses/parallel-interleaved",
}


def params(*, asynchronous: bool = False) -> list[ParameterSet]:
    """Every SDK by its name, with the warnings of its own making."""
    kinds = [kind for kind in SDKS if kind.has_async or not asynchronous]
    return [pytest.param(kind.name, marks=allowed_warnings(kind)) for kind in kinds]


class Broken(MemorySink):
    """A sink with a bug."""

    def offer(self, record: OutRecord, report: Report) -> bool:
        """Fail in a way that nobody foresaw."""
        raise ZeroDivisionError

    def offer_late(self, record: OutRecord) -> None:
        """Fail here too."""
        raise ZeroDivisionError


class Watched:
    """An SDK's stream that remembers what was taken from it, and opens the gate of its wire."""

    def __init__(self, wire: Wire | None = None) -> None:
        self.taken: list[object] = []
        self.closed = False
        self._gate = None if wire is None else wire.gate

    def sync(self, chunks: Iterable[object]) -> Iterator[object]:
        """The chunks."""
        try:
            for chunk in chunks:
                self.taken.append(chunk)
                yield chunk
        finally:
            self.closed = True

    async def over(self, chunks: AsyncIterable[object]) -> AsyncIterator[object]:
        """The chunks, for asyncio."""
        try:
            async for chunk in chunks:
                self.taken.append(chunk)
                yield chunk
        finally:
            self.closed = True

    def check(self, chunk: object, count: int) -> None:
        """The reader has `count` chunks: as many as were taken, the last one the very object."""
        assert len(self.taken) == count, "a chunk was held back or fetched ahead"
        assert chunk is self.taken[-1], "another object than the SDK's"
        if self._gate is not None:
            self._gate.set()


def gated(of: Sdk, server: ModelServer) -> tuple[str, Wire]:
    """A stream of the SDK's dialect that stops in its midst until a chunk has been read."""
    return server.put(of.dialect, data_of(STREAM_OF[of.dialect]), is_gated=True)


def ends(sink: MemorySink) -> set[str]:
    """How the calls on the sink ended."""
    found: set[str] = set()
    for out in sink.records:
        if out.topic == SETTINGS.events_topic:
            body = decode_event(out.key, out.value).body
            if isinstance(body, ResponseEnded | CallAborted):
                found.add(body.outcome if isinstance(body, ResponseEnded) else body.reason)
    return found


@pytest.mark.parametrize("name", params())
def test_the_reader_gets_each_object_itself_before_the_next_is_sent(
    name: str, sdk: Opened, model_server: ModelServer
) -> None:
    """Same objects, same order, none held back, none fetched ahead; all is published."""
    of, sink = sdk(name), MemorySink()
    model, wire = gated(of, model_server)
    watched, count = Watched(wire), 0
    with Publisher(SETTINGS, sink=sink) as publisher:
        wrapped = publisher.stream(dialect=of.dialect, **REQUEST).wrap(watched.sync(of.open(model)))
        for count, chunk in enumerate(wrapped, 1):
            watched.check(chunk, count)
    assert count == len(watched.taken) > 0
    assert ends(sink) == {"completed"}


@pytest.mark.parametrize("name", params(asynchronous=True))
def test_the_async_reader_gets_each_object_itself_before_the_next_is_sent(
    name: str, sdk: Opened, model_server: ModelServer, loop: asyncio.Runner
) -> None:
    """The same for asyncio."""
    of, sink = sdk(name), MemorySink()
    model, wire = gated(of, model_server)
    watched = Watched(wire)

    async def read() -> int:
        count = 0
        async with AsyncPublisher(SETTINGS, sink=sink) as publisher:
            stream = publisher.stream(dialect=of.dialect, **REQUEST)
            async for chunk in stream.wrap(watched.over(await of.open_async(model))):
                count += 1
                watched.check(chunk, count)
        return count

    assert loop.run(read()) == len(watched.taken) > 0
    assert ends(sink) == {"completed"}


def _is_in_a_call(sink: MemorySink) -> bool:
    return any(out.topic == SETTINGS.events_topic for out in sink.records)


@pytest.mark.parametrize("name", params())
def test_leaving_early_is_published_as_cancelled(name: str, sdk: Opened) -> None:
    """A `break` as soon as a call has begun; the SDK's stream is closed by its own reader."""
    of, sink = sdk(name), MemorySink()
    model = STREAM_OF[of.dialect].replace("/", "--")
    with Publisher(SETTINGS, sink=sink) as publisher:
        stream = publisher.stream(dialect=of.dialect, **REQUEST)
        chunks = Watched().sync(of.open(model))
        with closing(stream.wrap(chunks)) as wrapped:
            for _ in wrapped:
                if _is_in_a_call(sink):
                    break
        assert ends(sink) == {"cancelled"}
        assert not stream.faults
        close(chunks)


@pytest.mark.parametrize("name", params(asynchronous=True))
def test_leaving_early_is_published_as_cancelled_for_asyncio(
    name: str, sdk: Opened, loop: asyncio.Runner
) -> None:
    """With `aclosing`, at once."""
    of, sink = sdk(name), MemorySink()
    model = STREAM_OF[of.dialect].replace("/", "--")

    async def read() -> None:
        async with AsyncPublisher(SETTINGS, sink=sink) as publisher:
            stream = publisher.stream(dialect=of.dialect, **REQUEST)
            chunks = await of.open_async(model)
            async with aclosing(stream.wrap(chunks)) as wrapped:
                async for _ in wrapped:
                    if _is_in_a_call(sink):
                        break
            assert ends(sink) == {"cancelled"}
            assert not stream.faults
            await aclose(chunks)

    loop.run(read())


@pytest.mark.parametrize("name", params())
def test_a_bug_while_publishing_never_reaches_the_reader(name: str, sdk: Opened) -> None:
    """Under `report` the whole stream is read; the fault is told."""
    of, told = sdk(name), list[PublishError]()
    model = STREAM_OF[of.dialect].replace("/", "--")
    whole = len(list(of.open(model)))
    with Publisher(SETTINGS, sink=Broken(), on_fault=told.append) as publisher:
        stream = publisher.stream(dialect=of.dialect, **REQUEST)
        assert len(list(stream.wrap(of.open(model)))) == whole
    assert told


@pytest.mark.parametrize("name", params())
def test_a_chunk_of_another_dialect_is_a_fault_and_no_exception(name: str, sdk: Opened) -> None:
    """The reader goes on; nothing of the response is published."""
    of, told, sink = sdk(name), list[PublishError](), MemorySink()
    model = STREAM_OF[of.dialect].replace("/", "--")
    other = "cohere-v2" if of.dialect != "cohere-v2" else "gemini"
    with Publisher(SETTINGS, sink=sink, on_fault=told.append) as publisher:
        assert list(publisher.stream(dialect=other, **REQUEST).wrap(of.open(model)))
    assert [fault.code for fault in told] == ["chunk_refused"]
    assert not sink.records


@pytest.mark.parametrize("name", params())
def test_a_fault_is_raised_when_that_is_asked_for(name: str, sdk: Opened) -> None:
    """Under `raise` the loop over the model's chunks ends with the fault."""
    of = sdk(name)
    settings = replace(SETTINGS, on_publish_error="raise")
    model = STREAM_OF[of.dialect].replace("/", "--")
    with Publisher(settings, sink=Broken(), on_fault=lambda _: None) as publisher:
        stream = publisher.stream(dialect=of.dialect, **REQUEST)
        chunks = of.open(model)
        with pytest.raises(PublishingBroken):
            list(stream.wrap(chunks))
        close(chunks)


def close(chunks: object) -> None:
    """Close an SDK's stream that was left, by the method that it has."""
    method = getattr(chunks, "close", None)
    if callable(method):
        method()


async def aclose(chunks: object) -> None:
    """The same for asyncio."""
    # `Any`: which of the two an SDK's stream has is its own affair.
    method: Any = getattr(chunks, "aclose", None) or getattr(chunks, "close", None)
    if method is not None:
        await method()
