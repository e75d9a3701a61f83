"""Two brokers under one set of statements: the simulated one and a real one.

Rules:
    A statement talks to both through the client's own classes and settings, and through nothing
    else than the few questions of `Broker`.
    Nothing waits for a time: `drive` polls until something is so.
"""

import importlib
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from processor.runtime.kafka import kafka_error
from processor.testing import SimulatedCluster, SimulatedConsumer, SimulatedProducer, SoloHost

#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")

PATIENCE_S = 30.0
POLL_S = 0.05
ASK_S = 20.0
BOTH = ("simulated", pytest.param("kafka", marks=pytest.mark.integration))
Assigned = Callable[[Consumer, list[TopicPartition]], None]


class Broker(Protocol):
    """What a statement may ask for."""

    prefix: str

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """Make a topic of this test alone and return its name."""
        ...

    def consumer(self, **settings: object) -> Consumer:
        """A client; underscores in the names stand for dots."""
        ...

    def producer(self, **settings: object) -> Producer:
        """A client; underscores in the names stand for dots."""
        ...

    def delete_before(self, topic: str, offset: int) -> None:
        """Retention takes what lies below `offset` of partition 0."""
        ...

    def compact(self, topic: str, done: Callable[[], bool]) -> None:
        """Wait until the topic has been cleaned."""
        ...

    def close(self) -> None:
        """Close all clients."""
        ...


class SimulatedBroker:
    """The cluster in memory."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.cluster = SimulatedCluster()
        self._host = SoloHost(self.cluster)
        self._numbers = itertools.count()

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """Make a topic of this test alone and return its name."""
        name = f"{self.prefix}{next(self._numbers)}"
        self.cluster.create_topic(
            name,
            partitions,
            compacted=settings.get("cleanup_policy") == "compact",
            log_append_time=settings.get("message_timestamp_type") == "LogAppendTime",
        )
        return name

    def consumer(self, **settings: object) -> Consumer:
        """A client on the simulated cluster."""
        return cast("Consumer", SimulatedConsumer(self._host, _consumer_settings(settings)))

    def producer(self, **settings: object) -> Producer:
        """A client on the simulated cluster."""
        return cast("Producer", SimulatedProducer(self._host, _producer_settings(settings)))

    def delete_before(self, topic: str, offset: int) -> None:
        """Retention takes what lies below `offset` of partition 0."""
        self.cluster.log(topic, 0).delete_before(offset)

    def compact(self, topic: str, done: Callable[[], bool]) -> None:
        """Clean now."""
        del topic
        self.cluster.compact()
        assert done()

    def close(self) -> None:
        """Nothing outlives the test."""


class RealBroker:
    """The broker of the dev stack."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self.prefix = prefix
        self._bootstrap = bootstrap
        self._admin: Any = admin.AdminClient({"bootstrap.servers": bootstrap})
        self._numbers = itertools.count()
        self._consumers: list[Consumer] = []

    def topic(self, partitions: int = 1, **settings: str) -> str:
        """Make a topic of this test alone and return its name."""
        name = f"{self.prefix}{next(self._numbers)}"
        made = admin.NewTopic(name, partitions, 1, config=_dotted(settings))
        self._admin.create_topics([made])[name].result(PATIENCE_S)
        return name

    def consumer(self, **settings: object) -> Consumer:
        """A client of the real broker."""
        made = Consumer({**_consumer_settings(settings), "bootstrap.servers": self._bootstrap})
        self._consumers.append(made)
        return made

    def producer(self, **settings: object) -> Producer:
        """A client of the real broker."""
        return Producer({**_producer_settings(settings), "bootstrap.servers": self._bootstrap})

    def delete_before(self, topic: str, offset: int) -> None:
        """Retention takes what lies below `offset` of partition 0."""
        place = TopicPartition(topic, 0, offset)
        for future in self._admin.delete_records([place]).values():
            future.result(PATIENCE_S)

    def compact(self, topic: str, done: Callable[[], bool]) -> None:
        """Wait for the broker's cleaner."""
        del topic
        consumer = self.consumer(group_id="nobody")
        for _ in range(int(PATIENCE_S * 2 / POLL_S)):
            if done():
                return
            consumer.poll(POLL_S)
        raise AssertionError("the topic was not cleaned")

    def close(self) -> None:
        """Close the clients that are still open."""
        for consumer in self._consumers:
            try:
                consumer.close()
            except RuntimeError:
                continue


def _dotted(settings: Mapping[str, object]) -> dict[str, object]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def _consumer_settings(settings: Mapping[str, object]) -> dict[str, object]:
    return {
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 200,
        "fetch.wait.max.ms": 20,
        "log_level": 0,
        **_dotted(settings),
    }


def _producer_settings(settings: Mapping[str, object]) -> dict[str, object]:
    return {
        "partitioner": "murmur2_random",
        "message.timeout.ms": 5_000 if "transaction_timeout_ms" not in settings else 900,
        "log_level": 0,
        **_dotted(settings),
    }


