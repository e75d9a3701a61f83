"""The assembler's hot loop: a batch of Kafka messages through decode and fold into the outbox.

Rules:
    Most records are deltas of an open call in their expected order. Those are read by hand, in
    place, from the bytes that Avro single-object encoding puts in fixed order; everything else,
    and every delta that is not exactly of that shape, goes through the codec and the fold. A
    property test demands that both ways leave the same state.
    Below a task's `mute_below` nothing leaves: no output, no dead letter.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from processor.codec.records import DELTA_PREFIX, Undecodable, decode_event
from processor.core.assembly import Assembly
from processor.core.call import State
from processor.core.outcomes import Outcome
from processor.runtime.outbox import Headers, Outbox, OutputRecord
from processor.runtime.task import Task

#: Continuation bits of a six-byte varint: what epoch milliseconds take from 1970 to 2039.
_AT_MASK: Final = 0x8080_8080_8080
_AT_SHAPE: Final = 0x8080_8080_8000
_DELTA_BRANCH: Final = 0
#: Stands for a seq beyond the limit: no value begins with it, so the fold decides.
_NO_HEAD: Final = b"\xff" * 16


class Message(Protocol):
    """A consumed record, as the loop reads it: the client's message, once it is known to be no error."""

    def partition(self) -> int:
        """Number of the partition."""
        ...

    def offset(self) -> int:
        """Offset of the record."""
        ...

    def timestamp(self) -> tuple[int, int]:
        """Kind and epoch milliseconds."""
        ...

    def key(self) -> bytes | None:
        """Record key."""
        ...

    def value(self) -> bytes | None:
        """Record value."""
        ...

    def headers(self) -> Headers | None:
        """Record headers."""
        ...


class Writer(Protocol):
    """Turns what the fold says into records of the output topics."""

    def outcome(self, outcome: Outcome, message: Message) -> OutputRecord:
        """The record of a completed or rejected call that `message` decided."""
        ...

    def dead_letter(self, message: Message, refusal: Undecodable) -> OutputRecord:
        """The record that keeps the original bytes of an unreadable one."""
        ...


#: What the fold said in a batch, with the message that made it say so.
Said = list[tuple[Message, Outcome | Undecodable]]


