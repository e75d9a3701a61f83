"""A simulated process: threads that die together, calls that faults happen to, and its clocks."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from processor.runtime.kafka import KafkaError, KafkaException
from processor.testing.cluster import SimulatedCluster
from processor.testing.errors import Blocked, Killed, refused, timed_out
from processor.testing.host import Fault, patiently
from processor.testing.scheduler import Scheduler

T = TypeVar("T")
_HANG_MS = 24 * 3600 * 1000


class FaultPlan(Protocol):
    """What happens to whom at which call."""

    def at(self, process: str, call: str) -> Fault | None:
        """The fault of this passage of `call`, which is counted by being asked."""
        ...


class SimulatedProcess:
    """One life of one process. `ended` says how it went; None while it lives or when killed."""

    def __init__(self, name: str, scheduler: Scheduler, plan: FaultPlan) -> None:
        self.name = name
        self.scheduler = scheduler
        self._plan = plan
        self.dead = False
        self.frozen_until_ms = 0
        self.stopping = False
        #: Stood still or lost the network at least once, so others may have gone on without it.
        self.was_away = False
        self.ended: BaseException | str | None = None
        self._cut_until_ms = 0
        self._grace = 0

    @property
    def cluster(self) -> SimulatedCluster:
        """What its clients talk to."""
        return self.scheduler.cluster

    @property
    def running(self) -> bool:
        """True while its clients' own threads run, reached or not."""
        frozen = self.frozen_until_ms > self.cluster.now_ms
        return not (self.dead or frozen or self._grace)

    @property
    def reachable(self) -> bool:
        """True while its clients' own threads run and reach the cluster."""
        return self.running and self._cut_until_ms <= self.cluster.now_ms

    @property
    def is_away(self) -> bool:
        """True while it stands still or has no network."""
        return max(self.frozen_until_ms, self._cut_until_ms) > self.cluster.now_ms

    def seconds(self) -> float:
        """The monotonic clock of its machine."""
        return self.cluster.now_ms / 1000

    def start(self, main: Callable[[], None]) -> None:
        """Run `main`; when it returns or raises the whole process is over."""

        def body() -> None:
            try:
                main()
                self._end("stopped")
            except Killed:
                self._end(None)
                raise
            except Exception as e:  # noqa: BLE001 - how a process ends is judged by the schedule
                self._end(e)

        self.scheduler.spawn(self, body)

    def _end(self, how: Exception | str | None) -> None:
        if self.ended is None:
            self.ended = how
        self.dead = True

    def kill(self) -> None:
        """SIGKILL."""
        self.dead = True

    def thaw(self) -> None:
        """SIGCONT, and the network is back."""
        now_ms = self.cluster.now_ms
        self.frozen_until_ms = min(self.frozen_until_ms, now_ms)
        self._cut_until_ms = min(self._cut_until_ms, now_ms)
        self._grace = 0

    def freeze(self, duration_ms: int, grace: int = 0) -> None:
        """SIGSTOP for a while; afterwards the application is `grace` turns ahead of its clients."""
        self.frozen_until_ms = self.cluster.now_ms + duration_ms
        self._grace = grace
        self.was_away = True

    def cut(self, duration_ms: int) -> None:
        """Lose the network for a while."""
        self._cut_until_ms = self.cluster.now_ms + duration_ms
        self.was_away = True

    def resumed(self) -> None:
        """One of its threads gets the turn."""
        if self._grace:
            self._grace -= 1

    # --- calls ---------------------------------------------------------------------------------

    def request(
        self, call: str, effect: Callable[[], T], timeout_ms: int = 0, *, remote: bool = True
    ) -> T:
        """Make one call of a client, with what the plan has for it."""
        if self.dead:
            raise Killed
        self.scheduler.give_turn()
        fault = self._plan.at(self.name, call)
        if fault is not None:
            self._before(fault, effect)
        until_ms = self.cluster.now_ms + timeout_ms
        if remote:
            self._travel(timeout_ms)
        found = patiently(
            effect,
            until_ms - self.cluster.now_ms,
            self.wait,
            lambda: self.cluster.now_ms,
        )
        if fault is not None:
            self._after(fault)
        return found

    def _travel(self, timeout_ms: int) -> None:
        latency_ms = self.scheduler.turns.latency_ms()
        if latency_ms:
            self.scheduler.wait(None, min(latency_ms, timeout_ms))
        if not self.wait(self._has_answer, timeout_ms):
            raise timed_out()

    def _has_answer(self) -> bool:
        cut = self._cut_until_ms > self.cluster.now_ms
        return not (cut or self.cluster.coordinators_away)

    def point(self, name: str) -> None:
        """A place in the code where the plan may have something."""
        self.request(name, lambda: None, remote=False)

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Let others go on until `ready` or the limit; returns whether it is."""
        if ready():
            return True
        return self.scheduler.wait(ready, max(0, timeout_ms))

    def _before(self, fault: Fault, effect: Callable[[], object]) -> None:
        kind = fault.kind
        if kind == "freeze_before":
            self.freeze(fault.duration_ms, fault.grace)
            self.scheduler.wait(None, 0)
        elif kind == "slow":
            self.scheduler.wait(None, fault.duration_ms)
        elif kind == "hang":
            self.scheduler.wait(None, _HANG_MS)
        elif kind == "cut":
            self.cut(fault.duration_ms)
        elif kind == "fail_before":
            raise timed_out()
        elif kind == "refuse":
            raise refused(KafkaError.TRANSACTION_ABORTABLE, "refused", abort=True)
        elif kind == "kill_before":
            self._die()
        elif kind in ("kill_in_flight", "fail_in_flight"):
            self.scheduler.after(fault.duration_ms, lambda: arrive_late(effect))
            if kind == "kill_in_flight":
                self._die()
            raise timed_out()

    def _after(self, fault: Fault) -> None:
        if fault.kind == "kill_after":
            self._die()
        if fault.kind == "fail_after":
            raise timed_out()
        if fault.kind == "freeze_after":
            self.freeze(fault.duration_ms, fault.grace)
            self.scheduler.wait(None, 0)

    def _die(self) -> None:
        self.kill()
        raise Killed


def arrive_late(effect: Callable[[], object]) -> None:
    """A request whose sender does not wait any more: nobody hears what it comes to."""
    try:
        effect()
    except (KafkaException, Blocked):
        return
