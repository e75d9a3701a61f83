"""The loop: offsets, rebalances, unreadable records, parked calls, the end. In memory."""

import threading
from collections import deque
from collections.abc import Callable, Mapping

import pytest

from processor.codec.dead_letter_codes import Undecodable
from processor.core.errors import Misuse
from processor.core.outcomes import CallCompleted
from processor.executor import Happened, NotSent, ToolContext, ToolSet
from processor.executor.dispatch import Dispatcher
from processor.executor.ports import AllowAll, Silent, SystemClock
from processor.executor.reconcile import Reconciler
from processor.executor.runner import CallRunner, RunnerSettings
from processor.executor.served import serve
from processor.executor.source import Assigned, Delivered, Listener
from processor.executor.worker import Worker, WorkerSettings
from processor.ledger.memory import MemoryLedger
from tests.unit.executor.calls import completed_call

TOPIC = "toolcalls.completed.v1"


class MemorySource:
    """A topic of one partition; an action in the log is carried out when it is read."""

    def __init__(self, log: list[CallCompleted | Callable[[], None] | None]) -> None:
        self.log = [entry for entry in log if not callable(entry)]
        self._entries = deque(log)
        self._offset = 0
        self._joined = False
        self.commits: list[Mapping[int, int]] = []
        self.closed = False
        self.paused = False
        self.listener: Listener | None = None

    @property
    def topic(self) -> str:
        """See `CompletedSource`."""
        return TOPIC

    def subscribe(self, listener: Listener) -> None:
        """See `CompletedSource`."""
        self.listener = listener

    def poll(self, timeout_s: float) -> Delivered | None:
        """See `CompletedSource`."""
        assert self.listener is not None
        if not self._joined:
            self._joined = True
            self.listener.assigned([Assigned(0, 0, fresh=True)])
        if not self._entries or self.paused:
            threading.Event().wait(min(timeout_s, 0.001))
            return None
        entry = self._entries.popleft()
        if callable(entry):
            entry()
            return None
        self._offset += 1
        offset = self._offset - 1
        return Delivered(TOPIC, 0, offset, str(offset).encode(), None, {})

    def pause(self) -> None:
        """See `CompletedSource`."""
        self.paused = True

    def resume(self) -> None:
        """See `CompletedSource`."""
        self.paused = False

    def commit(self, next_offsets: Mapping[int, int]) -> bool:
        """See `CompletedSource`."""
        self.commits.append(dict(next_offsets))
        return True

    def close(self) -> None:
        """See `CompletedSource`."""
        self.closed = True


