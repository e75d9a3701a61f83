"""Strict alternation: of all simulated threads one runs at a time, and a schedule says which.

Rules:
    A thread gives the turn back only inside a client call; between two calls nobody else runs.
    Time passes only when every thread waits for it, and then up to the next thing that happens.
    A dead process gets its turn once more, to unwind; it reaches nothing any more.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from processor.testing.cluster import SimulatedCluster
from processor.testing.errors import Killed


class Turns(Protocol):
    """Who goes next. The answers make a run repeatable, so they come from its schedule."""

    def next_of(self, count: int) -> int:
        """Which of `count` threads that can run does."""
        ...

    def gives_turn(self) -> bool:
        """Whether the running thread lets others go first at this call."""
        ...

    def latency_ms(self) -> int:
        """How long a request takes to arrive at the broker."""
        ...


class Owner(Protocol):
    """The process of a thread."""

    @property
    def dead(self) -> bool:
        """True when it must unwind."""
        ...

    @property
    def frozen_until_ms(self) -> int:
        """Until when it stands still."""
        ...

    def resumed(self) -> None:
        """One of its threads gets the turn."""
        ...


class SimulatedThread:
    """One thread of a process, which waits for its turn."""

    def __init__(self, owner: Owner, body: Callable[[], None]) -> None:
        self.owner = owner
        self.body = body
        self.ready: Callable[[], bool] | None = None
        self.until_ms: int | None = 0
        self.turn = threading.Lock()
        self.turn.acquire()
        self.done = False

    def due_ms(self) -> int | None:
        """When it can run at the latest; None when only something that happens lets it."""
        until_ms = self.until_ms
        frozen_ms = self.owner.frozen_until_ms
        return None if until_ms is None else max(until_ms, frozen_ms)

    def can_run(self, now_ms: int) -> bool:
        """True when it may have the turn now."""
        if self.owner.dead:
            return True
        if self.owner.frozen_until_ms > now_ms:
            return False
        if self.until_ms is not None and self.until_ms <= now_ms:
            return True
        return self.ready is not None and self.ready()


class _Pool:
    """Threads that are used again: starting one costs more than a whole simulated call."""

    def __init__(self) -> None:
        self._idle: list[_PoolThread] = []

    def run(self, body: Callable[[], None]) -> None:
        worker = self._idle.pop() if self._idle else _PoolThread(self._idle)
        worker.run(body)


class _PoolThread:
    def __init__(self, idle: "list[_PoolThread]") -> None:
        self._idle = idle
        self._wake = threading.Lock()
        self._wake.acquire()
        self._body: Callable[[], None] | None = None
        threading.Thread(target=self._loop, name="simulated", daemon=True).start()

    def run(self, body: Callable[[], None]) -> None:
        self._body = body
        self._wake.release()

    def _loop(self) -> None:
        while True:
            self._wake.acquire()
            if self._body is not None:
                self._body()
            self._idle.append(self)


_POOL = _Pool()


class Scheduler:
    """Runs simulated threads against one cluster."""

    def __init__(self, cluster: SimulatedCluster, turns: Turns) -> None:
        self.cluster = cluster
        self.turns = turns
        self.current: SimulatedThread | None = None
        self.turns_count = 0
        self._threads: list[SimulatedThread] = []
        self._back = threading.Lock()
        self._back.acquire()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._timers_set = 0
        self._crash: BaseException | None = None

    def spawn(self, owner: Owner, body: Callable[[], None]) -> SimulatedThread:
        """Make a thread that can run from now on."""
        thread = SimulatedThread(owner, body)
        self._threads.append(thread)
        _POOL.run(lambda: self._live(thread))
        return thread

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something on the side of the world, not in a process, after some time."""
        self._timers_set += 1
        self._timers.append((self.cluster.now_ms + delay_ms, self._timers_set, action))

    def run(self, until: Callable[[], bool], limit_ms: int) -> bool:
        """Run until `until` holds; False when `limit_ms` of simulated time did not suffice."""
        end_ms = self.cluster.now_ms + limit_ms
        while not until():
            if self.cluster.now_ms >= end_ms:
                return False
            self._fire_timers()
            self.cluster.settle()
            thread = self._chosen()
            if thread is not None:
                self._give(thread)
            else:
                self._pass_time(end_ms)
        return True

    def unwind(self) -> None:
        """Give every dead thread its last turn."""
        while any(t.owner.dead for t in self._threads):
            self._give(next(t for t in self._threads if t.owner.dead))

    def wait(self, ready: Callable[[], bool] | None, timeout_ms: int | None) -> bool:
        """Called by the running thread: let others run. Raises: `Killed` when it must unwind."""
        thread = self.current
        if thread is None or thread.owner.dead:
            raise Killed
        thread.ready = ready
        thread.until_ms = None if timeout_ms is None else self.cluster.now_ms + timeout_ms
        self._back.release()
        thread.turn.acquire()
        if thread.owner.dead:
            raise Killed
        return ready is None or ready()

    def give_turn(self) -> None:
        """Called by the running thread at a client call: let others go first, or not."""
        if len(self._threads) > 1 and self.turns.gives_turn():
            self.wait(None, 0)

    def _live(self, thread: SimulatedThread) -> None:
        thread.turn.acquire()
        try:
            if not thread.owner.dead:
                thread.body()
        except Killed:
            pass
        except BaseException as e:  # noqa: BLE001 - a bug in a body ends the run, in its own thread
            self._crash = e
        thread.done = True
        self._threads.remove(thread)
        self._back.release()

    def _give(self, thread: SimulatedThread) -> None:
        self.turns_count += 1
        self.current = thread
        thread.owner.resumed()
        thread.turn.release()
        self._back.acquire()
        self.current = None
        crash, self._crash = self._crash, None
        if crash is not None:
            raise crash

    def _chosen(self) -> SimulatedThread | None:
        now_ms = self.cluster.now_ms
        able = [t for t in self._threads if t.can_run(now_ms)]
        if not able:
            return None
        return able[0] if len(able) == 1 else able[self.turns.next_of(len(able))]

    def _fire_timers(self) -> None:
        while self._timers and min(self._timers)[0] <= self.cluster.now_ms:
            first = min(self._timers)
            self._timers.remove(first)
            first[2]()

    def _pass_time(self, end_ms: int) -> None:
        cluster = self.cluster
        due = [d for t in self._threads if (d := t.due_ms()) is not None]
        due += [when for when, _, _ in self._timers]
        due.append(end_ms)
        broker_ms = cluster.next_due_ms()
        if broker_ms is not None:
            due.append(broker_ms)
        cluster.advance_to(max(cluster.now_ms + 1, min(due)))
