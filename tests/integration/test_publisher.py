"""Publishing through the official OpenAI SDK to a real broker, and what a broker's absence does."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import openai
import pytest

from processor.codec.records import decode_event, decode_usage
from processor.core.events import CallStarted, ResponseEnded, StreamEvent
from processor.core.identity import decode_call_key
from processor.publisher import (
    AsyncPublisher,
    DeliveryFailed,
    Publisher,
    PublishError,
    PublisherSettings,
    PublishQueueFull,
    Undelivered,
)
from processor.publisher.ports import OutRecord
from tests.builders import only_completed
from tests.integration.publisher_topics import new_topics, read_topic, unused_address
from tests.unit.publisher.model_streams import (
    ARGUMENTS,
    DIALECT,
    OPEN_COUNT,
    ends_of,
    folded,
    interleaved,
)


@pytest.fixture
def settings(kafka_bootstrap: str, topic_prefix: str) -> PublisherSettings:
    """Settings for new topics of this test."""
    return new_topics(kafka_bootstrap, topic_prefix)


class ModelHandler(BaseHTTPRequestHandler):
    """Answers every request with the interleaved response as server-sent events."""

    chunks: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        """Send the stream and close the connection."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in self.chunks:
            event = f"event: {chunk['type']}\ndata: {json.dumps(chunk)}\n\n"
            self.wfile.write(event.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as in http.server
        """Say nothing."""


@pytest.fixture
def model_url() -> Iterator[str]:
    """A local server that speaks like the vendor."""
    ModelHandler.chunks = interleaved()
    with ThreadingHTTPServer(("127.0.0.1", 0), ModelHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join()


def check_topics(settings: PublisherSettings, request_id: str) -> None:
    """The whole response is on the topics: keys, one partition a call, seqs, ends, usage."""
    placed = read_topic(settings.bootstrap, settings.events_topic)
    partitions: dict[bytes, set[int]] = {}
    events: dict[str, list[StreamEvent]] = {}
    for partition, out in placed:
        key = decode_call_key(out.key)
        assert key[:3] == ("acme", request_id, "resp_0001")
        partitions.setdefault(out.key, set()).add(partition)
        events.setdefault(key.call_id, []).append(decode_event(out.key, out.value))
    assert all(len(found) == 1 for found in partitions.values())
    assert set(events) == set(ARGUMENTS)
    for found in events.values():
        assert [event.seq for event in found] == list(range(len(found)))
        assert isinstance(found[0].body, CallStarted)
        assert found[-1].body == ResponseEnded("completed", _detail(found[-1]))
    outcomes = folded([out for _, out in placed])
    texts = {name: only_completed([outcome]).arguments for name, outcome in outcomes.items()}
    assert texts == {name: text.encode() for name, text in ARGUMENTS.items()}
    (usage,) = [out for _, out in read_topic(settings.bootstrap, settings.usage_topic)]
    assert decode_usage(usage.key, usage.value).output_tokens == 18


def _detail(event: StreamEvent) -> str | None:
    return event.body.detail if isinstance(event.body, ResponseEnded) else None


def test_a_response_read_through_the_official_sdk_is_whole_on_the_topic(
    settings: PublisherSettings, model_url: str
) -> None:
    """Sync: the reader gets the SDK's own objects, the broker every event, in order."""
    seen: list[str] = []
    with (
        openai.OpenAI(api_key="unused", base_url=model_url) as client,
        Publisher(settings) as publisher,
    ):
        stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
        with client.responses.create(model="gpt-test", input="hello", stream=True) as response:
            seen = [str(event.type) for event in stream.wrap(response)]
        assert stream.confirm(30)
    assert seen == [str(chunk["type"]) for chunk in interleaved()]
    check_topics(settings, "req_1")


def test_a_response_read_through_the_official_async_sdk_is_whole_on_the_topic(
    settings: PublisherSettings, model_url: str
) -> None:
    """Asyncio: the same records."""

    async def publish() -> list[str]:
        async with (
            openai.AsyncOpenAI(api_key="unused", base_url=model_url) as client,
            AsyncPublisher(settings) as publisher,
        ):
            stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_2")
            response = await client.responses.create(model="gpt-test", input="hello", stream=True)
            async with response:
                seen = [str(event.type) async for event in stream.wrap(response)]
            assert await stream.confirm(30)
            return seen

    assert asyncio.run(publish()) == [str(chunk["type"]) for chunk in interleaved()]
    check_topics(settings, "req_2")


def test_leaving_the_official_stream_early_is_cancelled_on_the_topic(
    settings: PublisherSettings, model_url: str
) -> None:
    """A `break` in the application's loop reaches the broker as the response's end."""
    with (
        openai.OpenAI(api_key="unused", base_url=model_url) as client,
        Publisher(settings) as publisher,
        client.responses.create(model="gpt-test", input="hello", stream=True) as response,
    ):
        stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_3")
        for count, _ in enumerate(stream.wrap(response), 1):
            if count == OPEN_COUNT:
                break
        assert stream.confirm(30)
    records = [out for _, out in read_topic(settings.bootstrap, settings.events_topic)]
    assert ends_of(records) == {"call_A": ["cancelled"], "call_B": ["cancelled"]}


def test_a_connection_that_breaks_is_stream_ended_on_the_topic(
    settings: PublisherSettings,
) -> None:
    """The exception goes to the application; the calls that were open can never run."""

    def broken() -> Iterator[dict[str, object]]:
        yield from interleaved()[:OPEN_COUNT]
        raise ConnectionResetError

    with Publisher(settings) as publisher:
        stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_4")
        with pytest.raises(ConnectionResetError):
            list(stream.wrap(broken()))
        assert stream.confirm(30)
    records = [out for _, out in read_topic(settings.bootstrap, settings.events_topic)]
    assert ends_of(records) == {"call_A": ["stream_ended"], "call_B": ["stream_ended"]}


def test_threads_share_one_publisher(settings: PublisherSettings) -> None:
    """Every response of every thread is whole, whoever's reports are served when."""
    with Publisher(settings) as publisher:

        def publish(number: int) -> None:
            for turn in range(20):
                stream = publisher.stream(
                    dialect=DIALECT, tenant="acme", request_id=f"req_{number}_{turn}"
                )
                for _ in stream.wrap(interleaved()):
                    pass

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert publisher.flush(30) == 0
    requests: dict[str, list[OutRecord]] = {}
    for _, out in read_topic(settings.bootstrap, settings.events_topic):
        requests.setdefault(decode_call_key(out.key).request_id, []).append(out)
    assert len(requests) == 80
    whole = {"call_A": ["completed"], "call_B": ["completed"]}
    assert all(ends_of(records) == whole for records in requests.values())


def test_a_broker_out_of_reach_is_named_for_every_call_within_the_delivery_timeout() -> None:
    """Publishing costs the reader nothing, and the loss is known when the bound has passed."""
    told: list[PublishError] = []
    settings = PublisherSettings(bootstrap=unused_address(), delivery_timeout_ms=500)
    with Publisher(settings, on_fault=told.append) as publisher:
        stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
        assert list(stream.wrap(interleaved())) == interleaved()
        assert not stream.confirm(30)
    assert {(f.call_id, f.code) for f in told} == {
        ("call_A", "delivery_failed"),
        ("call_B", "delivery_failed"),
        (None, "delivery_failed"),
    }
    assert {f.kafka_code for f in told if isinstance(f, DeliveryFailed)} == {"_MSG_TIMED_OUT"}


def test_closing_without_a_broker_says_what_stays_undelivered() -> None:
    """`close` keeps to its timeout and names the request."""
    settings = PublisherSettings(bootstrap=unused_address(), on_publish_error="raise")
    publisher = Publisher(settings, on_fault=lambda _: None)
    stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
    for _ in stream.wrap(interleaved()):
        pass
    with pytest.raises(Undelivered, match="req_1") as caught:
        publisher.close(timeout_s=0.1)
    assert caught.value.count == len(interleaved_records())
    assert caught.value.request_ids == ("req_1",)


def interleaved_records() -> list[OutRecord]:
    """The records of the interleaved response."""
    from processor.publisher import MemorySink

    sink = MemorySink()
    with Publisher(PublisherSettings(bootstrap="unused:9092"), sink=sink) as publisher:
        stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
        for _ in stream.wrap(interleaved()):
            pass
    return sink.records


def test_a_full_local_queue_is_named_when_block_ms_has_passed() -> None:
    """The client's own queue bound, on the real client."""
    settings = PublisherSettings(
        bootstrap=unused_address(), on_publish_error="raise", block_ms=100, queue_events_max=4
    )
    publisher = Publisher(settings, on_fault=lambda _: None)
    stream = publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")
    before_s = time.monotonic()
    with pytest.raises(PublishQueueFull, match=r"request req_1, topic .*100 ms"):
        list(stream.wrap(interleaved()))
    assert time.monotonic() - before_s >= 0.1
    with pytest.raises(Undelivered):
        publisher.close(timeout_s=0)
