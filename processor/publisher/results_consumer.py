# ruff: noqa: SLF001 - the client's own names of its local error codes begin with an underscore
"""The results topic, and the rejected one, read from now on by one process; imports the client alone.

Rules:
    The ends of all partitions are asked for before `open` returns, and reading starts at exactly
    these offsets. "Start at the end", left to the client, would be decided some time later.
    No group is joined and nothing is committed: every process reads all partitions.
    A partition that appears later is read from its beginning.
"""

import logging
from typing import Final, NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from processor.core.errors import Misuse
from processor.publisher.clock import Monotonic
from processor.publisher.errors import ResultsLost
from processor.telemetry.logging import ThinRepeats

_log = logging.getLogger("processor.publisher.results")
_log.addFilter(ThinRepeats())

_ANSWER_S: Final = 10.0
_PAUSE_S: Final = 0.1
#: How soon a new partition is noticed.
_LOOK_AGAIN_S: Final = 30.0

#: After these the client does not go on from where it was.
_LOST: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.OFFSET_OUT_OF_RANGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)


class ReadRecord(NamedTuple):
    """One record of one of the topics. `event_id` is its `ce_id`, or its place without one."""

    topic: str
    key: bytes | None
    value: bytes | None
    event_id: str


class ResultsConsumer:
    """Reads the topics from their ends on. For one thread after `open`.

    Raises: `Misuse` at construction for a setting that the client refuses.
    """

    def __init__(
        self, bootstrap: str, topics: tuple[str, ...], client: dict[str, str], now_s: Monotonic
    ) -> None:
        self._topics = topics
        self._now_s = now_s
        self._positions: dict[tuple[str, int], int] = {}
        self._looked_at_s = now_s()
        try:
            self._consumer = Consumer(
                {
                    "client.id": "toolcalls-results",
                    "fetch.wait.max.ms": 100,
                    "fetch.queue.backoff.ms": 10,
                    "queued.max.messages.kbytes": 16_384,
                    **client,
                    "bootstrap.servers": bootstrap,
                    # The client wants a name; no group of it is ever joined.
                    "group.id": "toolcalls-results",
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "error",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "allow.auto.create.topics": False,
                },
                logger=_log,
            )
        except (KafkaException, ValueError, TypeError):
            # The client's text quotes values.
            raise Misuse("a client setting was refused by the Kafka client") from None

    def open(self) -> None:
        """Take the position. Raises: `ResultsLost` without an answer; `Misuse` for a missing topic."""
        until_s = self._now_s() + _ANSWER_S
        while True:
            try:
                self._positions = self._ends()
                break
            except KafkaException as e:
                # A new topic, or one whose leader moves, has an answer a moment later. The client
                # marks no error of this question as one to be tried again, so all of them are.
                if self._now_s() >= until_s:
                    raise ResultsLost(f"asking for the ends: {_error_of(e).name()}") from None
            self._consumer.poll(_PAUSE_S)
        self._assign()

    def _ends(self) -> dict[tuple[str, int], int]:
        ends: dict[tuple[str, int], int] = {}
        for topic in self._topics:
            for partition in self._partitions(topic):
                asked = TopicPartition(topic, partition)
                _, ends[topic, partition] = self._consumer.get_watermark_offsets(asked, _ANSWER_S)
        return ends

    def _partitions(self, topic: str) -> list[int]:
        found = self._consumer.list_topics(topic, _ANSWER_S).topics[topic]
        if found.error is not None or not found.partitions:
            raise Misuse(
                f"the topic {topic} does not exist on this broker: `toolcalls topics create`"
            )
        return list(found.partitions)

    def _assign(self) -> None:
        self._consumer.assign(
            [TopicPartition(topic, p, at) for (topic, p), at in self._positions.items()]
        )

    def read(self, timeout_s: float) -> ReadRecord | None:
        """The next record, or None after `timeout_s`. Raises: `ResultsLost`."""
        self._look_for_partitions()
        try:
            message = self._consumer.poll(timeout_s)
        except KafkaException as e:
            raise ResultsLost(f"reading: {_error_of(e).name()}") from None
        if message is None:
            return None
        error = message.error()
        if error is None:
            return _read(message)
        if error.fatal() or error.code() in _LOST:
            raise ResultsLost(f"reading {message.topic()}[{message.partition()}]: {error.name()}")
        return None

    def _look_for_partitions(self) -> None:
        if self._now_s() - self._looked_at_s < _LOOK_AGAIN_S:
            return
        self._looked_at_s = self._now_s()
        new: list[TopicPartition] = []
        for topic in self._topics:
            try:
                partitions = self._partitions(topic)
            except (KafkaException, Misuse):
                # Asked again soon; a topic that is gone says so where it is read.
                continue
            new += [
                TopicPartition(topic, p, 0) for p in partitions if (topic, p) not in self._positions
            ]
        if new:
            self._consumer.incremental_assign(new)
            self._positions |= {(p.topic, p.partition): 0 for p in new}

    def close(self) -> None:
        """Leave. Idempotent."""
        self._consumer.close()


def _read(message: Message) -> ReadRecord:
    topic = cast("str", message.topic())
    return ReadRecord(
        topic,
        _bytes(message.key()),
        _bytes(message.value()),
        _event_id(message) or f"{topic}/{message.partition()}/{message.offset()}",
    )


def _event_id(message: Message) -> str | None:
    try:
        headers = cast("list[tuple[str, str | bytes | None]]", message.headers() or [])
    except (UnicodeDecodeError, SystemError):
        # The client cannot read a header name that is not UTF-8.
        return None
    for name, value in headers:
        if name == "ce_id" and value:
            return (_bytes(value) or b"").decode("utf-8", "replace")
    return None


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


def _error_of(error: KafkaException) -> KafkaError:
    return cast("KafkaError", error.args[0])
