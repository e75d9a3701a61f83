"""The SDK that puts a model's stream on the events topic.

Example::

    from processor.publisher import Publisher, PublisherSettings

    with Publisher(PublisherSettings(bootstrap="localhost:9092")) as publisher:
        stream = publisher.stream(dialect="openai-responses", tenant="acme", request_id="req_1")
        for event in stream.wrap(client.responses.create(..., stream=True)):
            ...  # the SDK's own events, unchanged
"""

from processor.publisher.aio import AsyncPublisher, AsyncStreamPublisher
from processor.publisher.engine import CloseReport
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
    ResultsLost,
    Undelivered,
)
from processor.publisher.memory import MemorySink
from processor.publisher.publisher import Publisher, StreamPublisher
from processor.publisher.result_inbox import CallAnswers
from processor.publisher.result_reader import (
    AsyncResultReader,
    ResultReader,
    ResultReaderSettings,
)
from processor.publisher.settings import PublisherSettings, SchemaIds

__all__ = [
    "AsyncPublisher",
    "AsyncResultReader",
    "AsyncStreamPublisher",
    "CallAnswers",
    "ChunkRefused",
    "CloseReport",
    "DeliveryFailed",
    "EventRefused",
    "MemorySink",
    "ProducerFailed",
    "PublishError",
    "PublishQueueFull",
    "Publisher",
    "PublisherSettings",
    "PublishingBroken",
    "RecordTooLarge",
    "ResponseUnfinished",
    "ResultReader",
    "ResultReaderSettings",
    "ResultsLost",
    "SchemaIds",
    "StreamPublisher",
    "Undelivered",
]
