"""Bounded concurrency: per process, per tenant, per tool."""

import threading
from collections.abc import Callable

from processor.executor.dispatch import Dispatcher, Task
from processor.executor.runner import Ran

DONE = Ran("settled", "succeeded")


class Bench:
    """Tasks that run until they are let go, and what ran at once."""

    def __init__(self, **limits: object) -> None:
        self.now_s = 0.0
        self.dispatcher = Dispatcher(
            threads=int(str(limits.get("threads", 4))),
            per_tenant=int(str(limits.get("per_tenant", 4))),
            per_tool={"refund": int(str(limits.get("per_tool", 4)))},
            again_after_s=1.0,
            monotonic_s=lambda: self.now_s,
        )
        self.changed = threading.Condition()
        self.running: list[str] = []
        self.ended: list[str] = []
        self._may_end: set[str] = set()

    def submit(self, name: str, tenant: str = "acme", tool: str = "refund") -> None:
        """A task that waits to be let go."""
        self.dispatcher.submit(Task(tenant, tool, lambda: self._run(name), lambda _: None))

    def _run(self, name: str) -> Ran:
        with self.changed:
            self.running.append(name)
            self.changed.notify_all()
            assert self.changed.wait_for(lambda: name in self._may_end, 30)
            self.running.remove(name)
            self.ended.append(name)
            self.changed.notify_all()
        return DONE

    def let_go(self, name: str) -> None:
        """End one task."""
        with self.changed:
            self._may_end.add(name)
            self.changed.notify_all()

    def wait(self, true: Callable[[], bool]) -> None:
        """Until it is so."""
        with self.changed:
            assert self.changed.wait_for(true, 30)

    def close(self) -> None:
        """End everything."""
        with self.changed:
            self._may_end.update(self.running)
            self.changed.notify_all()
        assert self.dispatcher.drain(30)


def test_a_full_tool_lets_other_tools_pass() -> None:
    """No thread waits for a tool that is full."""
    bench = Bench(per_tool=1)
    bench.submit("a")
    bench.submit("b")
    bench.submit("c", tool="notify")
    bench.wait(lambda: bench.running == ["a", "c"] or bench.running == ["c", "a"])
    assert bench.dispatcher.in_flight() == 3
    bench.let_go("a")
    bench.wait(lambda: "b" in bench.running)
    bench.close()


def test_a_busy_tenant_lets_other_tenants_pass() -> None:
    """One tenant cannot take all threads."""
    bench = Bench(per_tenant=1)
    bench.submit("a")
    bench.submit("b")
    bench.submit("c", tenant="globex")
    bench.wait(lambda: set(bench.running) == {"a", "c"})
    bench.let_go("a")
    bench.wait(lambda: set(bench.running) == {"b", "c"})
    bench.close()


def test_never_more_run_than_there_are_threads() -> None:
    """The rest waits, in order."""
    bench = Bench(threads=2, per_tenant=9, per_tool=9)
    for name in "abcd":
        bench.submit(name)
    bench.wait(lambda: set(bench.running) == {"a", "b"})
    bench.let_go("b")
    bench.wait(lambda: set(bench.running) == {"a", "c"})
    assert bench.dispatcher.in_flight() == 3
    bench.close()


def test_a_task_that_has_to_be_tried_again_waits_for_its_time() -> None:
    """It counts as in flight, and is done only when it is over."""
    bench = Bench()
    answers = [Ran("again", "transient"), DONE]
    told: list[Ran] = []
    ran = threading.Semaphore(0)

    def run() -> Ran:
        ran.release()
        return answers.pop(0)

    finished = threading.Event()

    def done(answer: Ran) -> None:
        told.append(answer)
        finished.set()

    bench.dispatcher.submit(Task("acme", "refund", run, done))
    assert ran.acquire(timeout=30)
    assert bench.dispatcher.in_flight() == 1
    while not finished.wait(0.01):
        bench.now_s += 1
        bench.dispatcher.tick()
    assert told == [DONE]
    bench.close()


def test_an_exception_is_kept_for_the_loop_and_the_delivery_is_not_done() -> None:
    """Its offset must not move."""
    bench = Bench()
    told: list[Ran] = []

    def fail() -> Ran:
        raise RuntimeError("a bug")

    bench.dispatcher.submit(Task("acme", "refund", fail, told.append))
    bench.close()
    assert isinstance(bench.dispatcher.failure, RuntimeError)
    assert told == []


def test_after_drain_nothing_starts() -> None:
    """What waits is dropped, what runs may end."""
    bench = Bench(threads=1)
    bench.submit("a")
    bench.submit("b")
    bench.wait(lambda: bench.running == ["a"])
    assert not bench.dispatcher.drain(0.0)
    bench.let_go("a")
    bench.wait(lambda: bench.ended == ["a"])
    bench.submit("c")
    assert bench.running == []


def test_a_long_queue_of_one_tool_lets_every_other_call_pass_and_keeps_its_order() -> None:
    """Thousands wait, and a call of another tool starts at once."""
    bench = Bench(threads=2, per_tool=1)
    names = [f"slow {number}" for number in range(3000)]
    for name in names:
        bench.submit(name)
    bench.submit("quick", tool="notify")
    bench.wait(lambda: set(bench.running) == {"slow 0", "quick"})
    assert bench.dispatcher.in_flight() == 3001
    bench.let_go("slow 0")
    bench.wait(lambda: "slow 1" in bench.running)
    bench.let_go("slow 1")
    bench.wait(lambda: "slow 2" in bench.running)
    bench.close()


def test_sizes_are_counted_until_a_task_is_over() -> None:
    """What waits to be tried again still takes memory."""
    bench = Bench()
    answers = [Ran("again", "transient"), DONE]
    over = threading.Event()
    task = Task("acme", "refund", lambda: answers.pop(0), lambda ran: over.set(), size_bytes=70)
    bench.dispatcher.submit(task)
    assert bench.dispatcher.bytes_in_flight() == 70
    while not over.wait(0.01):
        bench.now_s += 1
        bench.dispatcher.tick()
    bench.close()
    assert bench.dispatcher.bytes_in_flight() == 0
