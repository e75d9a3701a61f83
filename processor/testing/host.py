"""The process in which simulated clients run: every call of a client passes through it.

Rules:
    A fault belongs to the n-th call of one name in one process, so a schedule can be read.
    A call that reached the broker may still fail for its caller, and the other way round.
"""

from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

from processor.core._record import record
from processor.testing.cluster import SimulatedCluster
from processor.testing.errors import Blocked, timed_out

T = TypeVar("T")

FaultKind = Literal[
    "kill_before",  # the process dies; the request never left it
    "kill_after",  # the process dies; the request took effect
    "kill_in_flight",  # the process dies; the request arrives later
    "fail_before",  # no answer in time; the request did not arrive
    "fail_after",  # no answer in time; the request took effect
    "fail_in_flight",  # no answer in time; the request arrives later
    "refuse",  # the broker refuses; a transaction must be aborted
    "freeze_before",  # the process stands still, then makes the request
    "freeze_after",  # the request took effect, then the process stands still
    "slow",  # the answer takes long
    "hang",  # the call never returns
    "cut",  # the process does not reach the cluster for a while
]


@record
class Fault:
    """What happens at one call, and for how long."""

    kind: FaultKind
    duration_ms: int = 0
    #: After standing still, how often the application goes on before the client's own thread does.
    grace: int = 0


class Host(Protocol):
    """Where a client runs."""

    @property
    def cluster(self) -> SimulatedCluster:
        """What its clients talk to."""
        ...

    @property
    def reachable(self) -> bool:
        """True while its clients' own threads run and reach the cluster."""
        ...

    @property
    def running(self) -> bool:
        """True while its clients' own threads run, reached or not."""
        ...

    def request(
        self, call: str, effect: Callable[[], T], timeout_ms: int = 0, *, remote: bool = True
    ) -> T:
        """Make one call; `effect` is what it does where it arrives."""
        ...

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Let others go on until `ready` or the limit; returns whether it is."""
        ...


class SoloHost:
    """A process alone with its cluster, without faults: time passes only while it waits."""

    reachable = True
    running = True

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    @property
    def cluster(self) -> SimulatedCluster:
        """What its clients talk to."""
        return self._cluster

    def request(
        self, call: str, effect: Callable[[], T], timeout_ms: int = 0, *, remote: bool = True
    ) -> T:
        """Make one call, waiting for the broker as long as the call's limit allows."""
        del call, remote
        return patiently(effect, timeout_ms, self.wait, lambda: self._cluster.now_ms)

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Let time pass."""
        return self._cluster.wait(ready, timeout_ms)


def patiently(
    effect: Callable[[], T],
    timeout_ms: int,
    wait: Callable[[Callable[[], bool], int], bool],
    now_ms: Callable[[], int],
) -> T:
    """`effect`, made again while the broker cannot answer. Raises: `KafkaException` timed out."""
    until_ms = now_ms() + timeout_ms
    while True:
        try:
            return effect()
        except Blocked as e:
            if not wait(e.ready, until_ms - now_ms()):
                raise timed_out() from e
