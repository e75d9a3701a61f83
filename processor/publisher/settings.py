"""Settings of one publisher, checked as a whole before the Kafka client is made.

Rules:
    What keeps the events whole (idempotence, acks, order, partitioner) is not for the caller to set.
    A refusal names the setting, never its value: values may be passwords.
"""

from collections.abc import Mapping
from typing import Final, Literal, cast

from processor.core._record import field, record
from processor.core.errors import Misuse

OnPublishError = Literal["raise", "report"]
ClientValue = str | int | float | bool

#: Client settings that this SDK owns, and why a caller may not change them.
OWNED_CLIENT_SETTINGS: Final[Mapping[str, str]] = {
    "acks": "events must survive the loss of a broker",
    "request.required.acks": "events must survive the loss of a broker",
    "enable.idempotence": "a resent batch must not repeat or reorder events",
    "enable.gapless.guarantee": "one late event must not end the whole producer",
    "max.in.flight": "idempotence needs at most 5",
    "max.in.flight.requests.per.connection": "idempotence needs at most 5",
    "message.send.max.retries": "the bound is delivery_timeout_ms",
    "retries": "the bound is delivery_timeout_ms",
    "transactional.id": "events are published without transactions",
    "partitioner": "all events of a call need the partition that Java clients compute as well",
    "delivery.report.only.error": "every event is accounted for",
    "bootstrap.servers": "use the setting bootstrap",
    "metadata.broker.list": "use the setting bootstrap",
    "linger.ms": "use the setting linger_ms",
    "queue.buffering.max.ms": "use the setting linger_ms",
    "message.timeout.ms": "use the setting delivery_timeout_ms",
    "delivery.timeout.ms": "use the setting delivery_timeout_ms",
    "queue.buffering.max.messages": "use the setting queue_events_max",
    "queue.buffering.max.kbytes": "use the setting queue_bytes_max",
    "message.max.bytes": "use the setting record_bytes_max",
}


@record
class SchemaIds:
    """Ids of our schemas in a schema registry; None writes Avro single-object encoding instead."""

    events: int | None = None
    usage: int | None = None


@record
class PublisherSettings:
    """One producer and how it behaves at its bounds. Times in milliseconds, sizes in bytes.

    At the bound: when the local queue holds `queue_events_max` records or `queue_bytes_max`,
    `observe` waits at most `block_ms`, then gives the response up with `PublishQueueFull` and its
    calls are aborted. 0 never waits. An event not confirmed within `delivery_timeout_ms` counts as
    lost and aborts its call.

    `client` passes further librdkafka settings on, for example `security.protocol`,
    `sasl.mechanism`, `ssl.ca.location`; those of `OWNED_CLIENT_SETTINGS` are refused by name.
    """

    bootstrap: str
    events_topic: str = "toolcalls.events.v1"
    usage_topic: str = "toolcalls.usage.v1"
    on_publish_error: OnPublishError = "report"
    block_ms: int = 1_000
    queue_events_max: int = 100_000
    queue_bytes_max: int = 64 * 1024 * 1024
    record_bytes_max: int = 1_000_000
    delivery_timeout_ms: int = 30_000
    linger_ms: int = 5
    schema_ids: SchemaIds = field(default_factory=SchemaIds)
    #: Not shown in the text form: it may hold passwords.
    client: Mapping[str, ClientValue] = field(default_factory=dict[str, ClientValue], repr=False)

    def checked(self) -> "PublisherSettings":
        """Return these settings, or refuse the first wrong one by name. Raises: `Misuse`."""
        for name in ("bootstrap", "events_topic", "usage_topic"):
            if not getattr(self, name):
                raise Misuse(f"publisher.{name} is empty")
        if self.on_publish_error not in ("raise", "report"):
            raise Misuse("publisher.on_publish_error must be raise or report")
        for name, low in _LOWEST.items():
            if getattr(self, name) < low:
                raise Misuse(f"publisher.{name} must be at least {low}, not {getattr(self, name)}")
        if self.linger_ms >= self.delivery_timeout_ms:
            raise Misuse("publisher.linger_ms must be below publisher.delivery_timeout_ms")
        self._check_client()
        return self

    def _check_client(self) -> None:
        # Settings also come from files, where nothing has checked their types.
        for name, value in cast("Mapping[str, object]", self.client).items():
            if name in OWNED_CLIENT_SETTINGS:
                raise Misuse(
                    f"client setting {name} is owned by the publisher"
                    f" ({OWNED_CLIENT_SETTINGS[name]}); remove it"
                )
            if not isinstance(value, str | int | float):
                raise Misuse(f"client setting {name} must be text, a number or a truth value")


_LOWEST: Final[Mapping[str, int]] = {
    "block_ms": 0,
    "queue_events_max": 1,
    "queue_bytes_max": 1024,
    # The smallest limit that librdkafka accepts for a message.
    "record_bytes_max": 1000,
    "delivery_timeout_ms": 1,
    "linger_ms": 0,
}
