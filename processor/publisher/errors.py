"""What can go wrong on the way to the events topic, named so that a person can act on it.

Rules:
    Every text names the request, the call where there is one, and the topic; none names content.
    A fault never makes a call look finished: its calls are aborted, or stay open until they expire.
"""

from typing import ClassVar, NamedTuple

from processor.core.errors import ProcessorError


class Where(NamedTuple):
    """What a fault is about; `call_id` is None when it is the whole response."""

    request_id: str
    topic: str
    call_id: str | None = None


class PublishError(ProcessorError):
    """Root of the publisher's faults; reported to `on_fault`, and raised under `"raise"`.

    `reason` is the word of the closed list with which the calls concerned are aborted.
    """

    code = "publish_failed"
    reason: ClassVar[str] = "stream_error"

    def __init__(self, where: Where, text: str) -> None:
        call = "" if where.call_id is None else f", call {where.call_id}"
        super().__init__(f"request {where.request_id}{call}, topic {where.topic}: {text}")
        self.request_id, self.topic, self.call_id = where


class PublishQueueFull(PublishError):
    """The local queue stayed full for `block_ms`: Kafka is slow or away. The response is given up."""

    code = "publish_queue_full"


class DeliveryFailed(PublishError):
    """Kafka did not confirm an event within `delivery_timeout_ms`, or refused it. One call is hit.

    `kafka_code` is librdkafka's name of the error, for example `_MSG_TIMED_OUT`.
    """

    code = "delivery_failed"

    def __init__(self, where: Where, kafka_code: str) -> None:
        super().__init__(where, f"an event was not confirmed by Kafka ({kafka_code})")
        self.kafka_code = kafka_code


class RecordTooLarge(PublishError):
    """One event is larger than a record may be; its call is aborted as `too_large`."""

    code = "record_too_large"
    reason = "too_large"


class EventRefused(PublishError):
    """An event that every reader would refuse, for example a tool name that is too long."""

    code = "event_refused"
    reason = "malformed_event"


class ProducerFailed(PublishError):
    """The Kafka client cannot go on: close this publisher and make another one."""

    code = "producer_failed"


class ChunkRefused(PublishError):
    """A chunk is not what the named dialect sends, or is no object that can be read."""

    code = "chunk_refused"
    reason = "malformed_event"


class ResponseUnfinished(PublishError):
    """The response was left with its end unseen or events unsent: calls not ended are aborted."""

    code = "response_unfinished"
    reason = "stream_ended"


class PublishingBroken(PublishError):
    """A bug in the publisher; the text says where, and only the exception's type."""

    code = "publishing_broken"


class Undelivered(ProcessorError):
    """`close` ran out of time with events that Kafka has not confirmed; their calls stay open."""

    code = "undelivered"

    def __init__(self, count: int, request_ids: tuple[str, ...]) -> None:
        named = ", ".join(request_ids) or "unknown"
        super().__init__(f"{count} events were not confirmed by Kafka; requests: {named}")
        self.count = count
        self.request_ids = request_ids


class ResultsLost(ProcessorError):
    """A result reader cannot go on: make another one, and ask the ledger for what was missed."""

    code = "results_lost"

    def __init__(self, text: str) -> None:
        super().__init__(f"results cannot be read any more: {text}")


class SinkRefused(ProcessorError):
    """A sink refused one record for good; `sink_code` is the client's name of the error."""

    code = "sink_refused"

    def __init__(self, sink_code: str) -> None:
        super().__init__(f"the record was refused ({sink_code})")
        self.sink_code = sink_code
