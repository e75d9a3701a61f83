"""Reading stretches of partitions outside of any group, in order and in bounded pieces.

Rules:
    Only committed records are seen, no group is joined and nothing is committed.
    Ends are given. One behind an open transaction is waited for, and named when nothing comes.
"""

import threading
from collections.abc import Iterator, Mapping
from typing import Final, cast

from processor.core._record import record
from processor.runtime.errors import Unreachable
from processor.runtime.kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    ending,
    ends_consumption,
    kafka_error,
    make_group_reader,
    make_reader,
)

#: How long one question may take, and how long a scan waits for the next record.
ASK_S: Final = 10.0
#: Longer than a transaction of the assembler may stay open (8 s).
QUIET_ROUNDS_MAX: Final = 20
_ROUND_S: Final = 1.0
#: A coordinator that is new or moves is asked again, this often and after such a pause.
_TRIES: Final = 20
_PAUSE_S: Final = 0.25
#: Records of one piece; together with the client's queue (64 MiB) the bound of the memory.
PIECE_RECORDS: Final = 2_000


@record
class Stretch:
    """Offsets `[start, end)` of one partition."""

    start: int
    end: int


@record
class CommittedOffset:
    """What a group has committed for one partition; `metadata` is the text beside it."""

    offset: int
    metadata: str


class LogScan:
    """Reads topics of one cluster. Use as a context manager.

    Raises: a runtime error when Kafka does not answer or refuses.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer = make_reader(bootstrap)

    def __enter__(self) -> "LogScan":
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.close()

    def partitions(self, topic: str) -> list[int]:
        """Numbers of the partitions of a topic that exists; empty when it does not."""
        try:
            found = self._consumer.list_topics(topic, ASK_S).topics[topic]
        except KafkaException as e:
            raise ending(e, f"describe {topic}") from e
        return sorted(found.partitions) if found.error is None else []

    def offsets_at(self, topic: str, partitions: list[int], time_ms: int) -> dict[int, int | None]:
        """First offset whose record is not older than `time_ms`; None when all are older."""
        asked = [TopicPartition(topic, p, time_ms) for p in partitions]
        try:
            found = self._consumer.offsets_for_times(asked, ASK_S)
        except KafkaException as e:
            raise ending(e, f"offsets by time of {topic}") from e
        offsets: dict[int, int | None] = {}
        for tp in found:
            if tp.error is not None:
                raise ending(tp.error, f"offsets by time of {topic}[{tp.partition}]")
            offsets[tp.partition] = tp.offset if tp.offset >= 0 else None
        return offsets

    def committed(self, group: str, topic: str) -> dict[int, CommittedOffset]:
        """What `group` has committed, where it has; asked stable, behind pending transactions."""
        asked = [TopicPartition(topic, p) for p in self.partitions(topic)]
        pause = threading.Event()
        consumer = make_group_reader(self._bootstrap, group)
        try:
            found, error = _asked(consumer, asked)
            for _ in range(_TRIES):
                if error is None or not _passes(error):
                    break
                pause.wait(_PAUSE_S)
                found, error = _asked(consumer, asked)
        finally:
            consumer.close()
        if error is not None:
            raise ending(error, f"committed offsets of {group} on {topic}")
        return {
            tp.partition: CommittedOffset(tp.offset, tp.metadata or "")
            for tp in found
            if tp.offset >= 0
        }

    def first_record(self, topic: str, partition: int, stretch: Stretch) -> Message | None:
        """The first record of a stretch, or None when it holds none."""
        for piece in self.read(topic, {partition: stretch}, piece_records=1):
            return piece[0]
        return None

    def read(
        self,
        topic: str,
        stretches: Mapping[int, Stretch],
        *,
        piece_records: int = PIECE_RECORDS,
    ) -> Iterator[list[Message]]:
        """The records of the stretches, each partition in order, in pieces that are never empty."""
        wanted = {p: s for p, s in stretches.items() if s.start < s.end}
        try:
            self._consumer.assign([TopicPartition(topic, p, s.start) for p, s in wanted.items()])
            yield from self._pieces(topic, wanted, piece_records)
        except KafkaException as e:
            raise ending(e, f"read {topic}") from e
        finally:
            self._consumer.unassign()

    def _pieces(
        self, topic: str, wanted: Mapping[int, Stretch], piece_records: int
    ) -> Iterator[list[Message]]:
        waiting = {p: s.end for p, s in wanted.items()}
        quiet_rounds = 0
        while waiting:
            messages = self._consumer.consume(piece_records, 0)
            if not messages:
                # `consume` with a time waits for a whole piece; `poll` returns with the first.
                first = self._consumer.poll(_ROUND_S)
                messages = [] if first is None else [first]
            quiet_rounds = 0 if messages else quiet_rounds + 1
            if quiet_rounds >= QUIET_ROUNDS_MAX:
                raise _no_end(topic, waiting)
            piece = [message for message in messages if _belongs(message, waiting)]
            if piece:
                yield piece


def _asked(
    consumer: Consumer, asked: list[TopicPartition]
) -> tuple[list[TopicPartition], KafkaError | None]:
    """Committed offsets, and the first error among them."""
    try:
        found = consumer.committed(asked, ASK_S)
    except KafkaException as e:
        return [], kafka_error(e)
    return found, next((tp.error for tp in found if tp.error is not None), None)


def _passes(error: KafkaError) -> bool:
    """True for what a group's coordinator says while it moves, or is new."""
    return error.retriable() or error.name().startswith(("COORDINATOR_", "NOT_COORDINATOR"))


def _belongs(message: Message, waiting: dict[int, int]) -> bool:
    """True for a record inside of its stretch; notes the end of a partition that has been read."""
    partition, offset = cast("int", message.partition()), cast("int", message.offset())
    error = message.error()
    if error is not None:
        # The end also lies behind control records, which nobody delivers.
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  # public by its documentation
            if offset >= waiting.get(partition, offset + 1):
                del waiting[partition]
        else:
            failure = ends_consumption(error)
            if failure is not None:
                raise failure
        return False
    end = waiting.get(partition)
    if end is None:
        return False
    if offset + 1 >= end:
        del waiting[partition]
    return offset < end


def _no_end(topic: str, waiting: Mapping[int, int]) -> Unreachable:
    where = ", ".join(f"{topic}[{p}] before offset {end}" for p, end in sorted(waiting.items())[:3])
    return Unreachable(
        f"read {topic}: nothing more came within {QUIET_ROUNDS_MAX * _ROUND_S:.0f} s, up to {where}."
        " A broker is away, or a transaction was left open there and hides what lies behind it:"
        " `toolcalls doctor` tells which"
    )
