"""What the exactly-once loop relies on, stated once and asked of both brokers: what is read."""

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, TopicPartition

from processor.runtime.partitioner import partition_of
from tests.contract.kafka_harness import (
    ASK_S,
    BOTH,
    Broker,
    anonymous,
    begun,
    error_of,
    opened,
    read,
    write,
)


@pytest.fixture(params=BOTH)
def broker(request: pytest.FixtureRequest, topic_prefix: str) -> Iterator[Broker]:
    """Each broker in turn."""
    with opened(request, topic_prefix) as made:
        yield made


@pytest.mark.parametrize("position", [0, 9])
def test_a_position_outside_of_the_log_is_an_error_message(broker: Broker, position: int) -> None:
    """Below the start and above the end alike; nothing is skipped (auto.offset.reset=error)."""
    topic = broker.topic()
    write(broker.producer(), topic, b"one", b"two", b"three")
    broker.delete_before(topic, 2)
    consumer = anonymous(broker, "g")
    consumer.assign([TopicPartition(topic, 0, position)])
    message = consumer.poll(ASK_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET
    assert not error.fatal()


def test_retention_moves_the_start_and_renumbers_nothing(broker: Broker) -> None:
    """The first watermark says from where on the log is there."""
    topic = broker.topic()
    write(broker.producer(), topic, b"one", b"two", b"three")
    broker.delete_before(topic, 2)
    assert anonymous(broker, "g").get_watermark_offsets(TopicPartition(topic, 0), ASK_S) == (2, 3)
    assert [(m.offset(), m.value()) for m in read(broker, topic, first=2)] == [(2, b"three")]


def test_the_high_watermark_of_a_reader_of_committed_data_is_the_last_stable_offset(
    broker: Broker,
) -> None:
    """With a transaction open, the two kinds of readers are told two ends."""
    topic = broker.topic()
    write(broker.producer(), topic, b"one")
    producer = begun(broker)
    write(producer, topic, b"two")
    place = TopicPartition(topic, 0)
    assert anonymous(broker, "g").get_watermark_offsets(place, ASK_S) == (0, 1)
    careless = broker.consumer(group_id="g", isolation_level="read_uncommitted")
    assert careless.get_watermark_offsets(place, ASK_S) == (0, 2)
    producer.abort_transaction(ASK_S)


def test_partitions_are_added_and_taken_away_one_by_one(broker: Broker) -> None:
    """What is assigned cannot be assigned again, what is not cannot be taken away."""
    topic = broker.topic(2)
    consumer = anonymous(broker, "g")
    first, second = TopicPartition(topic, 0, 0), TopicPartition(topic, 1, 0)
    consumer.incremental_assign([first])
    assert error_of(lambda: consumer.incremental_assign([first])).code() == KafkaError._CONFLICT
    error = error_of(lambda: consumer.incremental_unassign([second]))
    assert error.code() == KafkaError._INVALID_ARG
    consumer.incremental_assign([second])
    consumer.incremental_unassign([first])
    assert [tp.partition for tp in consumer.assignment()] == [1]


def test_the_position_is_one_above_the_last_record_handed_out(broker: Broker) -> None:
    """Unknown before the first one, and never the end of what was only fetched."""
    topic = broker.topic()
    write(broker.producer(), topic, b"one", b"two")
    consumer = anonymous(broker, "g")
    place = TopicPartition(topic, 0, 0)
    consumer.assign([place])
    assert consumer.position([place])[0].offset == -1001
    assert consumer.poll(ASK_S) is not None
    assert consumer.position([place])[0].offset == 1


def test_a_compacted_topic_keeps_the_last_record_of_every_key(broker: Broker) -> None:
    """Offsets of what is left stay as they were; a record without a value still shows."""
    topic = broker.topic(
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="100",
    )
    producer = broker.producer()
    for key, value in ((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"b", None), (b"c", b"1")):
        producer.produce(topic, value, key, partition=0)
    producer.flush(ASK_S)

    def cleaned() -> bool:
        # The newest segment is never cleaned: another record begins a new one.
        producer.produce(topic, b"end", b"end", partition=0)
        producer.flush(ASK_S)
        return [m.offset() for m in read(broker, topic)][:3] == [2, 3, 4]

    broker.compact(topic, cleaned)
    left = [(m.key(), m.value()) for m in read(broker, topic)][:3]
    assert left == [(b"a", b"2"), (b"b", None), (b"c", b"1")]


def test_a_record_lies_where_it_was_told_to_or_where_its_key_leads(broker: Broker) -> None:
    """By number, else by the murmur2 of the key; an empty key is a key."""
    topic = broker.topic(3)
    keys = [b"", b"k", b"acme/req_1/resp_1/call_A", b"1234"]
    producer = broker.producer()
    producer.produce(topic, b"told", b"k", partition=2)
    for key in keys:
        producer.produce(topic, b"led", key)
    producer.flush(ASK_S)
    consumer = anonymous(broker, "g")
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    found: list[tuple[bytes | None, int | None]] = []
    while len(found) < len(keys) + 1:
        message = consumer.poll(ASK_S)
        assert message is not None
        found.append((message.key(), message.partition()))
    expected = [(b"k", 2), *((key, partition_of(key, 3)) for key in keys)]
    assert sorted(found, key=str) == sorted(expected, key=str)


def test_times_are_the_brokers_where_the_topic_says_so(broker: Broker) -> None:
    """A producer with a wrong clock decides nothing."""
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    producer = broker.producer()
    producer.produce(topic, b"v", b"k", partition=0, timestamp=1)
    producer.flush(ASK_S)
    kind, time_ms = read(broker, topic)[0].timestamp()
    assert kind == 2
    assert time_ms > 1_000_000


def test_headers_come_back_as_bytes_in_their_order(broker: Broker) -> None:
    """A record without any has none at all."""
    topic = broker.topic()
    producer = broker.producer()
    producer.produce(topic, b"v", b"k", partition=0, headers=[("b", b"1"), ("a", "2")])
    producer.produce(topic, b"v", b"k", partition=0)
    producer.flush(ASK_S)
    assert [m.headers() for m in read(broker, topic)] == [[("b", b"1"), ("a", b"2")], None]