class Absorber:
    """Feeds batches to the tasks of one process. `events`, `dropped` and `dead_letters` only count."""

    def __init__(self, writer: Writer, *, value_bytes_max: int, fragments_max: int) -> None:
        self._writer = writer
        self._heads = delta_heads(fragments_max)
        self._value_bytes_max = value_bytes_max
        self.events_count = 0
        self.dead_letters_count = 0
        self.dropped_count = 0
        #: Bytes of the outputs written so far; the loop compares it between two commits.
        self.output_bytes_count = 0

    def absorb(
        self, messages: Sequence[Message], tasks: Mapping[int, Task[Assembly]], outbox: Outbox
    ) -> None:
        """Apply `messages` in order. Those of a partition that is not owned any more are dropped.

        Cost: about 1.5 µs for a delta in order, some 10 µs for any other record.
        """
        size = len(messages)
        at = 0
        said: Said = []
        while at < size:
            partition = messages[at].partition()
            task = tasks.get(partition)
            if task is None:
                at += 1
                self.dropped_count += 1
                continue
            before = at
            if task.terms_change_ahead:
                at = self._run_until_change(messages, at, task, said)
            else:
                at = self._run(messages, at, task, said)
            self.events_count += at - before
        # Written together at the end: the encoder's code is then in the processor's cache.
        for message, outcome in said:
            written = self._written(message, outcome)
            self.output_bytes_count += len(written.value or b"")
            outbox.append(written)

    def _written(self, message: Message, outcome: Outcome | Undecodable) -> OutputRecord:
        if isinstance(outcome, Undecodable):
            self.dead_letters_count += 1
            return self._writer.dead_letter(message, outcome)
        return self._writer.outcome(outcome, message)

    def _run(self, messages: Sequence[Message], at: int, task: Task[Assembly], said: Said) -> int:
        """Apply the messages from `at` on that belong to `task`; return where another begins."""
        assembly, partition = task.fold, task.partition
        tracked, heads = assembly.calls.get, self._heads
        from_bytes, opened, seq_max = int.from_bytes, State.OPEN, len(heads) - 1
        log_time_ms = assembly.log_time_ms
        size = len(messages)
        while at < size:
            message = messages[at]
            if message.partition() != partition:
                break
            at += 1
            value = message.value()
            call = tracked(message.key())  # type: ignore[arg-type]  # a null key is not tracked
            if call is not None and call.state is opened and value is not None:
                items = call.items
                seq = len(items)
                head = heads[seq] if seq <= seq_max else _NO_HEAD
                i = len(head)
                value_bytes = len(value)
                if (
                    value.startswith(head)
                    and value_bytes > i + 7
                    and from_bytes(value[i : i + 6], "big") & _AT_MASK == _AT_SHAPE
                    and value[i + 6] == _DELTA_BRANCH
                ):
                    # The length is zigzag too, so it is even; one or two bytes of varint.
                    length, start = value[i + 7], i + 8
                    if length > 127:
                        two_bytes = value_bytes > start and value[start] < 128
                        length = length & 127 | value[start] << 7 if two_bytes else -1
                        start += 1
                    room_bytes = call.room_bytes - value_bytes + start
                    if length == (value_bytes - start) * 2 and room_bytes >= 0:
                        timestamp_ms = message.timestamp()[1]
                        if timestamp_ms > log_time_ms:
                            assembly.advance(timestamp_ms)
                            log_time_ms = timestamp_ms
                        items.append(value[start:])
                        call.room_bytes = room_bytes
                        call.last_ms = log_time_ms
                        continue
            self._slowly(message, task, said)
            log_time_ms = assembly.log_time_ms
        task.next_offset = messages[at - 1].offset() + 1
        return at

    def _run_until_change(
        self, messages: Sequence[Message], at: int, task: Task[Assembly], said: Said
    ) -> int:
        """One record at a time while former terms decide, so that the change falls exactly."""
        message = messages[at]
        task.decide(message.offset())
        self._slowly(message, task, said)
        task.next_offset = message.offset() + 1
        if not task.terms_change_ahead:
            task.decide(task.next_offset)
        return at + 1

    def _slowly(self, message: Message, task: Task[Assembly], said: Said) -> None:
        """Any record through the codec and the table of transitions."""
        offset, value = message.offset(), message.value()
        muted = offset < task.mute_below
        try:
            event = decode_event(message.key(), value, value_bytes_max=self._value_bytes_max)
        except Undecodable as refusal:
            task.fold.advance(message.timestamp()[1])
            if not muted:
                said.append((message, refusal))
            return
        key = message.key() or b""  # the codec refuses a null key
        outcome = task.fold.apply(key, event, offset, message.timestamp()[1])
        if outcome is not None and not muted:
            said.append((message, outcome))


def _varint(number: int) -> bytes:
    """Groups of seven bits, the lowest first (Avro 1.11 specification, binary encoding)."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delta_heads(fragments_max: int) -> list[bytes]:
    """First bytes of a delta by its seq: frame and seq. One comparison then replaces a decode.

    The seq is a zigzag long, twice its value. Made in runs of 64 that differ in the first byte only:
    a tenth of the time, of each start.
    """
    heads = [DELTA_PREFIX + _varint(seq << 1) for seq in range(64)]
    longer = [DELTA_PREFIX + bytes([seq << 1 | 0x80]) for seq in range(64)]
    for run in range(1, (fragments_max >> 6) + 1):
        rest = _varint(run)
        heads += [first + rest for first in longer]
    return heads[: fragments_max + 1]
