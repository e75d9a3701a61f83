"""Appends `CallExpired` to the events topic for keys that are due, through the next transaction.

Rules:
    Time is the partition's log time; when a partition is idle its time stands still, so the wall
    clock minus a margin takes its place, and never moves it back (design of log-ordered expiry: the
    clock only says when to append, the log says what the event does).
    An event goes to the very partition of its call, by number.
    A key is asked for once until something changes about it.
"""

from collections.abc import Callable, Mapping

from processor.codec.headers import cloudevents_headers
from processor.codec.records import encode_event
from processor.core.assembly import Assembly
from processor.core.events import SEQ_NONE, CallExpired, StreamEvent
from processor.core.expiry import ExpiryLimits, due
from processor.runtime.outbox import Outbox, OutputRecord
from processor.runtime.output_writer import SOURCE
from processor.runtime.task import Task

#: How often the tracked keys are looked through.
CHECK_INTERVAL_S = 1.0
#: Bound of one look, so that a storm of expiries does not make one huge transaction.
EXPIRIES_MAX = 10_000


class Expirer:
    """Looks through the live tasks once a second. `wall_ms` is epoch milliseconds."""

    def __init__(
        self,
        events_topic: str,
        limits: ExpiryLimits,
        wall_ms: Callable[[], int],
        *,
        margin_ms: int,
    ) -> None:
        self._events_topic = events_topic
        self._limits = limits.checked()
        self._wall_ms = wall_ms
        self._margin_ms = margin_ms
        self._asked: dict[tuple[int, bytes], CallExpired] = {}

    def append_due(self, tasks: Mapping[int, Task[Assembly]], outbox: Outbox) -> int:
        """Append what is due to `outbox`; returns how many events. Cost: linear in tracked keys."""
        wall_ms = self._wall_ms() - self._margin_ms
        asked: dict[tuple[int, bytes], CallExpired] = {}
        appended = 0
        for task in tasks.values():
            if task.restoring:
                continue
            time_ms = max(task.fold.log_time_ms, wall_ms)
            for key, event in due(task.fold, time_ms, self._limits):
                place = (task.partition, key)
                if self._asked.get(place) == event:
                    asked[place] = event
                elif appended < EXPIRIES_MAX:
                    asked[place] = event
                    appended += 1
                    outbox.append(self._record(task.partition, key, event))
        self._asked = asked
        return appended

    def _record(self, partition: int, key: bytes, event: CallExpired) -> OutputRecord:
        value = encode_event(StreamEvent(SEQ_NONE, event))
        ce_id = f"{key.decode()}/{event.cause}/{event.last_seq}"
        headers = cloudevents_headers(ce_id, SOURCE, "toolcall.expired")
        return OutputRecord(self._events_topic, key, value, headers, partition)
