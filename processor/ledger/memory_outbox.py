"""The outbox of the memory ledger: the same order and the same promises as in Postgres."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager

from processor.core._record import record
from processor.core.identity import CallKey
from processor.ledger.memory_guard import OWNED, Guard
from processor.ledger.outbox import OutboxBatch, OutboxEvent, Waiting
from processor.ledger.port import TERMINAL, CallState, Claim, next_key


@record
class _Row:
    id: int
    key: CallKey
    tool: str
    state: CallState
    fence: int
    repeat_of: str | None
    body: bytes | None
    error_class: str | None
    written_at_ms: float


class MemoryOutbox:
    """See `Outbox`. Written to by the ledger that owns it, under the ledger's lock."""

    def __init__(self, lock: threading.RLock, now_ms: Callable[[], float]) -> None:
        self._lock = lock
        self._now_ms = now_ms
        self._rows: dict[int, _Row] = {}
        self._taken: set[int] = set()
        self._last_id = 0

    def note(self, guard: Guard) -> None:
        """The call has changed; states of an owner are nobody else's business."""
        if guard.state not in OWNED:
            self._write(guard, None)

    def repeat(self, guard: Guard, claim: Claim) -> None:
        """The call was delivered; told again when it was sent again and has an answer."""
        place = claim.source
        if place is None or place == guard.claim.source:
            return
        if guard.state in TERMINAL or guard.state in {"held", "in_doubt"}:
            self._write(guard, f"{place.topic}/{place.partition}/{place.offset}")

    def forget(self, tenant: str, idempotency_key: str) -> None:
        """The call is pruned, and with it what nobody has published."""
        for row in list(self._rows.values()):
            if (row.key.tenant, row.key.idempotency_key) == (tenant, idempotency_key):
                del self._rows[row.id]

    @contextmanager
    def batch(self, events_max: int, body_bytes_max: int) -> Generator[OutboxBatch]:
        """See `Outbox.batch`."""
        with self._lock:
            mine = [row for row in self._rows.values() if row.id not in self._taken][:events_max]
            self._taken |= {row.id for row in mine}
            rows = _bounded(self._firsts_of(mine), body_bytes_max)
        batch = _MemoryBatch([_event_of(row) for row in rows])
        try:
            yield batch
        except BaseException:
            batch.ended.clear()
            raise
        finally:
            with self._lock:
                self._taken -= {row.id for row in mine}
                for row_id in batch.ended:
                    self._rows.pop(row_id, None)

    def waiting(self) -> Waiting:
        """See `Outbox.waiting`."""
        with self._lock:
            oldest_ms = min((row.written_at_ms for row in self._rows.values()), default=None)
            age_s = 0.0 if oldest_ms is None else (self._now_ms() - oldest_ms) / 1000
            return Waiting(len(self._rows), age_s)

    def _firsts_of(self, rows: list[_Row]) -> list[_Row]:
        """Those that are the first of their call among all rows, taken or not."""
        first: dict[CallKey, int] = {}
        for row in self._rows.values():
            first.setdefault(row.key, row.id)
        return [row for row in rows if first[row.key] == row.id]

    def _write(self, guard: Guard, repeat_of: str | None) -> None:
        self._last_id += 1
        outcome = guard.outcome if guard.state in TERMINAL else None
        self._rows[self._last_id] = _Row(
            id=self._last_id,
            key=guard.claim.key,
            tool=guard.claim.tool,
            state=guard.state,
            fence=guard.fence,
            repeat_of=repeat_of,
            body=outcome.body if outcome else None,
            error_class=outcome.error_class if outcome else None,
            written_at_ms=self._now_ms(),
        )


class _MemoryBatch:
    def __init__(self, events: list[OutboxEvent]) -> None:
        self._events = events
        self.ended: list[int] = []

    @property
    def events(self) -> list[OutboxEvent]:
        return self._events

    def done(self, ids: list[int]) -> None:
        self.ended.extend(ids)


def _bounded(rows: list[_Row], body_bytes_max: int) -> list[_Row]:
    chosen: list[_Row] = []
    size = 0
    for row in rows:
        if chosen and size >= body_bytes_max:
            break
        chosen.append(row)
        size += len(row.body or b"")
    return chosen


def _event_of(row: _Row) -> OutboxEvent:
    return OutboxEvent(
        id=row.id,
        tenant=row.key.tenant,
        idempotency_key=row.key.idempotency_key,
        key=row.key,
        tool=row.tool,
        state=row.state,
        retry=next_key(row.state),
        fence=row.fence,
        repeat_of=row.repeat_of,
        body=row.body,
        error_class=row.error_class,
    )
