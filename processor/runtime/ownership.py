"""Watches that every partition has an owner, and makes the group assign again when one has none.

Rules:
    Classic protocol only: a static member that dies between the two rebalances of a cooperative hand-over and comes back
    gets its stored assignment without a rebalance (KIP-345), so the second one never starts and
    what it was giving up has no owner: no error, no lag alarm of its own, just silence.
    A member that joins and leaves again starts one. Only the member with the first name does it, and
    only when the same partitions had no owner at two looks at a stable group.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from processor.core.errors import ProcessorError

WATCH_INTERVAL_S: Final = 3.0


class GroupView(Protocol):
    """What can be seen of the group from outside."""

    def owned(self) -> "dict[str, set[int]] | None":
        """Partitions by member name (its slot); None while the group is not stable."""
        ...

    def nudge(self) -> None:
        """Join as one more member and leave, so that the group assigns again."""
        ...


class Watch(Protocol):
    """Looks after the group beside the loop, from `start` to `stop`; neither waits."""

    def start(self) -> None:
        """Start looking."""
        ...

    def stop(self) -> None:
        """Stop looking."""
        ...


class Watches:
    """Several watches as one."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        self._watches = list(watches)

    def start(self) -> None:
        """Start all."""
        for watch in self._watches:
            watch.start()

    def stop(self) -> None:
        """Stop all."""
        for watch in self._watches:
            watch.stop()


class OwnershipWatch:
    """A thread that looks every few seconds; `note` is told of partitions without an owner."""

    def __init__(
        self,
        view: GroupView,
        slot: str,
        partitions: int,
        note: Callable[[list[int]], None],
        *,
        interval_s: float = WATCH_INTERVAL_S,
    ) -> None:
        self._view = view
        self._slot = slot
        self._partitions = partitions
        self._note = note
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._before: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="ownership", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop looking; does not wait for a look under way."""
        self._stop.set()

    def look(self) -> bool:
        """One look; True when it made the group assign again."""
        owned = self._view.owned()
        if not owned:
            self._before = set()
            return False
        orphans = set(range(self._partitions)).difference(*owned.values())
        lasting = orphans & self._before
        self._before = orphans
        if not lasting or self._slot != min(owned):
            return False
        self._note(sorted(lasting))
        self._view.nudge()
        self._before = set()
        return True

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.look()
            except ProcessorError:
                # Kafka does not answer: the loop itself will say so, and this looks again.
                self._before = set()
