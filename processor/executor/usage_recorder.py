"""Writes the usage topic into the ledger's database: every report, and none of them twice.

Rules:
    Offsets move only behind what the database has committed. What is delivered again adds nothing.
    A record that cannot be read goes to the dead-letter topic, with its place and a code, before the
    offset moves past it.
    While the database or the dead-letter topic is away nothing new is read, and the member stays.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from processor.codec.dead_letter_codes import Undecodable
from processor.codec.dead_letter_headers import dead_letter_headers, left_out_headers
from processor.core._record import record
from processor.core.errors import Indeterminate, Misuse, ProcessorError, Transient
from processor.core.usage import ResponseUsage
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.errors import Unreachable
from processor.executor.ports import Clock
from processor.executor.sink import TOO_LARGE_CODE, RecordSink, SinkRecord
from processor.executor.source import Assigned, CompletedSource, Delivered, Listener, Progress
from processor.ledger.port import Source
from processor.ledger.usage import Cause, UsageBook, UsageReport

WRITER: Final = "toolcalls/usage"
_RETRY_S_MIN: Final = 0.25
_RETRY_S_MAX: Final = 10.0
#: The last millisecond that a calendar of four-digit years knows; a producer's clock may say more.
_AT_MS_MAX: Final = 253_402_300_799_999

Decode = Callable[[bytes | None, bytes | None], ResponseUsage]


class MeterObserver(Protocol):
    """Is told what happened, with places and words only."""

    def recorded(self, causes: Sequence[Cause]) -> None:
        """These reports are in the database."""
        ...

    def dead_letter(self, delivered: Delivered, code: str) -> None:
        """A record that cannot be read is on the dead-letter topic."""
        ...

    def failing(self, code: str) -> None:
        """The database or the dead-letter topic does not take part; it is tried again."""
        ...


@record
class MeterSettings:
    """Bounds of one recorder. Seconds; see `RelaySettings` for `patience_s` and `idle_end_s`."""

    batch_max: int = 500
    batch_s: float = 0.2
    poll_s: float = 0.1
    patience_s: float = 300.0
    idle_end_s: float | None = None

    def checked(self) -> "MeterSettings":
        """Return these settings, or refuse the contradictory ones by name. Raises: `Misuse`."""
        if not 1 <= self.batch_max <= 10_000:
            raise Misuse(f"batch_max must be 1 to 10000, not {self.batch_max}")
        if not 0 < self.poll_s <= self.batch_s <= 10:
            raise Misuse("poll_s and batch_s must be above 0, in this order, and at most 10")
        if not 0 < self.patience_s <= 86_400:
            raise Misuse(f"patience_s must be above 0 and at most 86400, not {self.patience_s}")
        return self


class UsageRecorder:
    """One process of the group. `run` ends on a stop request, on idleness or by an error."""

    def __init__(
        self,
        source: CompletedSource,
        book: UsageBook,
        dead_letters: RecordSink,
        *,
        decode: Decode,
        settings: MeterSettings,
        clock: Clock,
        observer: MeterObserver,
        stop_requested: Callable[[], bool],
        crash_point: CrashPoint = never_crash,
    ) -> None:
        self._source = source
        self._book = book
        self._dead_letters = dead_letters
        self._decode = decode
        self._settings = settings.checked()
        self._clock = clock
        self._observer = observer
        self._stop_requested = stop_requested
        self._crash_point = crash_point
        self._progress = Progress()
        self._batch: list[Delivered] = []
        self._joined = False
        self._last_work_s = clock.monotonic_s()

    def run(self) -> None:
        """Work until told to stop.

        Raises: an error of `executor.errors`, `Misuse`, `InvariantViolated`; `Transient` or
        `Unreachable` when patience is over.
        """
        self._source.subscribe(
            Listener(assigned=self._assigned, revoked=self._revoked, lost=self._lost)
        )
        try:
            while not self._stop_requested() and not self._idle_for_too_long():
                self._fill()
                self._settle()
            self._settle()
        finally:
            self._source.close()

    def _idle_for_too_long(self) -> bool:
        limit_s = self._settings.idle_end_s
        if not self._joined:
            # A group takes seconds to form; that is no idleness.
            self._last_work_s = self._clock.monotonic_s()
        return limit_s is not None and self._clock.monotonic_s() - self._last_work_s > limit_s

    def _fill(self) -> None:
        until_s = self._clock.monotonic_s() + self._settings.batch_s
        while len(self._batch) < self._settings.batch_max and not self._stop_requested():
            self._poll(self._settings.poll_s)
            if self._clock.monotonic_s() >= until_s:
                return

    def _poll(self, timeout_s: float) -> None:
        delivered = self._source.poll(timeout_s)
        if delivered is not None:
            self._progress.start(delivered.partition, delivered.offset)
            self._batch.append(delivered)
            self._last_work_s = self._clock.monotonic_s()

    # --- from the batch to the database, then the offsets

    def _settle(self) -> None:
        if self._batch:
            if not self._until_done(self._record):
                return
            for delivered in self._batch:
                self._progress.finish(delivered.partition, delivered.offset)
            self._batch.clear()
        self._commit()

    def _until_done(self, step: Callable[[], str | None]) -> bool:
        """Repeat a step that cannot act twice; meanwhile nothing is read and the member stays.

        False when a stop was asked for before it was done: the offsets stay where they are.
        """
        since_s = self._clock.monotonic_s()
        retry_s = _RETRY_S_MIN
        while True:
            error: ProcessorError | None = None
            try:
                problem = step()
            except (Transient, Indeterminate) as e:
                problem, error = e.code, e
            if problem is None:
                self._source.resume()
                return True
            self._observer.failing(problem)
            self._last_work_s = self._clock.monotonic_s()
            if self._stop_requested():
                return False
            if self._last_work_s - since_s > self._settings.patience_s:
                raise error or Unreachable(
                    f"{self._dead_letters.topic} took no dead letter ({problem}): check the broker;"
                    " the offsets did not move"
                )
            self._stay(retry_s)
            retry_s = min(retry_s * 2, _RETRY_S_MAX)

    def _stay(self, seconds: float) -> None:
        until_s = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < until_s and not self._stop_requested():
            # A rebalance hands out partitions that are not paused, so this is said each time.
            self._source.pause()
            self._poll(self._settings.poll_s)

    def _record(self) -> str | None:
        reports: list[UsageReport] = []
        refused: list[tuple[Delivered, Undecodable]] = []
        for delivered in self._batch:
            try:
                usage = self._decode(delivered.key, delivered.value)
            except Undecodable as e:
                refused.append((delivered, e))
                continue
            place = Source(delivered.topic, delivered.partition, delivered.offset)
            reports.append(UsageReport(usage, min(delivered.timestamp_ms, _AT_MS_MAX), place))
        self._crash_point("before_record")
        causes = self._book.record(reports) if reports else []
        self._crash_point("after_record")
        problem = self._bury(refused)
        self._crash_point("after_dead_letters")
        if problem is None:
            self._observer.recorded(causes)
            for delivered, refusal in refused:
                self._observer.dead_letter(delivered, refusal.code)
        return problem

    def _bury(self, refused: Sequence[tuple[Delivered, Undecodable]]) -> str | None:
        """Publish dead letters; why they could not be, or None. A repetition has the same id."""
        for delivered, refusal in refused:
            code = self._publish(delivered, refusal, whole=True)
            if code == TOO_LARGE_CODE:
                code = self._publish(delivered, refusal, whole=False)
            if code is not None:
                return code
        return None

    def _publish(self, delivered: Delivered, refusal: Undecodable, *, whole: bool) -> str | None:
        headers = dead_letter_headers(
            WRITER, delivered.topic, delivered.partition, delivered.offset, refusal
        )
        value = delivered.value
        if not whole:
            headers += left_out_headers(value)
            value = None
        key = delivered.key
        return self._dead_letters.publish([SinkRecord(key, value, headers)])[0]

    # --- offsets

    def _assigned(self, starts: list[Assigned]) -> None:
        self._joined = True
        self._last_work_s = self._clock.monotonic_s()
        for start in starts:
            self._progress.assign(start.partition, start.next_offset, fresh=start.fresh)

    def _revoked(self, partitions: list[int]) -> None:
        self._commit()
        self._lost(partitions)

    def _lost(self, partitions: list[int]) -> None:
        for partition in partitions:
            self._progress.forget(partition)

    def _commit(self) -> None:
        due = self._progress.due()
        if due:
            self._crash_point("before_commit")
            if self._source.commit(due):
                self._progress.committed(due)
