"""Checkpoints: what lets the low-water mark move past a key that stays tracked for long.

Rules:
    A checkpoint is the exact state of a key at a committed position, `as_of`. A restart skips the
    key's records below it and goes on from that state; so the key needs only what lies above.
    A key that has a checkpoint keeps one, and needs it, until it is forgotten. What is then written
    is that it is gone, so that a restart does not begin it anew from what it left in the log; the
    tombstone follows when the low-water mark has passed that position too.
    A call that began when hardly any more could be open gets a checkpoint at once: a restart may
    count otherwise, and must not decide again.
    A commit writes the checkpoints together with its position, or neither.
"""

from collections.abc import Container, Iterable, Iterator
from typing import Final, NamedTuple

from processor.core.call import Call
from processor.core.limits import Limits

#: A larger buffer gets no checkpoint, which would not fit its topic; the key then needs its log.
CHECKPOINT_BYTES_MAX: Final = 900 * 1024
#: What an item costs beside its bytes, as its length is written.
ITEM_BYTES_MAX: Final = 3


class Checkpoint(NamedTuple):
    """State of `key` when everything below offset `as_of` was applied; None: it was not tracked."""

    key: bytes
    as_of: int
    call: Call | None


class CheckpointBook:
    """Which keys of a partition have a checkpoint, and what the next commit must write.

    Give the checkpoints of a restart in the order in which they were written.
    """

    __slots__ = ("forced", "forgotten", "gone", "held", "pending")

    def __init__(self, checkpoints: Iterable[Checkpoint] = ()) -> None:
        #: Tracked keys with a checkpoint.
        self.held: set[bytes] = set()
        #: Keys that were forgotten since: where, and in this order.
        self.gone: dict[bytes, int] = {}
        #: Keys that need a checkpoint with the next commit.
        self.forced: dict[bytes, None] = {}
        #: Keys with a checkpoint that were forgotten after the last commit.
        self.forgotten: dict[bytes, None] = {}
        #: Of a restart: what lies above the position reached so far.
        self.pending: dict[bytes, Checkpoint] = {
            item.key: item for item in sorted(checkpoints, key=lambda item: item.as_of)
        }

    @property
    def live_count(self) -> int:
        """How many keys have a record on the topic once everything that was taken is written."""
        return len(self.held) + len(self.gone) + len(self.forgotten) + len(self.pending)

    def skips(self, key: bytes, offset: int) -> bool:
        """True when a record lies below its key's checkpoint. Call `due` for the offset before."""
        return key in self.pending and offset < self.pending[key].as_of

    def due(self, offset: int) -> Iterator[Checkpoint]:
        """Take the pending checkpoints at or below `offset`."""
        pending = self.pending
        while pending:
            item = next(iter(pending.values()))
            if item.as_of > offset:
                return
            del pending[item.key]
            if item.call is None:
                self.gone[item.key] = item.as_of
            else:
                self.held.add(item.key)
            yield item

    def take_asked(
        self, tracked: Container[bytes], as_of: int
    ) -> tuple[list[Checkpoint], dict[bytes, None]]:
        """Take what the next commit must write, however old it is: what is gone, what is tracked."""
        asked = {**self.forgotten, **self.forced}
        self.forgotten, self.forced = {}, {}
        gone = [Checkpoint(key, as_of, None) for key in asked if key not in tracked]
        self.gone.update((item.key, as_of) for item in gone)
        return gone, {key: None for key in asked if key in tracked}

    def forget(self, key: bytes) -> None:
        """The key is tracked no more."""
        if key in self.held:
            self.held.discard(key)
            self.forgotten[key] = None

    def take_unneeded(self, low: int) -> list[bytes]:
        """Take the keys of which a restart at `low` reads no record of before they were gone."""
        unneeded = [key for key, as_of in self.gone.items() if as_of <= low]
        for key in unneeded:
            del self.gone[key]
        return unneeded


def fits_a_checkpoint(call: Call, limits: Limits) -> bool:
    """False for a buffer whose checkpoint would not fit its topic."""
    buffer_bytes = limits.arguments_bytes_max - call.room_bytes
    return buffer_bytes + ITEM_BYTES_MAX * len(call.items) <= CHECKPOINT_BYTES_MAX
