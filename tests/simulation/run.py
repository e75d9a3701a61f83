"""Runs one schedule: publishers, processes under a supervisor, faults, and at the end the oracle.

Rules:
    After the last step the world is kind: no faults, everybody thawed, and the processes must reach
    the end of the events topic by themselves.
    A process may end by its own errors only, and by none that says it refused a sound position.
"""

import random
from collections import Counter
from functools import partial

from processor.core._record import record
from processor.core.errors import ProcessorError
from processor.runtime.errors import (
    ClientFatal,
    CommitRefused,
    CommitUnknown,
    RestoreRefused,
    SlotFenced,
    Unreachable,
)
from processor.runtime.offset_metadata import decode_metadata
from processor.runtime.partitioner import partition_of
from processor.testing import (
    Fault,
    NewRecord,
    Scheduler,
    SimulatedCluster,
    SimulatedProcess,
)
from tests.simulation.assembler import CHECKPOINTS, EVENTS, GROUP, OUTPUTS, Parts
from tests.simulation.oracle import judge
from tests.simulation.schedule import FaultStep, Schedule, WorldStep, WriteStep

#: How processes end when the world is unkind; each is restarted by its supervisor.
EXPECTED = (ClientFatal, CommitRefused, CommitUnknown, SlotFenced, Unreachable)
#: Simulated time within which a kind world must see the end of the topic.
CALM_MS = 400_000
OFFLINE_MS = 15_000
AWAY_MS = 5_000


@record
class Result:
    """How a run went: `failure` None is well. The counters say what it has seen."""

    failure: str | None
    fired: Counter[str]
    endings: Counter[str]
    turns: int
    simulated_ms: int


