"""The executor's loop: read completed calls, run them, move the offsets.

Rules:
    Offsets move only over settled, parked and skipped calls; one slow call holds back its partition's
    offset and nothing else.
    A record that cannot be read is named, counted and passed over: the completed topic is written by
    the assembler alone, so this is a fault to look at and not a reason to stop all other calls.
    Parked calls come back through the ledger: what is ready is read again from its place on the topic.
    After a stop request nothing new starts; what runs may end within the drain time. What does not is
    left to its lease.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from processor.codec.dead_letter_codes import Undecodable
from processor.core._record import record
from processor.core.errors import Indeterminate, Transient
from processor.core.outcomes import CallCompleted
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.dispatch import Dispatcher, Task
from processor.executor.ports import Clock, Observer
from processor.executor.reconcile import Reconciler
from processor.executor.runner import CallRunner, Ran
from processor.executor.source import (
    Assigned,
    CompletedSource,
    Delivered,
    Listener,
    Progress,
    Refetch,
)
from processor.ledger.port import Ledger, Source

#: The longest that one question of the care for waiting calls takes.
_CARE_END_S: Final = 15.0

Decode = Callable[[bytes | None, bytes | None], CallCompleted]


@record
class WorkerSettings:
    """Bounds of one process. Seconds.

    `in_flight_max` and `in_flight_bytes_max` (of arguments) bound the deliveries in memory: above them
    nothing is read. They are large, so that a tool with a long queue does not hold up the others.
    `idle_end_s` ends the loop after so long without any work; None means never.
    """

    in_flight_max: int = 4096
    in_flight_bytes_max: int = 64 * 1024 * 1024
    poll_s: float = 0.1
    commit_interval_s: float = 0.5
    care_interval_s: float = 1.0
    reconcile_interval_s: float = 2.0
    redrive_limit: int = 32
    redrive_hold_s: float = 30.0
    drain_s: float = 30.0
    idle_end_s: float | None = None


class Worker:
    """One process of the executor group. `run` ends on a stop request, on idleness or by an error."""

    def __init__(
        self,
        *,
        source: CompletedSource,
        refetch: Refetch,
        ledger: Ledger,
        runner: CallRunner,
        dispatcher: Dispatcher,
        tools: frozenset[str],
        decode: Decode,
        clock: Clock,
        observer: Observer,
        settings: WorkerSettings,
        stop_requested: Callable[[], bool],
        reconciler: Reconciler | None = None,
        crash_point: CrashPoint = never_crash,
    ) -> None:
        self._source = source
        self._refetch = refetch
        self._ledger = ledger
        self._runner = runner
        self._reconciler = reconciler
        self._next_reconcile_s = clock.monotonic_s()
        self._dispatcher = dispatcher
        self._tools = sorted(tools)
        self._decode = decode
        self._clock = clock
        self._observer = observer
        self._settings = settings
        self._stop_requested = stop_requested
        self._crash_point = crash_point
        self._progress = Progress()
        self._progress_lock = threading.Lock()
        self._assignments: dict[int, int] = {}
        self._care_ended = threading.Event()
        self._care_failure: BaseException | None = None
        self._joined = False
        self._last_work_s = clock.monotonic_s()

    def run(self) -> None:
        """Work until told to stop.

        Raises: an error of `executor.errors`, `Misuse` or `InvariantViolated`; the process must end.
        """
        self._source.subscribe(
            Listener(assigned=self._assigned, revoked=self._revoked, lost=self._lost)
        )
        care = threading.Thread(target=self._care, name="care", daemon=True)
        care.start()
        try:
            self._loop()
        finally:
            self._care_ended.set()
            if not self._dispatcher.drain(self._settings.drain_s):
                self._observer.left_running(self._dispatcher.running())
            care.join(_CARE_END_S)
            try:
                self._commit()
            finally:
                self._source.close()

    def _loop(self) -> None:
        paused = False
        next_commit_s = self._clock.monotonic_s() + self._settings.commit_interval_s
        while not self._stop_requested() and not self._idle_for_too_long():
            self._raise_failures()
            full = self._is_full()
            if full or paused:
                # A rebalance hands out partitions that are not paused, so this is said each time.
                (self._source.pause if full else self._source.resume)()
                paused = full
            delivered = self._source.poll(self._settings.poll_s)
            if delivered is not None:
                self._take(delivered)
            self._dispatcher.tick()
            if self._clock.monotonic_s() >= next_commit_s:
                self._commit()
                next_commit_s = self._clock.monotonic_s() + self._settings.commit_interval_s

    def _is_full(self) -> bool:
        return (
            self._dispatcher.in_flight() >= self._settings.in_flight_max
            or self._dispatcher.bytes_in_flight() >= self._settings.in_flight_bytes_max
        )

    def _raise_failures(self) -> None:
        for failure in (self._dispatcher.failure, self._care_failure):
            if failure is not None:
                raise failure

    def _idle_for_too_long(self) -> bool:
        now_s = self._clock.monotonic_s()
        if self._dispatcher.in_flight() or not self._joined:
            # A group takes seconds to form; that is no idleness.
            self._last_work_s = now_s
        limit_s = self._settings.idle_end_s
        return limit_s is not None and now_s - self._last_work_s > limit_s

    # --- deliveries

    def _take(self, delivered: Delivered) -> None:
        self._last_work_s = self._clock.monotonic_s()
        call = self._read(delivered)
        if call is None:
            return
        partition, offset = delivered.partition, delivered.offset
        with self._progress_lock:
            self._progress.start(partition, offset)
            taken_under = self._assignments.get(partition)

        def done(ran: Ran) -> None:
            if ran.disposition == "skipped":
                self._observer.skipped(call.key, call.tool)
            with self._progress_lock:
                if self._assignments.get(partition) == taken_under:
                    self._progress.finish(partition, offset)

        self._submit(delivered, call, done)

    def _read(self, delivered: Delivered) -> CallCompleted | None:
        try:
            return self._decode(delivered.key, delivered.value)
        except Undecodable as e:
            self._observer.bad_record(
                delivered.topic, delivered.partition, delivered.offset, e.code
            )
        with self._progress_lock:
            self._progress.start(delivered.partition, delivered.offset)
            self._progress.finish(delivered.partition, delivered.offset)
        return None

    def _submit(
        self, delivered: Delivered, call: CallCompleted, done: Callable[[Ran], None]
    ) -> None:
        source = Source(delivered.topic, delivered.partition, delivered.offset)
        self._dispatcher.submit(
            Task(
                tenant=call.key.tenant,
                tool=call.tool,
                run=lambda: self._runner.run(call, source, delivered.headers),
                done=done,
                size_bytes=len(call.arguments),
            )
        )

    # --- offsets

    def _assigned(self, starts: list[Assigned]) -> None:
        self._joined = True
        self._last_work_s = self._clock.monotonic_s()
        with self._progress_lock:
            for start in starts:
                # A delivery of an earlier ownership must not count for this one.
                generation = self._assignments.get(start.partition, 0) + 1
                self._assignments[start.partition] = generation
                self._progress.assign(start.partition, start.next_offset, fresh=start.fresh)

    def _revoked(self, partitions: list[int]) -> None:
        self._commit()
        self._lost(partitions)

    def _lost(self, partitions: list[int]) -> None:
        with self._progress_lock:
            for partition in partitions:
                self._progress.forget(partition)

    def _commit(self) -> None:
        with self._progress_lock:
            due = self._progress.due()
        if not due:
            return
        self._crash_point("before_commit")
        if self._source.commit(due):
            with self._progress_lock:
                self._progress.committed(due)

    # --- care for what waits in the ledger

    def _care(self) -> None:
        try:
            while not self._care_ended.wait(self._settings.care_interval_s):
                self._care_once()
        except BaseException as e:  # noqa: BLE001 - kept for the loop, which ends the process by it
            self._care_failure = e
        finally:
            self._refetch.close()

    def _care_once(self) -> None:
        try:
            self._ledger.sweep()
            free = self._settings.in_flight_max - self._dispatcher.in_flight()
            limit = min(free, self._settings.redrive_limit)
            if limit <= 0:
                return
            due = self._ledger.redrive(
                self._source.topic, self._tools, limit, self._settings.redrive_hold_s
            )
        except (Transient, Indeterminate):
            # The loop hears of it through its own questions; this one is asked again soon.
            return
        for source in due:
            if self._care_ended.is_set():
                return
            self._redrive(source)
        self._ask_about_doubts()

    def _ask_about_doubts(self) -> None:
        """Whom nobody answers holds up one place of the tool's own, and nothing else."""
        reconciler, now_s = self._reconciler, self._clock.monotonic_s()
        if reconciler is None or now_s < self._next_reconcile_s:
            return
        self._next_reconcile_s = now_s + self._settings.reconcile_interval_s
        try:
            due = reconciler.due()
        except (Transient, Indeterminate):
            return
        for line in due:
            self._dispatcher.submit(
                Task(line.tenant, line.tool, partial(reconciler.ask, line), lambda ran: None)
            )

    def _redrive(self, source: Source) -> None:
        delivered = self._refetch.fetch(source.partition, source.offset)
        if delivered is None:
            self._observer.bad_record(source.topic, source.partition, source.offset, "gone")
            return
        try:
            call = self._decode(delivered.key, delivered.value)
        except Undecodable as e:
            self._observer.bad_record(source.topic, source.partition, source.offset, e.code)
            return
        self._last_work_s = self._clock.monotonic_s()
        self._submit(delivered, call, lambda ran: None)
