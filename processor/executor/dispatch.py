"""Who runs now and who waits: bounded concurrency per process, per tenant and per tool.

Rules:
    A call that may not run yet waits here without a thread; calls behind it go first when they may.
    What waits is bounded by the caller, who asks `in_flight` and `bytes_in_flight` before reading more.
    Calls of one tenant and tool start in their order. Cost of a start: one look at each tenant and tool
    that waits, however many calls of it do.
    A delivery that has to be tried again waits for its time and goes on counting as in flight.
"""

import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping

from processor.core._record import record
from processor.executor.runner import Ran


@record
class Task:
    """One delivery to run; `done` is called once, from a worker's thread, when it is over."""

    tenant: str
    tool: str
    run: Callable[[], Ran]
    done: Callable[[Ran], None]
    size_bytes: int = 0


class Dispatcher:
    """Runs tasks on threads. Safe to use from several threads.

    `failure` is the first exception that left a task: a reason to end the process.
    """

    def __init__(
        self,
        *,
        threads: int,
        per_tenant: int,
        per_tool: Mapping[str, int],
        again_after_s: float,
        monotonic_s: Callable[[], float],
    ) -> None:
        self._threads = threads
        self._per_tenant = per_tenant
        self._per_tool = per_tool
        self._again_after_s = again_after_s
        self._monotonic_s = monotonic_s
        self._lock = threading.Condition()
        self._waiting: dict[tuple[str, str], deque[tuple[int, Task]]] = {}
        self._waiting_all = 0
        self._bytes = 0
        self._later: list[tuple[float, int, Task]] = []
        self._ticket = 0
        self._running: Counter[tuple[str, str]] = Counter()
        self._running_all = 0
        self._stopping = False
        self.failure: BaseException | None = None

    def submit(self, task: Task) -> None:
        """Run a task as soon as it may."""
        with self._lock:
            self._bytes += task.size_bytes
            self._wait(task)
            self._start_what_may()

    def in_flight(self) -> int:
        """Tasks that run or wait."""
        with self._lock:
            return self._running_all + self._waiting_all + len(self._later)

    def bytes_in_flight(self) -> int:
        """Sizes of the tasks that run or wait."""
        with self._lock:
            return self._bytes

    def running(self) -> int:
        """Tasks that run."""
        with self._lock:
            return self._running_all

    def tick(self) -> None:
        """Start what waited for its time; to be called now and then."""
        with self._lock:
            now_s = self._monotonic_s()
            while self._later and self._later[0][0] <= now_s:
                self._wait(heapq.heappop(self._later)[2])
            self._start_what_may()

    def drain(self, timeout_s: float) -> bool:
        """Start nothing more and wait for what runs; False when it did not end in time."""
        with self._lock:
            self._stopping = True
            self._waiting.clear()
            self._waiting_all = 0
            self._later.clear()
            return self._lock.wait_for(lambda: self._running_all == 0, timeout_s)

    def _wait(self, task: Task) -> None:
        if self._stopping:
            return
        self._ticket += 1
        line = self._waiting.setdefault((task.tool, task.tenant), deque())
        line.append((self._ticket, task))
        self._waiting_all += 1

    def _start_what_may(self) -> None:
        while self._running_all < self._threads:
            may = [(line[0][0], of) for of, line in self._waiting.items() if self._may_run(*of)]
            if not may:
                return
            of = min(may)[1]
            line = self._waiting[of]
            task = line.popleft()[1]
            if not line:
                del self._waiting[of]
            self._waiting_all -= 1
            self._count(task, 1)
            # Of its own and daemonic: a tool that never returns must not keep the process alive.
            threading.Thread(target=self._run, args=(task,), name="call", daemon=True).start()

    def _may_run(self, tool: str, tenant: str) -> bool:
        tool_max = self._per_tool.get(tool, self._threads)
        return (
            self._running["tool", tool] < tool_max
            and self._running["tenant", tenant] < self._per_tenant
        )

    def _count(self, task: Task, change: int) -> None:
        self._running_all += change
        for name in (("tool", task.tool), ("tenant", task.tenant)):
            self._running[name] += change
            if not self._running[name]:
                del self._running[name]

    def _run(self, task: Task) -> None:
        try:
            ran = task.run()
            if ran.disposition != "again":
                task.done(ran)
        except BaseException as e:  # noqa: BLE001 - kept for the loop, which ends the process by it
            ran = Ran("again", "failure")
            with self._lock:
                self.failure = self.failure or e
        with self._lock:
            self._count(task, -1)
            if ran.disposition == "again" and self.failure is None and not self._stopping:
                self._ticket += 1
                due_s = self._monotonic_s() + self._again_after_s
                heapq.heappush(self._later, (due_s, self._ticket, task))
            else:
                self._bytes -= task.size_bytes
            self._start_what_may()
            self._lock.notify_all()
