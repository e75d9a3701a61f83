"""New topics for a publisher, and what stands on them; an address where nobody listens."""

import socket

from confluent_kafka import Consumer, TopicPartition

from processor.publisher import PublisherSettings
from processor.publisher.ports import OutRecord
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.topics import TopicNames, topic_specs

PARTITIONS = 3


def new_topics(bootstrap: str, prefix: str) -> PublisherSettings:
    """All topics behind `prefix`, and the settings of a publisher to them."""
    names = TopicNames.prefixed(prefix)
    specs = topic_specs(names, partitions=PARTITIONS, replication_factor=1)
    KafkaAdmin(bootstrap).create(specs)
    return PublisherSettings(
        bootstrap=bootstrap,
        events_topic=names.events,
        usage_topic=names.usage,
        on_publish_error="raise",
    )


def unused_address() -> str:
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def read_topic(bootstrap: str, topic: str) -> list[tuple[int, OutRecord]]:
    """All records of a topic up to its present end, with their partitions, in partition order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader-without-commits",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
        }
    )
    found: list[tuple[int, OutRecord]] = []
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place])
            read = 0
            while read < end:
                message = consumer.poll(30)
                assert message is not None, f"partition {partition} ends before {end}"
                assert message.error() is None
                key, value = message.key() or b"", message.value() or b""
                # Without the prefix: the name that the helpers of the unit tests know.
                name = topic[topic.index("toolcalls.") :]
                found.append((partition, OutRecord(name, key, value, [])))
                read += 1
    finally:
        consumer.close()
    return found
