"""The watch over partitions without an owner, on a simulated thread and a simulated group."""

from collections.abc import Callable, Mapping

from processor.core.errors import ProcessorError
from processor.runtime.errors import Unreachable
from processor.runtime.ownership import WATCH_INTERVAL_S, OwnershipWatch
from processor.testing.consumer import SimulatedConsumer
from processor.testing.process import SimulatedProcess

#: How often the passing member looks for its assignment, and how long it waits each time.
_NUDGE_POLLS = 15
_POLL_S = 1.0


class SimulatedGroupView:
    """One group of the simulated cluster, seen from a process."""

    def __init__(self, process: SimulatedProcess, group: str, topic: str) -> None:
        self._process = process
        self._group = group
        self._topic = topic

    def owned(self) -> dict[str, set[int]] | None:
        """Partitions by slot; None while the group is not stable."""
        if not self._process.reachable:
            raise Unreachable("the group cannot be described")
        group = self._process.cluster.group(self._group)
        if group.state != "stable":
            return None
        return {
            member.joining.instance_id or member.member_id: set(member.assigned)
            for member in group.members.values()
        }

    def nudge(self) -> None:
        """Join as one more member, wait for the assignment, leave."""
        config: Mapping[str, object] = {
            "group.id": self._group,
            "session.timeout.ms": 12_000,
            "max.poll.interval.ms": 60_000,
        }
        consumer = SimulatedConsumer(self._process, config)
        assigned: list[object] = []
        consumer.subscribe([self._topic], on_assign=lambda _, given: assigned.append(given))
        for _ in range(_NUDGE_POLLS):
            consumer.poll(_POLL_S)
            if assigned:
                break
        consumer.close()


class SimulatedWatch(OwnershipWatch):
    """Looks every few simulated seconds."""

    def __init__(
        self,
        process: SimulatedProcess,
        view: SimulatedGroupView,
        slot: str,
        partitions: int,
        note: Callable[[list[int]], None],
    ) -> None:
        super().__init__(view, slot, partitions, note)
        self._process = process

    def start(self) -> None:
        """Start looking."""
        self._process.scheduler.spawn(self._process, self._look_again)

    def _look_again(self) -> None:
        while True:
            self._process.scheduler.wait(None, int(WATCH_INTERVAL_S * 1000))
            if self._stop.is_set():
                return
            try:
                self.look()
            except ProcessorError:
                self._before = set()