class Member:
    """A consumer in a group that keeps what its callbacks said."""

    def __init__(self, broker: Broker, topic: str, group: str, **settings: object) -> None:
        self.topic = topic
        self.consumer = broker.consumer(group_id=group, **settings)
        self.said: list[tuple[str, tuple[int, ...]]] = []
        self.errors: list[KafkaError] = []
        self.consumer.subscribe(
            [topic],
            on_assign=self._on_assign,
            on_revoke=self._dropping("revoke"),
            on_lost=self._dropping("lost"),
        )

    @property
    def owned(self) -> set[int]:
        """Partitions that it reads now."""
        return {tp.partition for tp in self.consumer.assignment()}

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.said.append(("assign", _numbers(partitions)))
        consumer.incremental_assign(
            [TopicPartition(tp.topic, tp.partition, 0) for tp in partitions]
        )

    def _dropping(self, kind: str) -> Assigned:
        def drop(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self.said.append((kind, _numbers(partitions)))
            consumer.incremental_unassign(partitions)

        return drop

    def poll(self) -> None:
        """Serve what has come."""
        message = self.consumer.poll(POLL_S)
        error = None if message is None else message.error()
        if error is not None:
            self.errors.append(error)


def _numbers(partitions: Sequence[TopicPartition]) -> tuple[int, ...]:
    return tuple(sorted(tp.partition for tp in partitions))


def drive(members: Sequence[Member], until: Callable[[], bool]) -> None:
    """Poll all `members` in turn until `until` holds."""
    for _ in range(int(PATIENCE_S / POLL_S)):
        if until():
            return
        for member in members:
            member.poll()
    raise AssertionError(f"never: {[m.said for m in members]}")


def read(
    broker: Broker,
    topic: str,
    *,
    first: int = 0,
    isolation: str = "read_committed",
    held: bool = False,
) -> list[Message]:
    """Everything of partition 0 from `first` on, up to the end that the reader is told of.

    Unless a transaction is `held` open: the control record of one that has ended may come later
    than the answer to its producer, and is waited for.
    """
    if not held:
        wait_for_control_records(broker, topic)
    consumer = broker.consumer(
        group_id="reader", isolation_level=isolation, enable_partition_eof=True
    )
    consumer.assign([TopicPartition(topic, 0, first)])
    found: list[Message] = []
    for _ in range(int(PATIENCE_S / POLL_S)):
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            consumer.close()
            return found
        else:
            raise KafkaException(error)
    raise AssertionError("no end of the partition")


def wait_for_control_records(broker: Broker, topic: str) -> None:
    """Wait until both kinds of readers are told the same end of partition 0."""
    place = TopicPartition(topic, 0)
    readers = [
        broker.consumer(group_id="ends", isolation_level=isolation)
        for isolation in ("read_committed", "read_uncommitted")
    ]
    for _ in range(int(PATIENCE_S / POLL_S)):
        ends = {reader.get_watermark_offsets(place, PATIENCE_S)[1] for reader in readers}
        if len(ends) == 1:
            break
        readers[0].poll(POLL_S)
    for reader in readers:
        reader.close()


def error_of(call: Callable[[], object]) -> KafkaError:
    """The error that a call raises."""
    try:
        call()
    except KafkaException as e:
        return kafka_error(e)
    raise AssertionError("it was not refused")


def begun(broker: Broker, name: str = "a", **settings: object) -> Producer:
    """A transactional producer with a transaction begun."""
    producer = broker.producer(transactional_id=f"{broker.prefix}{name}", **settings)
    producer.init_transactions(ASK_S)
    producer.begin_transaction()
    return producer


def write(producer: Producer, topic: str, *values: bytes) -> None:
    """Produce to partition 0 and see it sent."""
    for value in values:
        producer.produce(topic, value, b"key", partition=0)
    producer.flush(ASK_S)


def values_of(
    broker: Broker, topic: str, isolation: str = "read_committed", *, held: bool = False
) -> list[bytes | None]:
    """The values in partition 0; `held` as for `read`."""
    return [m.value() for m in read(broker, topic, isolation=isolation, held=held)]


def committed(consumer: Consumer, topic: str, timeout_s: float = ASK_S) -> tuple[int, str]:
    """Committed offset and metadata of partition 0."""
    found = consumer.committed([TopicPartition(topic, 0)], timeout_s)[0]
    return found.offset, found.metadata or ""


def anonymous(broker: Broker, group: str) -> Consumer:
    """A consumer that never joins."""
    return broker.consumer(group_id=group)


def send(
    producer: Producer, consumer: Consumer, topic: str, offset: int, metadata: str = ""
) -> None:
    """Offsets of partition 0 into the open transaction."""
    producer.send_offsets_to_transaction(
        [TopicPartition(topic, 0, offset, metadata=metadata)],
        consumer.consumer_group_metadata(),
        ASK_S,
    )


@contextmanager
def opened(request: pytest.FixtureRequest, prefix: str) -> Generator[Broker]:
    """The broker that the parameter names; the real one starts only when it is asked for."""
    broker: Broker
    if request.param == "simulated":
        broker = SimulatedBroker(prefix)
    else:
        broker = RealBroker(request.getfixturevalue("kafka_bootstrap"), prefix)
    try:
        yield broker
    finally:
        broker.close()
