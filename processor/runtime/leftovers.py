"""Waits until no transaction of an earlier life is open on the outputs, before the first commit.

Rules:
    Once a producer is fenced, its transaction has ended. A broker can get that wrong: started again
    while a partition has no leader at all (all its replicas were down), it takes the partition for
    deleted, writes no marker there, and calls the transaction aborted (Apache Kafka 4.4,
    TransactionMarkerChannelManager: "likely deleted already and hence can be skipped").
    Such records stay open, and the marker of our next transaction would commit them: calls that were
    aborted would come out, and once more when they are folded again.
    So what is open now must end by itself first: another slot's does, within its time limit. What
    does not is refused by name; a person decides, since nobody here can know how it was to end.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from processor.runtime.errors import RestoreRefused

#: The broker looks for transactions beyond their time limit every 10 s by default.
BROKER_SCAN_S: Final = 12.0
_LOOK_S: Final = 0.05


class Place(NamedTuple):
    """One partition of an output topic."""

    topic: str
    partition: int


class StableEnds(Protocol):
    """Where the transactions of some topics are open."""

    def open_at(self, places: Iterable[Place] | None = None) -> dict[Place, int]:
        """The last stable offset of each partition with an open transaction; of all, or `places`.

        Raises: a runtime error when that cannot be asked.
        """
        ...


class Leftovers:
    """One wait, at the start of a process. `wait_s` seconds are the time limit of a transaction."""

    def __init__(self, ends: StableEnds, clock: Callable[[], float], *, wait_s: float) -> None:
        self._ends = ends
        self._clock = clock
        self._wait_s = wait_s + BROKER_SCAN_S
        self._pause = threading.Event()

    def await_ended(self) -> None:
        """Return when everything that is open now has ended. Cost: two questions a partition.

        Raises: `RestoreRefused` naming what stays open; a runtime error when nobody answers.
        """
        deadline_s = self._clock() + self._wait_s
        left = self._ends.open_at()
        while left:
            if self._clock() > deadline_s:
                raise self._hanging(left)
            self._pause.wait(_LOOK_S)
            now = self._ends.open_at(left)
            left = {place: at for place, at in left.items() if now.get(place) == at}

    def _hanging(self, left: dict[Place, int]) -> RestoreRefused:
        where = ", ".join(f"{p.topic}[{p.partition}] at offset {at}" for p, at in left.items())
        return RestoreRefused(
            f"hanging_transaction: {where}: a transaction has stayed open for {self._wait_s:.0f} s,"
            " longer than any of ours may. The next commit could make its records count. Look at it"
            " with `kafka-transactions.sh find-hanging`, abort it, then start again and run"
            " `toolcalls verify`"
        )
