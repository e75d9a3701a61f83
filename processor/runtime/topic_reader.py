"""Reading a topic from outside of the group: for people, never for the loop.

Rules:
    No group is joined and nothing is committed; only committed records are seen.
    The end is asked for once, at the start: records that arrive later are not waited for.
"""

from collections.abc import Iterator
from typing import NamedTuple, cast

from processor.codec.headers import Headers
from processor.runtime.errors import Unreachable
from processor.runtime.kafka import (
    KafkaException,
    Message,
    TopicPartition,
    ending,
    make_group_reader,
    make_reader,
)

_ASK_S = 10.0


class TopicRecord(NamedTuple):
    """One record as it lies on the topic; `timestamp_ms` is epoch milliseconds."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class TopicReader:
    """Reads a topic piece by piece: each `read` goes on where the last one ended.

    Use as a context manager. Raises: a runtime error when Kafka does not answer.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._next: dict[int, int] = {}
        self._consumer = make_reader(bootstrap)

    def __enter__(self) -> "TopicReader":
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.close()

    def read(self) -> list[TopicRecord]:
        """Every record that is there now and was not read yet, oldest first by timestamp."""
        try:
            ends = self._ends()
            records = list(self._until(ends))
        except KafkaException as e:
            raise ending(e, f"read {self._topic}") from e
        return sorted(records, key=lambda r: (r.timestamp_ms, r.partition, r.offset))

    def _ends(self) -> dict[int, int]:
        found = self._consumer.list_topics(self._topic, _ASK_S).topics[self._topic]
        ends: dict[int, int] = {}
        for partition in found.partitions:
            asked = TopicPartition(self._topic, partition)
            first, end = self._consumer.get_watermark_offsets(asked, _ASK_S)
            at = self._next.setdefault(partition, first)
            if at < end:
                ends[partition] = end
        return ends

    def _until(self, ends: dict[int, int]) -> Iterator[TopicRecord]:
        self._consumer.assign([TopicPartition(self._topic, p, self._next[p]) for p in ends])
        waiting = set(ends)
        while waiting:
            message = self._consumer.poll(_ASK_S)
            if message is None:
                raise Unreachable(f"read {self._topic}: no answer within {_ASK_S:.0f} s")
            partition = cast("int", message.partition())
            offset = cast("int", message.offset())
            if message.error() is None:
                self._next[partition] = offset + 1
                yield TopicRecord(
                    partition,
                    offset,
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    _headers(message),
                )
            else:
                # The end of a partition also lies behind control records, which nobody delivers.
                waiting.discard(partition)
                continue
            if offset + 1 >= ends[partition]:
                waiting.discard(partition)


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers = cast("Headers | None", message.headers())
    return [
        (name, value.encode() if isinstance(value, str) else value) for name, value in headers or []
    ]


def uncommitted_count(bootstrap: str, group: str, topic: str) -> int:
    """How many records of `topic` lie at or above what the group has committed.

    Records are counted, not offsets: a transaction's control record has an offset too, and nobody
    commits it. Cost: reads the topic; meant for small ones.
    Raises: a runtime error when Kafka does not answer.
    """
    consumer = make_group_reader(bootstrap, group)
    try:
        partitions = consumer.list_topics(topic, _ASK_S).topics[topic].partitions
        asked = [TopicPartition(topic, number) for number in partitions]
        committed = {tp.partition: tp.offset for tp in consumer.committed(asked, _ASK_S)}
    except KafkaException as e:
        raise ending(e, f"committed offsets of {group} on {topic}") from e
    finally:
        consumer.close()
    with TopicReader(bootstrap, topic) as reader:
        return sum(item.offset >= committed[item.partition] for item in reader.read())
