# ruff: noqa: SLF001 - the client's own names of its local error codes begin with an underscore
"""The completed topic on Kafka: the executor's only importer of the Kafka client.

Rules:
    `auto.offset.reset=error`: a group without offsets starts where it was told, or not at all, and a
    position that is gone from the topic ends the process.
    An error is translated here, once, into the way the process must end.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, Protocol, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from processor.core._record import field, record
from processor.core.errors import Misuse, ProcessorError
from processor.executor.errors import ClientFatal, PositionLost, SlotFenced, Unreachable
from processor.executor.source import Assigned, Delivered, Listener

#: Headers that continue a trace; all others are the writer's own business.
_TRACE_HEADERS: Final = frozenset({"traceparent", "tracestate"})
_HEADER_BYTES_MAX: Final = 512
_ANSWER_S: Final = 10.0
#: Before a question is asked again that a broker could not answer yet.
_AGAIN_S: Final = 0.1
_ASKED_MAX: Final = 100

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.UNRELEASED_INSTANCE_ID,
    }
)
_UNREACHABLE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError._TIMED_OUT,
    }
)
#: A commit that a rebalance overtook: the deliveries come again, and the ledger knows them.
_OVERTAKEN: Final = frozenset(
    {
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._STATE,
        KafkaError._ASSIGNMENT_LOST,
    }
)
_GONE: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})
#: What a new topic's brokers say until all of them know of it.
_NOT_YET: Final = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_UNKNOWN_TOPIC: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)


@record
class KafkaSettings:
    """How to read the completed topic.

    `slot` makes the member static: after a restart it takes its partitions back at once. `client` goes
    to librdkafka as it is (security settings).
    """

    bootstrap: str
    topic: str
    group: str
    slot: str | None = None
    start: Literal["earliest", "latest"] | None = None
    session_timeout_ms: int = 12_000
    poll_interval_max_ms: int = 60_000
    client: dict[str, str] = field(default_factory=dict[str, str])


class KafkaSource:
    """See `CompletedSource`. `on_error` hears of errors from which the client recovers by itself."""

    def __init__(self, settings: KafkaSettings, on_error: Callable[[str], None]) -> None:
        self._settings = settings
        self._failure: ProcessorError | None = None
        self._pause = threading.Event()
        self._consumer = Consumer(
            {
                **_common(settings),
                "group.id": settings.group,
                **({"group.instance.id": settings.slot} if settings.slot is not None else {}),
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": settings.session_timeout_ms,
                "heartbeat.interval.ms": settings.session_timeout_ms // 4,
                "max.poll.interval.ms": settings.poll_interval_max_ms,
                "queued.max.messages.kbytes": 16_384,
                "error_cb": _named_errors(on_error),
            }
        )

    @property
    def topic(self) -> str:
        """See `CompletedSource.topic`."""
        return self._settings.topic

    def subscribe(self, listener: Listener) -> None:
        """See `CompletedSource.subscribe`. Raises: `Unreachable`; `Misuse` for a missing topic."""
        try:
            found = self._consumer.list_topics(self.topic, timeout=_ANSWER_S).topics[self.topic]
        except KafkaException as e:
            raise _ending(e, f"asking for {self.topic}") from None
        if found.error is not None or not found.partitions:
            raise Misuse(
                f"the topic {self.topic} does not exist on this broker: `toolcalls topics create`"
            )

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            try:
                self._assign(consumer, partitions, listener)
            except ProcessorError as e:
                # The client swallows what a callback raises in some versions; `poll` raises it.
                self._failure = e
            except KafkaException as e:
                self._failure = _ending(e, "taking partitions")

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            del consumer
            listener.revoked([p.partition for p in partitions])

        def lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            del consumer
            listener.lost([p.partition for p in partitions])

        self._consumer.subscribe([self.topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)

    def _assign(
        self, consumer: Consumer, partitions: list[TopicPartition], listener: Listener
    ) -> None:
        starts: list[Assigned] = []
        for stored in consumer.committed(partitions, timeout=_ANSWER_S):
            if stored.error is not None:
                raise _ending(stored.error, f"asking for the position of {self._named(stored)}")
            fresh = stored.offset < 0
            offset = self._fresh_offset(consumer, stored) if fresh else stored.offset
            starts.append(Assigned(stored.partition, offset, fresh))
        consumer.incremental_assign(
            [TopicPartition(self.topic, s.partition, s.next_offset) for s in starts]
        )
        listener.assigned(starts)

    def _fresh_offset(self, consumer: Consumer, partition: TopicPartition) -> int:
        if self._settings.start is None:
            raise PositionLost(
                f"the group {self._settings.group} has no position on {self._named(partition)}:"
                " say where it begins, --start earliest or --start latest"
            )
        low, high = self._log_ends(consumer, partition)
        return int(low if self._settings.start == "earliest" else high)

    def _log_ends(self, consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
        """First and next offset. A new topic's leader may not know of it yet, so it is asked again.

        Raises: `Unreachable` when that does not pass; `KafkaException` for what does not pass.
        """
        name = ""
        for _ in range(_ASKED_MAX):
            try:
                return consumer.get_watermark_offsets(
                    TopicPartition(self.topic, partition.partition), timeout=_ANSWER_S
                )
            except KafkaException as e:
                error = _error_of(e)
                if error.code() not in _NOT_YET:
                    raise
                name = error.name()
            self._pause.wait(_AGAIN_S)
        raise Unreachable(
            f"asking for the ends of {self._named(partition)}: {name} after {_ASKED_MAX} tries:"
            " check the topic's leaders"
        )

    def poll(self, timeout_s: float) -> Delivered | None:
        """See `CompletedSource.poll`."""
        try:
            message = self._consumer.poll(timeout_s)
        except KafkaException as e:
            raise _ending(e, f"reading {self.topic}") from None
        if self._failure is not None:
            raise self._failure
        if message is None:
            return None
        error = message.error()
        if error is None:
            return _delivered(message)
        self._judge(error, message)
        return None

    def _judge(self, error: KafkaError, message: Message) -> None:
        """Return for an error that passes by itself, else raise the end."""
        code = error.code()
        if code in _GONE:
            raise PositionLost(
                f"{message.topic()}[{message.partition()}] does not have the committed offset any"
                " more: records were deleted before they were read; set the group's offsets by"
                " hand when that is accepted"
            )
        if code in _UNKNOWN_TOPIC:
            raise Misuse(f"the topic {self.topic} is gone from this broker")
        if error.fatal() or code in _FENCED:
            raise _ending(error, f"reading {self.topic}")

    def pause(self) -> None:
        """See `CompletedSource.pause`."""
        self._consumer.pause(self._consumer.assignment())

    def resume(self) -> None:
        """See `CompletedSource.resume`."""
        self._consumer.resume(self._consumer.assignment())

    def commit(self, next_offsets: Mapping[int, int]) -> bool:
        """See `CompletedSource.commit`. Waits for the broker's answer."""
        wanted = [TopicPartition(self.topic, p, n) for p, n in next_offsets.items()]
        try:
            stored = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as e:
            error = _error_of(e)
            if error.code() in _OVERTAKEN or (error.retriable() and not error.fatal()):
                return False
            raise _ending(e, f"committing offsets of {self.topic}") from None
        return all(p.error is None for p in stored or ())

    def close(self) -> None:
        """See `CompletedSource.close`."""
        self._consumer.close()

    def _named(self, partition: TopicPartition) -> str:
        return f"{self.topic}[{partition.partition}]"


