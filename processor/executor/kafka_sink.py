# ruff: noqa: SLF001 - the client's own names of its local error codes begin with an underscore
"""Records to Kafka for the relay and the usage recorder: idempotent, acks=all, confirmed or named.

Rules:
    `publish` returns when the client has answered for every record; what it could not send by the
    delivery timeout is given back to the caller, who still has it.
    The client's own texts may quote settings: only its error codes are passed on.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from processor.core._record import field, record
from processor.core.errors import Misuse, ProcessorError
from processor.executor.errors import ClientFatal, Unreachable
from processor.executor.sink import SinkRecord
from processor.telemetry.logging import ThinRepeats

_log = logging.getLogger("processor.executor.kafka")
_log.addFilter(ThinRepeats())

_ANSWER_S: Final = 10.0
#: Beyond the delivery timeout: reports are made by the client about once a second.
_REPORT_S: Final = 5.0
#: What the client hands over at most; the topic has its own, smaller bound.
_RECORD_BYTES_MAX: Final = 16 * 1024 * 1024


@record
class SinkSettings:
    """How to write a topic. `client` goes to librdkafka as it is (security settings)."""

    bootstrap: str
    topic: str
    delivery_timeout_ms: int = 10_000
    client: dict[str, str] = field(default_factory=dict[str, str])


class KafkaSink:
    """See `RecordSink`. `on_error` hears of errors from which the client recovers by itself.

    Raises: `Misuse` for a setting that the client refuses.
    """

    def __init__(self, settings: SinkSettings, on_error: Callable[[str], None]) -> None:
        self._settings = settings
        self._on_error = on_error
        self._fatal: ProcessorError | None = None
        try:
            self._producer = Producer(
                {
                    "compression.type": "lz4",
                    "linger.ms": 2,
                    **settings.client,
                    "bootstrap.servers": settings.bootstrap,
                    "enable.idempotence": True,
                    "acks": "all",
                    # As Java clients do, so that all writers of a key agree on its partition.
                    "partitioner": "murmur2_random",
                    "message.timeout.ms": settings.delivery_timeout_ms,
                    "message.max.bytes": _RECORD_BYTES_MAX,
                    "error_cb": self._heard,
                },
                logger=_log,
            )
        except (KafkaException, ValueError, TypeError):
            # The client's text quotes values.
            raise Misuse("a client setting was refused by the Kafka client") from None

    @property
    def topic(self) -> str:
        """See `RecordSink.topic`."""
        return self._settings.topic

    def check(self) -> None:
        """Ask for the topic. Raises: `Unreachable`; `Misuse` when it does not exist."""
        try:
            found = self._producer.list_topics(self.topic, timeout=_ANSWER_S).topics[self.topic]
        except KafkaException as e:
            name = _name(e.args[0])
            raise Unreachable(
                f"asking for {self.topic}: {name}: check the broker's address and the network"
            ) from None
        if found.error is not None or not found.partitions:
            raise Misuse(
                f"the topic {self.topic} does not exist on this broker: `toolcalls topics create`"
            )

    def publish(self, records: Sequence[SinkRecord]) -> list[str | None]:
        """See `RecordSink.publish`."""
        codes: list[str | None] = ["_UNANSWERED"] * len(records)
        for number, each in enumerate(records):
            self._produce(each, number, codes)
        wait_s = self._settings.delivery_timeout_ms / 1000 + _REPORT_S
        if self._producer.flush(wait_s):
            self._producer.purge()
            self._producer.flush(_REPORT_S)
        if self._fatal is not None:
            raise self._fatal
        return codes

    def _produce(self, each: SinkRecord, number: int, codes: list[str | None]) -> None:
        def answered(error: KafkaError | None, message: Message) -> None:
            del message
            codes[number] = None if error is None else error.name()
            if error is not None:
                self._note_fatal(error)

        try:
            self._producer.produce(
                self.topic, each.value, each.key, headers=each.headers, on_delivery=answered
            )
        except BufferError:
            codes[number] = "_QUEUE_FULL"
        except KafkaException as e:
            codes[number] = _name(e.args[0])

    def close(self) -> None:
        """Forget what is not confirmed; its owner still has it."""
        self._producer.purge()
        self._producer.flush(_REPORT_S)

    def _heard(self, error: KafkaError) -> None:
        self._note_fatal(error)
        self._on_error(error.name())

    def _note_fatal(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self._fatal = ClientFatal(f"writing {self.topic}: {error.name()}")


def _name(error: object) -> str:
    return error.name() if isinstance(error, KafkaError) else type(error).__name__
