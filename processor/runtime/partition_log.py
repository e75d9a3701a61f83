"""The checkpoint topic as Kafka has it: one partition read to its end, behind a barrier.

Rules:
    The end is asked for without regard to transactions, the records are read with it: so a
    transaction that is not finished here yet is waited for, and nothing of it is missed.
"""

from collections.abc import Callable, Iterator
from typing import Final, cast

from processor.runtime.errors import RestoreRefused, Unreachable
from processor.runtime.kafka import (
    Consumer,
    KafkaException,
    Message,
    TopicPartition,
    ending,
    is_partition_end,
    make_log_reader,
)
from processor.runtime.settings import RuntimeSettings

_ASK_S: Final = 10.0
#: How long an unfinished transaction is waited for: longer than any of ours may take.
_BARRIER_S: Final = 30.0
_BATCH: Final = 1_000
_POLL_S: Final = 0.1


class KafkaPartitionLog:
    """A `PartitionLog` on a real topic. Its two clients are made at the first reading, and kept."""

    def __init__(self, settings: RuntimeSettings, topic: str, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._topic = topic
        self._clients: tuple[Consumer, Consumer] | None = None

    def read(self, partition: int) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Key and value of every committed record up to the end as it is now.

        Raises: `Unreachable`; `RestoreRefused` when a transaction stays open for too long.
        """
        reader, ends = self._open()
        place = TopicPartition(self._topic, partition)
        try:
            first, end = ends.get_watermark_offsets(place, _ASK_S)
            if first < end:
                reader.assign([TopicPartition(self._topic, partition, first)])
                yield from self._until(reader, partition, end)
                reader.unassign()
        except KafkaException as e:
            raise ending(e, f"read {self._topic}[{partition}]") from e

    def _open(self) -> tuple[Consumer, Consumer]:
        if self._clients is None:
            self._clients = (
                make_log_reader(self._settings, committed=True),
                make_log_reader(self._settings, committed=False),
            )
        return self._clients

    def _until(
        self, reader: Consumer, partition: int, end: int
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        deadline_s = self._clock() + _BARRIER_S
        while True:
            messages = _batch(reader)
            for message in messages:
                error, offset = message.error(), cast("int", message.offset())
                if error is None:
                    yield message.key(), message.value()
                    reached = offset + 1
                elif is_partition_end(error):
                    reached = offset
                else:
                    raise ending(error, f"read {self._topic}[{partition}]")
                if reached >= end:
                    return
            if messages:
                deadline_s = self._clock() + _BARRIER_S
            elif self._clock() > deadline_s:
                raise self._stuck(reader, partition, end)

    def _stuck(self, reader: Consumer, partition: int, end: int) -> RestoreRefused | Unreachable:
        place = TopicPartition(self._topic, partition)
        _, stable = reader.get_watermark_offsets(place, _ASK_S)
        if stable >= end:
            return Unreachable(f"read {self._topic}[{partition}]: no answer for {_BARRIER_S:.0f} s")
        return RestoreRefused(
            f"checkpoints_not_stable: {self._topic}[{partition}] has a transaction that has stayed"
            f" open at offset {stable} for {_BARRIER_S:.0f} s. Find its producer with"
            " `kafka-transactions.sh find-hanging` and abort it"
        )


def _batch(reader: Consumer) -> list[Message]:
    """What is there; a wait for the first only, since `consume` would wait for all of a batch."""
    messages = reader.consume(_BATCH, 0)
    if messages:
        return messages
    first = reader.poll(_POLL_S)
    return [] if first is None else [first]