class KafkaRefetch:
    """See `Refetch`. A consumer that joins no group."""

    def __init__(self, settings: KafkaSettings, on_error: Callable[[str], None]) -> None:
        self._topic = settings.topic
        self._consumer = Consumer(
            {
                **_common(settings),
                "group.id": f"{settings.group}-refetch",
                "queued.min.messages": 1,
                "fetch.message.max.bytes": 2 * 1024 * 1024,
                "error_cb": _named_errors(on_error),
            }
        )

    def fetch(self, partition: int, offset: int) -> Delivered | None:
        """See `Refetch.fetch`."""
        self._consumer.assign([TopicPartition(self._topic, partition, offset)])
        try:
            message = self._consumer.poll(_ANSWER_S)
        except KafkaException as e:
            raise _ending(e, f"reading {self._topic}[{partition}] again") from None
        finally:
            self._consumer.unassign()
        if message is None or message.error() is not None or message.offset() != offset:
            return None
        return _delivered(message)

    def close(self) -> None:
        """See `Refetch.close`."""
        self._consumer.close()


def _named_errors(on_error: Callable[[str], None]) -> Callable[[KafkaError], None]:
    def tell(error: KafkaError) -> None:
        on_error(error.name())

    return tell


def _common(settings: KafkaSettings) -> dict[str, object]:
    return {
        "fetch.queue.backoff.ms": 20,
        "fetch.wait.max.ms": 100,
        **settings.client,
        "bootstrap.servers": settings.bootstrap,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "allow.auto.create.topics": False,
    }


def _delivered(message: Message) -> Delivered:
    # A message without an error has a place.
    return Delivered(
        topic=cast("str", message.topic()),
        partition=cast("int", message.partition()),
        offset=cast("int", message.offset()),
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=trace_headers(message),
        timestamp_ms=max(0, message.timestamp()[1]),
    )


def _bytes(data: str | bytes | None) -> bytes | None:
    return data.encode() if isinstance(data, str) else data


class HasHeaders(Protocol):
    """The part of a message that is read here."""

    def headers(self) -> object:
        """Pairs of name and value, or None."""
        ...


def trace_headers(message: HasHeaders) -> dict[str, str]:
    """The headers that continue a trace; none when the client cannot read them."""
    found: dict[str, str] = {}
    try:
        headers = cast("Sequence[tuple[str, str | bytes | None]]", message.headers() or ())
    except (UnicodeDecodeError, SystemError):
        # The client cannot read a header name that is not UTF-8: the trace is not worth the call.
        return found
    for name, value in headers:
        data = _bytes(value)
        if name in _TRACE_HEADERS and data is not None and len(data) <= _HEADER_BYTES_MAX:
            found[name] = data.decode("ascii", "replace")
    return found


def _error_of(error: KafkaException) -> KafkaError:
    return cast("KafkaError", error.args[0])


def _ending(error: KafkaException | KafkaError, doing: str) -> ProcessorError:
    found = _error_of(error) if isinstance(error, KafkaException) else error
    said = f"{doing}: {found.name()}"
    if found.code() in _FENCED:
        return SlotFenced(f"{said}: another executor runs under the same slot")
    if found.code() in _UNREACHABLE:
        return Unreachable(f"{said}: check the broker's address and the network")
    return ClientFatal(said)