class DrawnTurns:
    """Who goes next, by chance from a seed; in order for seed 0."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed) if seed else None
        self._last = 0
        # How mixed a run is, drawn once: from long stretches of one thread to constant change.
        self._gives = self._rng.choice((0.05, 0.3, 0.7)) if self._rng else 0.0
        self._late = self._rng.choice((0.0, 0.0, 0.3)) if self._rng else 0.0
        self._small = self._rng.choice((0.0, 0.5, 1.0)) if self._rng else 0.0
        self._latency_ms = self._rng.choice((0, 2, 25)) if self._rng else 0

    def next_of(self, count: int) -> int:
        """Which of `count` threads goes on."""
        if self._rng is not None:
            return int(self._rng.random() * count)
        self._last += 1
        return self._last % count

    def gives_turn(self) -> bool:
        """Whether others go first."""
        return self._rng is not None and self._rng.random() < self._gives

    def latency_ms(self) -> int:
        """How long a request travels."""
        if self._rng is None or not self._latency_ms:
            return 0
        return int(self._rng.random() * 2 * self._latency_ms)

    def delay_ms(self) -> int:
        """How late a control record is."""
        if self._rng is None or self._rng.random() >= self._late:
            return 0
        return self._rng.choice((1, 10, 400))

    def batch(self, size: int) -> int:
        """How many records one `consume` brings."""
        if self._rng is None or self._rng.random() >= self._small:
            return size
        return self._rng.choice((1, 2, 3, 7))


class ScheduledFaults:
    """The fault plan of a schedule; counts the passages of every call by slot."""

    def __init__(self, steps: list[FaultStep]) -> None:
        self._by_call: dict[tuple[str, str], list[FaultStep]] = {}
        for step in steps:
            self._by_call.setdefault((step.slot, step.call), []).append(step)
        self._passages: Counter[tuple[str, str]] = Counter()
        self.fired: Counter[str] = Counter()
        self.over = False

    def at(self, process: str, call: str) -> Fault | None:
        """The fault of this passage."""
        place = (process, call)
        steps = self._by_call.get(place)
        if steps is None or self.over:
            return None
        self._passages[place] += 1
        passage = self._passages[place]
        for step in steps:
            if step.nth <= passage < step.nth + step.times:
                self.fired[step.fault.kind] += 1
                return step.fault
        return None


class Simulation:
    """One run of one schedule with processes made of `parts`."""

    def __init__(self, schedule: Schedule, parts: Parts) -> None:
        self._schedule = schedule
        self._parts = parts
        self._turns = DrawnTurns(schedule.turns)
        self.cluster = SimulatedCluster()
        self.cluster.transactions.delay_ms = self._turns.delay_ms
        self.cluster.create_topic(EVENTS, schedule.partitions, log_append_time=True)
        for name in (OUTPUTS.completed, OUTPUTS.rejected, OUTPUTS.dead_letter):
            self.cluster.create_topic(name, schedule.partitions)
        self.cluster.create_topic(CHECKPOINTS, schedule.partitions, compacted=True)
        self._scheduler = Scheduler(self.cluster, self._turns)
        self._faults = ScheduledFaults([s for s in schedule.steps if isinstance(s, FaultStep)])
        self._processes: list[SimulatedProcess] = []
        self._wanted: set[str] = set()
        self._steps_left = 0
        self._upstream = 0
        self.endings: Counter[str] = Counter()
        self._failure: str | None = None

    def run(self) -> Result:
        """Run to the end and judge."""
        for step in self._schedule.steps:
            if not isinstance(step, FaultStep):
                self._steps_left += 1
                self._scheduler.after(step.at_ms, partial(self._do, step))
        start_ms = self.cluster.now_ms
        self._wanted.add("0")
        self._start("0")
        self._scheduler.run(lambda: self._failed() or self._is_idle(), CALM_MS)
        failure = self._failure or self._calm()
        for process in self._processes:
            process.kill()
        self._scheduler.unwind()
        return Result(
            failure,
            self._faults.fired,
            self.endings,
            self._scheduler.turns_count,
            self.cluster.now_ms - start_ms,
        )

    # --- the world -----------------------------------------------------------------------------

    def _do(self, step: WorldStep | WriteStep) -> None:
        self._steps_left -= 1
        if isinstance(step, WriteStep):
            self._write(step)
        elif step.kind == "retention":
            self._retain()
        elif step.kind == "compact":
            self.cluster.compact()
        elif step.kind == "away":
            self.cluster.send_coordinators_away(AWAY_MS)
        elif step.kind == "start":
            self._wanted.add(step.slot)
            self._start(step.slot)
        elif step.kind == "twin":
            if step.slot in self._wanted:
                self._start(step.slot)
        else:
            for process in self._lives(step.slot):
                self._disturb(process, step)

    def _disturb(self, process: SimulatedProcess, step: WorldStep) -> None:
        if step.kind == "stop":
            process.stopping = True
        elif step.kind == "kill":
            process.kill()
        else:
            process.cut(OFFLINE_MS)

    def _lives(self, slot: str) -> list[SimulatedProcess]:
        return [p for p in self._processes if p.name == slot and not p.dead]

    def _write(self, step: WriteStep) -> None:
        """A publisher of its own; its aborted records are written again afterwards."""
        logs = self.cluster.topics[EVENTS].logs
        transaction = None
        if step.ending is not None:
            self._upstream -= 1
            transaction = self._upstream
        for line in step.lines:
            log = logs[partition_of(line.key, len(logs))]
            log.append(NewRecord(line.key, line.value), self.cluster.now_ms, transaction)
        if transaction is not None:
            for log in logs:
                if transaction in log.open_transactions:
                    committed = step.ending == "commit"
                    log.end_transaction(transaction, self.cluster.now_ms, committed=committed)
        if step.ending == "abort":
            for line in step.lines:
                log = logs[partition_of(line.key, len(logs))]
                log.append(NewRecord(line.key, line.value), self.cluster.now_ms)

    def _retain(self) -> None:
        """Retention takes what no restart needs any more."""
        for (_, partition), committed in self.cluster.group(GROUP).offsets.items():
            low = decode_metadata(committed.metadata).low
            self.cluster.log(EVENTS, partition).delete_before(low)

    # --- processes -----------------------------------------------------------------------------

    def _start(self, slot: str) -> None:
        process = SimulatedProcess(slot, self._scheduler, self._faults)
        self._processes.append(process)
        skew_ms = self._schedule.skew_ms.get(slot, 0)

        def main() -> None:
            worker = self._parts.worker(process, skew_ms=skew_ms, batch=self._turns.batch)
            worker.run(lambda: process.stopping)

        process.start(main)

    def _supervise(self) -> None:
        """Note how processes ended, and start the next life of a slot that has none."""
        for process in [p for p in self._processes if p.dead]:
            self._processes.remove(process)
            self._note(process)
            slot = process.name
            if slot in self._wanted and not any(p.name == slot for p in self._processes):
                self._steps_left += 1
                self._scheduler.after(self._schedule.restart_ms, partial(self._restart, slot))

    def _restart(self, slot: str) -> None:
        self._steps_left -= 1
        if slot in self._wanted and not self._lives(slot):
            self._start(slot)

    def _note(self, process: SimulatedProcess) -> None:
        ended = process.ended
        if ended is None:
            self.endings["killed"] += 1
        elif isinstance(ended, str):
            self.endings[ended] += 1
        elif isinstance(ended, ProcessorError) and _is_expected(ended, process):
            self.endings[ended.code] += 1
        else:
            self._failure = f"slot {process.name} ended with {type(ended).__name__}: {ended}"

    def _failed(self) -> bool:
        self._supervise()
        return self._failure is not None

    def _is_idle(self) -> bool:
        """True when nothing is planned any more and nobody is away; who is, comes back by itself."""
        return self._steps_left == 0 and not any(p.is_away for p in self._processes)

    # --- the end -------------------------------------------------------------------------------

    def _calm(self) -> str | None:
        self._faults.over = True
        for process in self._processes:
            process.thaw()
        if not self._scheduler.run(lambda: self._failed() or self._at_end(), CALM_MS):
            return "stuck: the group does not reach the end of the events topic"
        if self._failure is None:
            self._wanted.clear()
            for process in self._processes:
                process.stopping = True
            if not self._scheduler.run(lambda: self._failed() or not self._processes, CALM_MS):
                return "stuck: a process does not stop"
            self._scheduler.run(lambda: not self.cluster.transactions.open_count, CALM_MS)
        return self._failure or judge(self.cluster)

    def _at_end(self) -> bool:
        if self._steps_left or not self._processes:
            return False
        offsets = self.cluster.group(GROUP).offsets
        for log in self.cluster.topics[EVENTS].logs:
            committed = offsets.get((EVENTS, log.partition))
            if committed is None or next(log.read(committed.offset, committed=True), None):
                return False
        return not self.cluster.transactions.open_count


def _is_expected(error: ProcessorError, process: SimulatedProcess) -> bool:
    """False for a refused position, and for a bug of ours that hides behind a client's error."""
    if isinstance(error, RestoreRefused):
        # Others went on while it stood still: their checkpoints are ahead of what it has read, and
        # retention took what they needed no more.
        codes = ("offset_out_of_range", "checkpoint_ahead")
        return process.was_away and str(error).startswith(codes)
    return isinstance(error, EXPECTED) and "failed: " not in str(error)


def simulate(schedule: Schedule, parts: Parts | None = None) -> Result:
    """Run one schedule."""
    return Simulation(schedule, parts or Parts()).run()
