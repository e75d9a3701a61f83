"""One partition's log as a broker keeps it: offsets, transactions, control records, retention.

Rules:
    A transaction's end is a control record, and it takes an offset like any other.
    The last stable offset (LSO) is the first offset of the oldest open transaction, else the end.
    Readers of committed data see no aborted record, no control record, and nothing from the LSO on.
    Retention moves the start; compaction leaves holes; neither renumbers anything.
"""

from collections.abc import Iterator

from processor.codec.headers import Headers
from processor.core._record import record
from processor.runtime.kafka import KafkaError

#: Kinds of a record's time, as the client reports them.
CREATE_TIME = 1
LOG_APPEND_TIME = 2


class SimulatedMessage:
    """A record of a log, or an error event; the methods are those of the client's `Message`."""

    __slots__ = (
        "_error",
        "_headers",
        "_key",
        "_offset",
        "_partition",
        "_timestamp",
        "_topic",
        "_value",
        "control",
        "transaction",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        timestamp: tuple[int, int] = (0, 0),
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Headers | None = None,
        error: KafkaError | None = None,
        transaction: int | None = None,
        control: bool = False,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._timestamp = timestamp
        self._key = key
        self._value = value
        self._headers = headers
        self._error = error
        #: Number of the transaction that wrote it; None outside of transactions.
        self.transaction = transaction
        #: True for the record that ends a transaction; no reader sees it.
        self.control = control

    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    def partition(self) -> int:
        """Number of the partition."""
        return self._partition

    def offset(self) -> int:
        """Offset of the record."""
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        """Kind and epoch milliseconds."""
        return self._timestamp

    def key(self) -> bytes | None:
        """Record key."""
        return self._key

    def value(self) -> bytes | None:
        """Record value."""
        return self._value

    def headers(self) -> Headers | None:
        """Record headers."""
        return self._headers

    def error(self) -> KafkaError | None:
        """What this event reports when it is no record."""
        return self._error


@record
class NewRecord:
    """A record that a producer wants in a partition."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    #: The producer's time in epoch milliseconds; the broker's when None or under LogAppendTime.
    timestamp_ms: int | None = None


class PartitionLog:
    """The records of one partition. Offsets only grow."""

    def __init__(self, topic: str, partition: int, *, log_append_time: bool) -> None:
        self.topic = topic
        self.partition = partition
        self._log_append_time = log_append_time
        self.start_offset = 0
        #: The offset that the next record gets; the high watermark, as there is one replica.
        self.end_offset = 0
        self._records: list[SimulatedMessage] = []
        #: What retention took, for those who judge a run.
        self._deleted: list[SimulatedMessage] = []
        #: First offset of each open transaction.
        self._open: dict[int, int] = {}
        self._aborted: set[int] = set()

    @property
    def stable_offset(self) -> int:
        """The LSO."""
        return min(self._open.values(), default=self.end_offset)

    @property
    def open_transactions(self) -> frozenset[int]:
        """Transactions whose end is not written here yet."""
        return frozenset(self._open)

    def append(self, new: NewRecord, now_ms: int, transaction: int | None = None) -> int:
        """Write one record and return its offset."""
        if transaction is not None:
            self._open.setdefault(transaction, self.end_offset)
        if self._log_append_time:
            timestamp = (LOG_APPEND_TIME, now_ms)
        else:
            timestamp = (CREATE_TIME, now_ms if new.timestamp_ms is None else new.timestamp_ms)
        return self._append(
            SimulatedMessage(
                self.topic,
                self.partition,
                self.end_offset,
                timestamp=timestamp,
                key=new.key,
                value=new.value,
                headers=new.headers or None,
                transaction=transaction,
            )
        )

    def end_transaction(self, transaction: int, now_ms: int, *, committed: bool) -> None:
        """Write the control record that ends `transaction` here."""
        self._open.pop(transaction, None)
        if not committed:
            self._aborted.add(transaction)
        self._append(
            SimulatedMessage(
                self.topic,
                self.partition,
                self.end_offset,
                timestamp=(LOG_APPEND_TIME, now_ms),
                transaction=transaction,
                control=True,
            )
        )

    def _append(self, message: SimulatedMessage) -> int:
        self._records.append(message)
        self.end_offset += 1
        return message.offset()

    def read(self, from_offset: int, *, committed: bool) -> Iterator[SimulatedMessage]:
        """What a reader sees from `from_offset` on, in order."""
        end = self.stable_offset if committed else self.end_offset
        for message in self._records[self._index(from_offset) :]:
            if message.offset() >= end:
                return
            if self._is_seen(message, committed=committed):
                yield message

    def _is_seen(self, message: SimulatedMessage, *, committed: bool) -> bool:
        return not message.control and not (committed and message.transaction in self._aborted)

    def _index(self, offset: int) -> int:
        """Index of the first record at or above `offset`; quick while nothing was compacted."""
        records = self._records
        index = max(0, offset - self.start_offset)
        if index >= len(records):
            index = len(records)
        elif records[index].offset() == offset:
            return index
        while index and records[index - 1].offset() >= offset:
            index -= 1
        return index

    def delete_before(self, offset: int) -> None:
        """Retention: forget what lies below `offset`."""
        offset = min(offset, self.end_offset)
        if offset > self.start_offset:
            kept = self._index(offset)
            self._deleted += self._records[:kept]
            self._records = self._records[kept:]
            self.start_offset = offset

    def history(self, *, committed: bool) -> list[SimulatedMessage]:
        """What a reader would have seen that was there from the beginning; for judging a run."""
        gone = [m for m in self._deleted if self._is_seen(m, committed=committed)]
        return gone + list(self.read(self.start_offset, committed=committed))

    def compact(self, *, tombstones: bool) -> None:
        """Keep the last committed record of every key below the LSO; tombstones too if asked."""
        end = self.stable_offset
        last = {m.key(): m.offset() for m in self.read(self.start_offset, committed=True)}
        self._records = [
            m
            for m in self._records
            if m.offset() >= end
            or (
                not m.control
                and m.transaction not in self._aborted
                and last.get(m.key()) == m.offset()
                and (m.value() is not None or tombstones)
            )
        ]