class MemoryRefetch:
    """Reads the same log again."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.fetched: list[int] = []
        self.closed = threading.Event()

    def fetch(self, partition: int, offset: int) -> Delivered | None:
        """See `Refetch`."""
        self.fetched.append(offset)
        return Delivered(TOPIC, partition, offset, str(offset).encode(), None, {})

    def close(self) -> None:
        """See `Refetch`."""
        self.closed.set()


class Bad(Silent):
    """Counts unreadable records."""

    def __init__(self) -> None:
        self.bad: list[tuple[int, str]] = []

    def bad_record(self, topic: str, partition: int, offset: int, code: str) -> None:
        """See `Observer`."""
        del topic, partition
        self.bad.append((offset, code))


class Rig:
    """A worker and everything around it."""

    def __init__(
        self,
        log: list[CallCompleted | Callable[[], None] | None],
        tools: ToolSet,
        *,
        threads: int = 4,
        in_flight_max: int = 8,
        in_flight_bytes_max: int = 1_000_000,
    ) -> None:
        clock = SystemClock()
        self.source = MemorySource(log)
        self.refetch = MemoryRefetch(self.source)
        self.observer = Bad()
        self.stop = threading.Event()
        self.ledger = MemoryLedger(lambda: 1000 * clock.monotonic_s())
        served = serve(tools)
        self.reconciler = Reconciler(
            self.ledger, served, clock=clock, observer=self.observer, first_s=0.01
        )
        self.passed: list[str] = []
        self.worker = Worker(
            source=self.source,
            refetch=self.refetch,
            ledger=self.ledger,
            runner=CallRunner(
                self.ledger,
                served,
                owner="slot-0/a",
                settings=RunnerSettings(),
                clock=clock,
                authoriser=AllowAll(),
                observer=self.observer,
            ),
            reconciler=self.reconciler,
            dispatcher=Dispatcher(
                threads=threads,
                per_tenant=threads,
                per_tool={},
                again_after_s=0.01,
                monotonic_s=clock.monotonic_s,
            ),
            tools=frozenset(served),
            decode=self._decode,
            clock=clock,
            observer=self.observer,
            settings=WorkerSettings(
                in_flight_max=in_flight_max,
                in_flight_bytes_max=in_flight_bytes_max,
                poll_s=0.01,
                commit_interval_s=0.01,
                care_interval_s=0.01,
                reconcile_interval_s=0.01,
                drain_s=30,
                idle_end_s=0.2,
            ),
            stop_requested=self.stop.is_set,
            crash_point=self.passed.append,
        )

    def _decode(self, key: bytes | None, value: bytes | None) -> CallCompleted:
        del value
        entry = self.source.log[int(key or b"0")]
        if entry is None:
            raise Undecodable("unknown_frame", "byte 0")
        return entry


def call(number: int, tool: str = "refund") -> CallCompleted:
    """A call whose time is that of the memory ledger: just after its beginning."""
    return completed_call(number=number, tool=tool, ended_at_ms=1)


def refunds(ran: list[str]) -> ToolSet:
    """A tool that notes its key."""
    tools = ToolSet()

    @tools.tool(effect_class="at_most_once")
    def refund(order: str, context: ToolContext) -> None:
        ran.append(context.idempotency_key)

    return tools


def test_every_call_runs_once_and_the_offsets_follow() -> None:
    """Repetitions, foreign tools and junk are passed over."""
    ran: list[str] = []
    log = [call(1), call(2), call(1), None, call(3, "somebody_elses"), call(3)]
    rig = Rig([*log], refunds(ran))
    rig.worker.run()
    assert sorted(ran) == ["req_1:call_1", "req_2:call_1", "req_3:call_1"]
    assert rig.observer.bad == [(3, "unknown_frame")]
    assert rig.source.commits[-1] == {0: 6}
    assert rig.source.closed
    assert rig.refetch.closed.is_set()
    assert "before_commit" in rig.passed


def test_a_slow_call_holds_back_the_offset_and_nothing_else() -> None:
    """Those behind it run; the offset waits for the first."""
    ran: list[str] = []
    release = threading.Event()
    tools = refunds(ran)

    @tools.tool(name="slow")
    def slow(order: str) -> None:
        release.wait(30)

    rig = Rig([call(1, "slow"), call(2), call(3)], tools)
    working = threading.Thread(target=rig.worker.run, daemon=True)
    working.start()
    until(lambda: len(ran) == 2)
    assert {0: 0} in rig.source.commits or rig.source.commits == []
    assert all(c == {0: 0} for c in rig.source.commits)
    release.set()
    working.join(30)
    assert rig.source.commits[-1] == {0: 3}


def until(true: Callable[[], bool]) -> None:
    """Ask until it is so."""
    tick = threading.Event()
    for _ in range(6000):
        if true():
            return
        tick.wait(0.005)
    raise AssertionError("it did not become true")


def test_a_call_given_back_is_read_again_from_its_place() -> None:
    """Its offset moved on; the ledger brings it back."""
    tries: list[int] = []
    tools = ToolSet()

    @tools.tool(name="refund")
    def refund(order: str, context: ToolContext) -> None:
        tries.append(context.fence)
        if len(tries) == 1:
            raise NotSent(retry_after_s=0.01)

    rig = Rig([call(1), call(2, "somebody_elses")], tools)
    rig.worker.run()
    assert len(tries) == 2
    assert rig.refetch.fetched == [0]
    assert rig.source.commits[-1] == {0: 2}
    view = rig.ledger.show("acme", "req_1:call_1")
    assert view is not None
    assert view.state == "succeeded"


def test_a_doubt_is_asked_about_until_the_other_side_answers() -> None:
    """By the same process, beside its other calls; the offset does not wait for it."""
    asked: list[str] = []
    ran: list[str] = []
    tools = refunds(ran)

    def lookup(context: ToolContext) -> Happened | None:
        asked.append(context.idempotency_key)
        return Happened("R-1") if len(asked) == 3 else None

    @tools.tool(name="pay", effect_class="reconcilable", reconcile=lookup)
    def pay(order: str) -> None:
        raise ConnectionError

    rig = Rig([call(1, "pay"), call(2)], tools)
    rig.worker.run()
    assert asked == ["req_1:call_1"] * 3
    assert ran == ["req_2:call_1"]
    assert rig.source.commits[-1] == {0: 2}
    view = rig.ledger.show("acme", "req_1:call_1")
    assert view is not None
    assert view.state == "succeeded"


@pytest.mark.parametrize("bound", [{"in_flight_max": 2}, {"in_flight_bytes_max": 40}])
def test_above_a_bound_nothing_is_read(bound: dict[str, int]) -> None:
    """Back pressure: the partitions are paused, and resumed when there is room."""
    gate = threading.Semaphore(0)
    tools = ToolSet()
    started: list[str] = []

    @tools.tool(name="refund")
    def refund(order: str, context: ToolContext) -> None:
        started.append(context.idempotency_key)
        gate.acquire(timeout=30)

    rig = Rig([call(n) for n in range(6)], tools, threads=1, **bound)
    working = threading.Thread(target=rig.worker.run, daemon=True)
    working.start()
    until(lambda: rig.source.paused and bool(started))
    assert len(started) == 1
    for _ in range(6):
        gate.release()
    working.join(30)
    assert len(started) == 6
    assert rig.source.commits[-1] == {0: 6}


def test_a_revoked_partition_is_committed_and_then_forgotten() -> None:
    """What ends afterwards belongs to the next owner's reading."""
    ran: list[str] = []
    release = threading.Event()
    tools = refunds(ran)

    @tools.tool(name="slow")
    def slow(order: str) -> None:
        release.wait(30)

    def revoke() -> None:
        until(lambda: rig.worker._progress.due() == {0: 1})
        assert rig.source.listener is not None
        rig.source.listener.revoked([0])
        release.set()

    rig = Rig([call(1), call(2, "slow"), revoke], tools)
    rig.worker.run()
    assert rig.source.commits[-1] == {0: 1}


def test_a_stop_request_lets_what_runs_end() -> None:
    """Then the offsets are stored and the group is left."""
    ran: list[str] = []
    tools = ToolSet()
    running = threading.Event()

    @tools.tool(name="refund")
    def refund(order: str, context: ToolContext) -> None:
        running.set()
        rig.stop.wait(30)
        ran.append(context.idempotency_key)

    rig = Rig([call(1)], tools)
    working = threading.Thread(target=rig.worker.run, daemon=True)
    working.start()
    assert running.wait(30)
    rig.stop.set()
    working.join(30)
    assert ran == ["req_1:call_1"]
    assert rig.source.commits[-1] == {0: 1}
    assert rig.source.closed


def test_a_refusal_of_the_ledger_ends_the_loop_and_keeps_the_offset() -> None:
    """A missing right is no reason to pass calls over."""
    rig = Rig([call(1)], refunds([]))

    def refuse(_: object) -> None:
        raise Misuse("no rights")

    rig.ledger.claim = refuse  # type: ignore[method-assign, assignment]  # a database without rights
    with pytest.raises(Misuse):
        rig.worker.run()
    assert all(c == {0: 0} for c in rig.source.commits)
    assert rig.source.closed
