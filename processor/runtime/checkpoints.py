"""Checkpoints of one group on their topic: written with a position, read when a partition is taken.

Rules:
    A checkpoint lies in the partition of its call, by number, and leaves in the transaction of the
    position that it belongs to.
    They are read as far as the log went when the reading began, and only what was committed: the
    marker of the last owner's transaction may arrive here later than at the group's offsets.
    What belongs to a position that was given up (a fresh start, a reset) is removed, never used.
"""

from collections.abc import Iterable
from typing import Protocol

from processor.codec.checkpoint_records import (
    UnreadableCheckpoint,
    call_key_of,
    checkpoint_key,
    decode_checkpoint,
    encode_checkpoint,
)
from processor.codec.dead_letter_codes import Undecodable
from processor.codec.headers import cloudevents_headers, position_id
from processor.core.assembly import Assembly
from processor.core.checkpoint import Checkpoint
from processor.runtime.errors import RestoreRefused
from processor.runtime.outbox import Outbox, OutputRecord
from processor.runtime.output_writer import SOURCE
from processor.runtime.restore import StartAt
from processor.runtime.task import Task


class PartitionLog(Protocol):
    """The committed records of one partition of the checkpoint topic."""

    def read(self, partition: int) -> Iterable[tuple[bytes | None, bytes | None]]:
        """Key and value of every record, oldest first, up to the end as it is now.

        Raises: a runtime error when that cannot be reached.
        """
        ...


class Checkpoints:
    """Writes and reads the checkpoints of one group."""

    def __init__(
        self,
        topic: str,
        group: str,
        log: PartitionLog,
        *,
        after_ms: int,
    ) -> None:
        self._topic = topic
        self._group = group
        self._log = log
        self._after_ms = after_ms

    def append(self, task: Task[Assembly], outbox: Outbox) -> None:
        """Append what must go with the position of `task`. Cost: linear in what is due."""
        fold, position = task.fold, task.next_offset
        place = position_id(fold.place.topic, task.partition, position)
        headers = cloudevents_headers(place, SOURCE, "toolcall.checkpoint")
        for item in fold.take_checkpoints(position, after_ms=self._after_ms):
            key = checkpoint_key(self._group, item.key)
            value = encode_checkpoint(item)
            outbox.append(OutputRecord(self._topic, key, value, headers, task.partition))
        for name in fold.checkpoints.take_unneeded(fold.low_water(position).offset):
            key = checkpoint_key(self._group, name)
            outbox.append(OutputRecord(self._topic, key, None, headers, task.partition))
        task.checkpoints = fold.checkpoints.live_count

    def read(self, partition: int, plan: StartAt) -> list[Checkpoint]:
        """The group's checkpoints of a partition, in the order in which they were written.

        Raises: `RestoreRefused` for one that is unreadable or ahead of the committed position, and
        when there are not as many as that position was committed with.
        """
        found: dict[bytes, Checkpoint] = {}
        for record_key, value in self._log.read(partition):
            key = call_key_of(self._group, record_key)
            if key is None:
                continue
            # A key that is written again stands behind the others.
            found.pop(key, None)
            if value is not None:
                found[key] = self._decoded(partition, key, value)
        ahead = [item for item in found.values() if item.as_of > plan.mute_below]
        if ahead and plan.origin == "restored":
            raise RestoreRefused(
                f"checkpoint_ahead: {self._topic}[{partition}] has {len(ahead)} checkpoints above"
                f" the committed offset {plan.mute_below}: the group's offsets were moved back by"
                " hand. Start once with --accept-reset"
            )
        if plan.checkpoints is not None and len(found) != plan.checkpoints:
            raise RestoreRefused(
                f"checkpoints_missing: {self._topic}[{partition}] has {len(found)} checkpoints of the"
                f" group, the offset {plan.mute_below} was committed with {plan.checkpoints}. Records"
                " of that topic were deleted, or it was made again: open calls that they held cannot"
                " be known. Bring the topic back, or reset the group's offset by hand to where the"
                " calls began and start once with --accept-reset"
            )
        return list(found.values())

    def _decoded(self, partition: int, key: bytes, value: bytes) -> Checkpoint:
        try:
            return decode_checkpoint(key, value)
        except (Undecodable, UnreadableCheckpoint) as e:
            raise RestoreRefused(
                f"checkpoint_unreadable: {self._topic}[{partition}]: {e}. Another program wrote to"
                " this topic, or another release did: run that one, or reset the group by hand and"
                " start with --accept-reset"
            ) from e
