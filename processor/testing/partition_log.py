"""The checkpoint topic of a simulated cluster, read behind the same barrier as the real one."""

from collections.abc import Iterable
from typing import Final

from processor.runtime.errors import RestoreRefused
from processor.testing.host import Host

_BARRIER_MS: Final = 30_000


class SimulatedPartitionLog:
    """A `PartitionLog` on a simulated topic."""

    def __init__(self, host: Host, topic: str) -> None:
        self._host = host
        self._topic = topic

    def read(self, partition: int) -> Iterable[tuple[bytes | None, bytes | None]]:
        """Key and value of every committed record up to the end as it is now.

        Raises: `RestoreRefused` when a transaction stays open for too long.
        """
        log = self._host.cluster.log(self._topic, partition)
        end = self._host.request("checkpoints_end", lambda: log.end_offset, _BARRIER_MS)
        if not self._host.wait(lambda: log.stable_offset >= end, _BARRIER_MS):
            raise RestoreRefused(f"checkpoints_not_stable: {self._topic}[{partition}]")
        found = log.read(log.start_offset, committed=True)
        return [(message.key(), message.value()) for message in found]
