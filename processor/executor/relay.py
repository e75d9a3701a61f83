"""The relay: carries what the ledger has to tell to the results topic, at least once and in order.

Rules:
    An event is marked when Kafka has confirmed it, in the transaction that handed it out. A relay that
    dies in between publishes it once more, under the same id.
    An event that Kafka does not take stays in the ledger and is tried again, after a growing wait.
    A result whose body is too large for the topic is told without it (`result_too_large`): the body is
    in the ledger.
    Nobody waits for an event that no reader could read: it is named, counted and passed over.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

from processor.codec.dead_letter_codes import Unencodable
from processor.codec.headers import cloudevents_headers
from processor.codec.records import encode_result
from processor.core._record import record
from processor.core.errors import Indeterminate, Misuse, ProcessorError, Transient
from processor.core.results import CallResult
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.errors import Unreachable
from processor.executor.ports import Clock
from processor.executor.sink import TOO_LARGE_CODE, RecordSink, SinkRecord
from processor.ledger.outbox import Outbox, OutboxEvent

SOURCE: Final = "toolcalls/relay"
#: Word for a result whose body is not here; the same as for one that the ledger does not hold.
BODY_LEFT_OUT: Final = "result_too_large"
#: Word instead of one that readers would refuse.
_WORD_LEFT_OUT: Final = "error_class_refused"
_RETRY_S_MIN: Final = 0.25
_RETRY_S_MAX: Final = 10.0
_EVENTS_MAX: Final = 10_000


class RelayObserver(Protocol):
    """Is told what happened, with ids and words only."""

    def published(self, events: int) -> None:
        """So many events were confirmed and marked."""
        ...

    def failing(self, code: str) -> None:
        """Kafka or the ledger does not take part; it is tried again."""
        ...

    def body_left_out(self, event: OutboxEvent) -> None:
        """A result was told without its body."""
        ...

    def untold(self, event: OutboxEvent, why: str) -> None:
        """An event was passed over for good."""
        ...


@record
class RelaySettings:
    """Bounds of one relay. Seconds.

    `poll_s_max` is the longest wait between two looks at an empty outbox. After `patience_s` without a
    success the process ends, so that a supervisor sees it. `idle_end_s` ends the loop after so long
    without an event; None means never.
    """

    events_max: int = 500
    body_bytes_max: int = 8 * 1024 * 1024
    poll_s_min: float = 0.02
    poll_s_max: float = 0.5
    patience_s: float = 300.0
    idle_end_s: float | None = None

    def checked(self) -> "RelaySettings":
        """Return these settings, or refuse the contradictory ones by name. Raises: `Misuse`."""
        if not 1 <= self.events_max <= _EVENTS_MAX:
            raise Misuse(f"events_max must be 1 to {_EVENTS_MAX}, not {self.events_max}")
        if self.body_bytes_max < 1:
            raise Misuse("body_bytes_max must be at least 1")
        # Written so that a value that is not a number is refused as well.
        if not 0 < self.poll_s_min <= self.poll_s_max <= 60:
            raise Misuse("poll_s_min and poll_s_max must be above 0, in this order, and at most 60")
        if not 0 < self.patience_s <= 86_400:
            raise Misuse(f"patience_s must be above 0 and at most 86400, not {self.patience_s}")
        return self


class _Sent(NamedTuple):
    """What became of one batch: events handed out, and why some of them stay."""

    events: int
    problem: str | None


class Relay:
    """One relay process; several may run on one ledger. `run` ends on a stop request or by an error."""

    def __init__(
        self,
        outbox: Outbox,
        sink: RecordSink,
        *,
        settings: RelaySettings,
        clock: Clock,
        observer: RelayObserver,
        stop_requested: Callable[[], bool],
        crash_point: CrashPoint = never_crash,
    ) -> None:
        self._outbox = outbox
        self._sink = sink
        self._settings = settings.checked()
        self._clock = clock
        self._observer = observer
        self._stop_requested = stop_requested
        self._crash_point = crash_point
        self._poll_s = settings.poll_s_min
        self._retry_s = _RETRY_S_MIN
        self._failing_since_s: float | None = None
        self._last_event_s = clock.monotonic_s()

    def run(self) -> None:
        """Work until told to stop.

        Raises: an error of `executor.errors`, `Misuse`, `InvariantViolated`; `Transient` or
        `Unreachable` when patience is over.
        """
        while not self._stop_requested() and not self._idle_for_too_long():
            try:
                sent = self._batch()
            except (Transient, Indeterminate) as e:
                # Whatever was confirmed and not marked is told once more.
                self._failed(e.code, e)
                continue
            if sent.problem is None:
                if self._failing_since_s is not None:
                    self._last_event_s = self._clock.monotonic_s()
                self._failing_since_s, self._retry_s = None, _RETRY_S_MIN
                self._pause_when_empty(sent.events)
            else:
                self._failed(sent.problem, None)

    def _idle_for_too_long(self) -> bool:
        limit_s = self._settings.idle_end_s
        if limit_s is None or self._failing_since_s is not None:
            return False
        return self._clock.monotonic_s() - self._last_event_s > limit_s

    def _pause_when_empty(self, events: int) -> None:
        if events:
            self._last_event_s = self._clock.monotonic_s()
            self._poll_s = self._settings.poll_s_min
            return
        self._clock.wait(self._poll_s)
        self._poll_s = min(self._poll_s * 1.5, self._settings.poll_s_max)

    def _failed(self, code: str, error: ProcessorError | None) -> None:
        now_s = self._clock.monotonic_s()
        self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s
        self._observer.failing(code)
        if now_s - self._failing_since_s > self._settings.patience_s:
            raise error or Unreachable(
                f"{self._sink.topic} took no result for {self._settings.patience_s:.0f} s ({code}):"
                " the results stay in the ledger; check the broker"
            )
        self._wait(self._retry_s)
        self._retry_s = min(self._retry_s * 2, _RETRY_S_MAX)

    def _wait(self, seconds: float) -> None:
        """In pieces, so that a stop request does not wait for all of them."""
        until_s = self._clock.monotonic_s() + seconds
        while self._clock.monotonic_s() < until_s and not self._stop_requested():
            self._clock.wait(min(self._settings.poll_s_max, seconds))

    # --- one batch

    def _batch(self) -> _Sent:
        settings = self._settings
        with self._outbox.batch(settings.events_max, settings.body_bytes_max) as batch:
            events = batch.events
            if not events:
                return _Sent(0, None)
            self._crash_point("after_take")
            told, problem = self._tell(events)
            self._crash_point("after_publish")
            batch.done(told)
            self._crash_point("after_mark")
        self._crash_point("after_marked")
        self._observer.published(len(told))
        return _Sent(len(events), problem)

    def _tell(self, events: list[OutboxEvent]) -> tuple[list[int], str | None]:
        """Publish; returns which events are done with, and why the others are not."""
        done: list[int] = []
        due: list[OutboxEvent] = []
        records: list[SinkRecord] = []
        for event in events:
            made = self._record(event)
            if made is None:
                done.append(event.id)
            else:
                due.append(event)
                records.append(made)
        problem: str | None = None
        for event, made, code in zip(due, records, self._sink.publish(records), strict=True):
            # One record that is too large makes the client give up a whole batch under that name.
            final = self._alone(event, made) if code == TOO_LARGE_CODE and not problem else code
            if final is None:
                done.append(event.id)
            else:
                problem = problem or final
        return done, problem

    def _alone(self, event: OutboxEvent, made: SinkRecord) -> str | None:
        code = self._sink.publish([made])[0]
        if code != TOO_LARGE_CODE:
            return code
        smaller = self._record(replace(event, body=None, error_class=BODY_LEFT_OUT))
        code = TOO_LARGE_CODE if smaller is None else self._sink.publish([smaller])[0]
        if code == TOO_LARGE_CODE:
            raise Misuse(
                f"the topic {self._sink.topic} does not even take a result without its body:"
                " raise its max.message.bytes (`toolcalls topics check` says to what)"
            )
        if code is None:
            self._observer.body_left_out(event)
        return code

    def _record(self, event: OutboxEvent) -> SinkRecord | None:
        """The record of an event; None when there is nothing to tell, or nothing readable."""
        state = event.told_state
        if event.key is None or event.tool is None or state is None:
            if event.key is None:
                self._observer.untold(event, "unknown_call")
            return None
        result = CallResult(
            key=event.key,
            tool=event.tool,
            state=state,
            retry=event.retry,
            body=event.body,
            error_class=event.error_class,
            replayed=event.repeat_of is not None,
        )
        value = _encoded(result) or _encoded(replace(result, error_class=_WORD_LEFT_OUT))
        if value is None:
            self._observer.untold(event, "unencodable")
            return None
        headers = cloudevents_headers(event.event_id, SOURCE, f"toolcall.{state}")
        return SinkRecord(event.key.encode(), value, headers)


def _encoded(result: CallResult) -> bytes | None:
    try:
        return encode_result(result)
    except Unencodable:
        return None
