"""The outbox in Postgres: a batch is one transaction that stays open while its events are published.

Rules:
    Rows are locked, never leased: a relay that dies gives its rows back with its connection.
    A relay that is frozen would hold them for ever, so the server ends a batch that is silent for
    `BATCH_SILENCE_MAX_S`.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from psycopg.rows import DictRow

from processor.core.identity import CallKey
from processor.ledger.outbox import OutboxBatch, OutboxEvent, Waiting
from processor.ledger.postgres_pool import Connection, Pooled

#: Above any time that publishing a batch may take.
BATCH_SILENCE_MAX_S: Final = 60

_SILENCE: Final = (
    "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"  # of this transaction only
)


class PostgresOutbox(Pooled):
    """`Outbox` on Postgres. Open it with `with`; each batch holds one connection of the pool.

    Raises: `Misuse` at construction for settings; `Transient` on entry when nobody answers.
    """

    @contextmanager
    def batch(self, events_max: int, body_bytes_max: int) -> Generator[OutboxBatch]:
        """See `Outbox.batch`."""
        with self._pool.connection() as connection, self._pool.limited(connection):
            connection.execute(_SILENCE, (f"{BATCH_SILENCE_MAX_S}s",))
            rows = connection.execute(
                "SELECT * FROM tcl.outbox_take(%s, %s)", (events_max, body_bytes_max)
            ).fetchall()
            yield _PostgresBatch(connection, [_event_of(row) for row in rows])

    def waiting(self) -> Waiting:
        """See `Outbox.waiting`. Cost: counts every row."""
        row = self._pool.row("SELECT * FROM tcl.outbox_waiting()", ())
        return Waiting(row["events"], row["oldest_s"])


class _PostgresBatch:
    def __init__(self, connection: Connection, events: list[OutboxEvent]) -> None:
        self._connection = connection
        self._events = events

    @property
    def events(self) -> list[OutboxEvent]:
        return self._events

    def done(self, ids: list[int]) -> None:
        self._connection.execute("SELECT tcl.outbox_done(%s)", (ids,))


def _event_of(row: DictRow) -> OutboxEvent:
    key = None
    if row["response_id"] is not None:
        # The request id has no colon (a constraint of the table), so the first one separates.
        request_id, _, call_id = row["idempotency_key"].partition(":")
        key = CallKey(row["tenant"], request_id, row["response_id"], call_id)
    return OutboxEvent(
        id=row["id"],
        tenant=row["tenant"],
        idempotency_key=row["idempotency_key"],
        key=key,
        tool=row["tool"],
        state=row["state"],
        retry=row["retry"],
        fence=row["fence"],
        repeat_of=row["repeat_of"],
        body=row["body"],
        error_class=row["error_class"],
    )
