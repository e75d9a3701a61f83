"""Where completed calls come from, and when their offsets may move on.

Rules:
    An offset is committed only when every delivery before it is settled or parked.
    Offsets need not be contiguous: transactions leave markers between records.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from processor.core._record import record


@record
class Delivered:
    """One record as it was read. `headers` holds the trace headers only.

    `timestamp_ms` is the record's own time, epoch milliseconds; 0 when it has none.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]
    timestamp_ms: int = 0


@record
class Assigned:
    """A partition came: reading starts at `next_offset`; `fresh` when the group had none stored."""

    partition: int
    next_offset: int
    fresh: bool


@record
class Listener:
    """Whom a source tells about its partitions, from inside of `poll`."""

    assigned: Callable[[list[Assigned]], None]
    revoked: Callable[[list[int]], None]
    lost: Callable[[list[int]], None]


class CompletedSource(Protocol):
    """The completed topic as a consumer group sees it. Used from one thread.

    Raises, from every method: an error of `executor.errors` when the client cannot go on.
    """

    @property
    def topic(self) -> str:
        """The topic's name."""
        ...

    def subscribe(self, listener: Listener) -> None:
        """Join the group."""
        ...

    def poll(self, timeout_s: float) -> Delivered | None:
        """The next record, or None after `timeout_s`."""
        ...

    def pause(self) -> None:
        """Deliver nothing until `resume`, and stay a member meanwhile."""
        ...

    def resume(self) -> None:
        """Deliver again."""
        ...

    def commit(self, next_offsets: Mapping[int, int]) -> bool:
        """Store next offsets by partition; False when a rebalance was in the way."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class Refetch(Protocol):
    """Reads one record again, outside of the group. Used from one thread."""

    def fetch(self, partition: int, offset: int) -> Delivered | None:
        """The record at `offset`, or None when it is gone or does not come in time."""
        ...

    def close(self) -> None:
        """Release what it holds."""
        ...


class Progress:
    """Which deliveries of each partition are done, and what may be committed. Not thread-safe."""

    def __init__(self) -> None:
        self._open: dict[int, OrderedDict[int, bool]] = {}
        self._next: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    def assign(self, partition: int, next_offset: int, *, fresh: bool) -> None:
        """Begin with a partition; a fresh position is due for a commit at once."""
        self._open[partition] = OrderedDict()
        self._next[partition] = next_offset
        if not fresh:
            self._committed[partition] = next_offset

    def forget(self, partition: int) -> None:
        """The partition is somebody else's; later marks for it are ignored."""
        for held in (self._open, self._next, self._committed):
            held.pop(partition, None)

    def start(self, partition: int, offset: int) -> None:
        """A record was delivered."""
        if partition in self._open:
            self._open[partition][offset] = False

    def finish(self, partition: int, offset: int) -> None:
        """A delivery is settled or parked."""
        deliveries = self._open.get(partition)
        if deliveries is None or offset not in deliveries:
            return
        deliveries[offset] = True
        while deliveries:
            first, done = next(iter(deliveries.items()))
            if not done:
                return
            del deliveries[first]
            next_offset = first + 1
            self._next[partition] = next_offset

    def due(self) -> dict[int, int]:
        """Next offsets that are ahead of what was committed."""
        return {p: n for p, n in self._next.items() if self._committed.get(p) != n}

    def committed(self, next_offsets: Mapping[int, int]) -> None:
        """These were stored."""
        for partition, next_offset in next_offsets.items():
            if partition in self._next:
                self._committed[partition] = next_offset
