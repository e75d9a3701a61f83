"""Back-pressure: which partitions are not read while the open calls hold too much memory.

Rules:
    Only reading on ends calls and frees their buffers, so the input never stands still as a whole:
    above the bound one partition is read at a time, in turns. A turn ends when nothing came of the
    partition for a while, or after `TURN_S`. Below the lower mark all are read again.
    Nothing is dropped, and nothing decides otherwise: only when a record is read changes.
"""

from collections.abc import Collection
from typing import Final

TURN_S: Final = 5.0
#: Longer than a fetch of a partition that was just resumed may take to come back.
IDLE_S: Final = 1.0
_LOW_SHARE: Final = 0.8
#: Part of the time that weighing the open calls may take.
_WEIGH_SHARE: Final = 100
#: Longest time without weighing: a process that did not get the processor would take it for long.
_WEIGH_PAUSE_S: Final = 0.5


class PartitionValve:
    """Decides which partitions are paused. Bytes are those held by open calls, times seconds."""

    def __init__(self, bytes_max: int) -> None:
        self._high, self._low = bytes_max, int(bytes_max * _LOW_SHARE)
        self._turn: int | None = None
        self._turn_ends_s = self._idle_at_s = 0.0
        self._weigh_due_s = float("-inf")
        self.closed = False

    def is_due(self, now_s: float) -> bool:
        """True when the open calls are to be weighed again."""
        return now_s >= self._weigh_due_s

    def weighed(self, held_bytes: int, from_s: float, now_s: float) -> None:
        """The open calls hold `held_bytes`; the weighing took from `from_s` until now."""
        self._weigh_due_s = now_s + min(_WEIGH_PAUSE_S, _WEIGH_SHARE * (now_s - from_s))
        self.closed = held_bytes > (self._low if self.closed else self._high)

    def paused(self, owned: Collection[int], read: Collection[int], now_s: float) -> frozenset[int]:
        """The partitions of `owned` that must not be read now; `read` are those just read from."""
        if not self.closed or len(owned) < 2:
            self._turn = None
            return frozenset()
        if self._turn in read:
            self._idle_at_s = now_s + IDLE_S
        if self._turn not in owned or now_s >= min(self._turn_ends_s, self._idle_at_s):
            self._turn = self._next(owned)
            self._turn_ends_s, self._idle_at_s = now_s + TURN_S, now_s + IDLE_S
        return frozenset(owned) - {self._turn}

    def _next(self, owned: Collection[int]) -> int:
        after = -1 if self._turn is None else self._turn
        return min(owned, key=lambda partition: (partition <= after, partition))
