"""The ledger in Postgres: each question is one call of a function of `migrations/`.

Rules:
    One function call is one transaction in READ COMMITTED; no transaction stays open during an
    effect, except for the class `transactional`.
    A connection lost while a commit may be under way answers nothing: the question is asked again
    in a form that cannot act twice, and only then reported as unknown.
    Answers come from the primary only; a replica would say "not found".
    The driver's messages can quote key values, so only SQLSTATE and constraint leave this file.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, LiteralString, Self, TypeVar

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from processor.core._record import record
from processor.core.errors import (
    Fenced,
    Indeterminate,
    InvariantViolated,
    Misuse,
    ProcessorError,
    Transient,
)
from processor.ledger.address import not_connected, read_address
from processor.ledger.port import (
    Answer,
    Begin,
    CallLine,
    CallState,
    CallView,
    Claim,
    EffectTransaction,
    EffectUndone,
    Outcome,
    Owned,
    Resolved,
    Source,
    StoredResult,
    Transition,
    Verdict,
    refused,
)
from processor.ledger.postgres_rows import (
    claim_values,
    finish_values,
    line_of,
    owned_values,
    stored_of,
    time_of,
    transition_of,
    view_of,
)
from processor.ledger.sqlstates import advice_for, family_of

T = TypeVar("T")
_Connection = psycopg.Connection[DictRow]

#: How often a question whose answer was lost is asked again, on a fresh connection each time.
_ASK_AGAIN: Final = 3
#: How long a tool's statement gets to end after it was cancelled.
_CANCEL_S: Final = 5.0


@record
class PostgresSettings:
    """How to reach the ledger.

    `prepare_threshold` None switches server-side statements off, which a pooler in transaction mode
    needs unless it is PgBouncer 1.22 or later with `max_prepared_statements` above 0.
    """

    database_url: str
    application_name: str = "toolcalls"
    pool_min: int = 1
    pool_max: int = 8
    pool_wait_s: float = 10.0
    connect_timeout_s: int = 5
    statement_timeout_ms: int = 10_000
    lock_timeout_ms: int = 5_000
    prepare_threshold: int | None = 5

    def checked(self) -> "PostgresSettings":
        """Return these settings, or refuse the contradictory ones by name. Raises: `Misuse`."""
        if not 1 <= self.pool_min <= self.pool_max:
            raise Misuse(f"pool_min must be 1 to pool_max ({self.pool_max}), not {self.pool_min}")
        if not 0 < self.lock_timeout_ms < self.statement_timeout_ms:
            raise Misuse("lock_timeout_ms must be above 0 and below statement_timeout_ms")
        return self


def translated(error: psycopg.Error) -> ProcessorError:
    """The error of our families for a driver's error, without the driver's text."""
    family = family_of(error.sqlstate)
    advice = advice_for(error.sqlstate)
    where = f"SQLSTATE {error.sqlstate or 'none'}"
    if error.diag.constraint_name:
        where += f", constraint {error.diag.constraint_name}"
    return family(f"{advice} ({where})")


class _Watched:
    """Notices of one connection: was a commit reported that no standby has?

    Postgres answers such a commit with success and a warning (SQLSTATE 01000) from
    SyncRepWaitForLSN; after a failover the row is gone. So the warning counts as a failure.
    """

    def __init__(self) -> None:
        self.unreplicated = False

    def __call__(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == "SyncRepWaitForLSN":
            self.unreplicated = True


_CLAIM: Final = (
    "SELECT * FROM tcl.claim(%s, %s, %s, %s, %s, %s::tcl.effect_class, %s, %s, %s, %s, %s, %s, %s,"
    " %s, %s)"
)
_BEGIN: Final = "SELECT * FROM tcl.begin_effect(%s, %s, %s, %s, %s, %s, %s, %s)"
_FINISH: Final = (
    "SELECT * FROM tcl.finish(%s, %s, %s, %s::tcl.call_state, %s, %s, %s, %s, %s::jsonb)"
)


class PostgresLedger:
    """`FullLedger` on Postgres. Open it with `with`; safe to use from several threads.

    Raises: `Misuse` at construction for settings; `Transient` on entry when nobody answers.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings.checked()
        self._address = read_address(settings.database_url)
        self._watched: dict[_Connection, _Watched] = {}
        options = (
            f"-c statement_timeout={settings.statement_timeout_ms}"
            f" -c lock_timeout={settings.lock_timeout_ms}"
            " -c default_transaction_isolation=read\\ committed"
        )
        self._pool: ConnectionPool[_Connection] = ConnectionPool(
            settings.database_url,
            connection_class=psycopg.Connection[DictRow],
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": settings.prepare_threshold,
                "connect_timeout": settings.connect_timeout_s,
                "application_name": settings.application_name,
                "options": options,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
            },
            min_size=settings.pool_min,
            max_size=settings.pool_max,
            timeout=settings.pool_wait_s,
            configure=self._configure,
            open=False,
        )

    def __enter__(self) -> Self:
        self._try_the_address()
        try:
            self._pool.open(wait=True, timeout=self._settings.pool_wait_s)
        except PoolTimeout:
            self._pool.close()
            raise not_connected(None, self._address) from None
        return self

    def _try_the_address(self) -> None:
        """One connection before the pool's: the pool tries for long and does not say what failed."""
        try:
            psycopg.connect(
                self._settings.database_url, connect_timeout=self._settings.connect_timeout_s
            ).close()
        except psycopg.Error as e:
            refusal = not_connected(e, self._address)
            if isinstance(refusal, Misuse):
                raise refusal from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.close()

    # --- executor

    def claim(self, claim: Claim) -> Verdict:
        """See `Ledger.claim`."""
        for _ in range(_ASK_AGAIN):
            try:
                row = self._row(_CLAIM, claim_values(claim))
            except Indeterminate:
                answered = self._claim_of(claim)
                if answered is None:
                    continue
                return answered
            if row["verdict"] != "retry":
                return Verdict(
                    row["verdict"], row["retry"], row["effect"], row["fence"], row["state"]
                )
        # A claim that committed unseen is harmless: its lease ends, and nothing was begun.
        raise Transient("the ledger does not answer whether the call is claimed: ask again")

    def _claim_of(self, claim: Claim) -> Verdict | None:
        """The verdict of a claim whose answer was lost, if it was committed."""
        values = (claim.key.tenant, claim.key.idempotency_key, claim.owner)
        try:
            rows = self._rows("SELECT * FROM tcl.claim_of(%s, %s, %s)", values)
        except Indeterminate as e:
            raise Transient("the ledger does not answer: ask again") from e
        if not rows:
            return None
        return Verdict("claimed", "same_key", rows[0]["effect"], rows[0]["fence"], "claimed")

    def begin_effect(self, owned: Owned, begin: Begin) -> Answer:
        """See `Ledger.begin_effect`; a repeated question is answered `already_begun`."""
        values = (
            *owned_values(owned),
            timedelta(seconds=begin.lease_s),
            begin.decision_id,
            begin.policy_rev,
            begin.need_approval,
            None if begin.redrive_s is None else timedelta(seconds=begin.redrive_s),
        )
        return self._until_answered(lambda: self._answer(_BEGIN, values))

    def finish(self, owned: Owned, outcome: Outcome) -> Answer:
        """See `Ledger.finish`; a repeated question is answered `already`."""
        values = finish_values(owned, outcome)
        return self._until_answered(lambda: self._answer(_FINISH, values))

    @contextmanager
    def effect_transaction(self, owned: Owned) -> Generator[EffectTransaction]:
        """See `Ledger.effect_transaction`; `connection` is a `psycopg.Connection`.

        Raises: `Indeterminate` when the commit's answer was lost: `fetch_result` knows.
        """
        with self._connection(refused=_undone) as connection:
            effect = _PostgresEffect(connection, owned)
            try:
                with connection.transaction():
                    yield effect
                    if not effect.settled:
                        raise _NotSettledError
            except _NotSettledError:
                # A dead connection ends here as well: without a commit nothing has happened.
                return

    def renew(self, owned: Owned, lease_s: float) -> bool:
        """See `Ledger.renew`."""
        values = (*owned_values(owned), timedelta(seconds=lease_s))
        return self._row("SELECT tcl.renew(%s, %s, %s, %s) AS until", values)["until"] is not None

    def release(
        self, owned: Owned, *, not_sent: bool, why: str | None = None, delay_s: float = 0.0
    ) -> CallState | None:
        """See `Ledger.release`."""
        values = (*owned_values(owned), not_sent, why, timedelta(seconds=delay_s))
        row = self._row("SELECT tcl.release(%s, %s, %s, %s, %s, %s) AS state", values)
        state: CallState | None = row["state"]
        return state

    def hold(self, owned: Owned, decision_id: str | None, policy_rev: str | None) -> bool:
        """See `Ledger.hold`."""
        values = (*owned_values(owned), decision_id, policy_rev)
        return bool(self._row("SELECT tcl.hold(%s, %s, %s, %s, %s) AS held", values)["held"])

    def sweep(self, limit: int = 100) -> int:
        """See `Ledger.sweep`."""
        return int(self._row("SELECT tcl.sweep(%s) AS moved", (limit,))["moved"])

    def redrive(self, topic: str, tools: Sequence[str], limit: int, hold_s: float) -> list[Source]:
        """See `Ledger.redrive`."""
        values = (topic, list(tools), limit, timedelta(seconds=hold_s))
        rows = self._rows("SELECT * FROM tcl.redrive(%s, %s, %s, %s)", values)
        return [Source(topic, row["source_partition"], row["source_offset"]) for row in rows]

    # --- people

    def decide(
        self,
        tenant: str,
        idempotency_key: str,
        args_hash: bytes,
        approver: str,
        *,
        yes: bool,
        ttl_s: float,
    ) -> bool:
        """See `People.decide`."""
        values = (tenant, idempotency_key, args_hash, approver, yes, timedelta(seconds=ttl_s))
        return bool(self._row("SELECT tcl.decide(%s, %s, %s, %s, %s, %s) AS done", values)["done"])

    def cancel(self, tenant: str, idempotency_key: str, by: str | None) -> CallState | None:
        """See `People.cancel`."""
        values = (tenant, idempotency_key, by)
        state: CallState | None = self._row("SELECT tcl.cancel(%s, %s, %s) AS state", values)[
            "state"
        ]
        return state

    def resolve(
        self,
        tenant: str,
        idempotency_key: str,
        seen_fence: int,
        to: Resolved,
        by: str,
        body: bytes | None = None,
        reason: str | None = None,
    ) -> bool:
        """See `People.resolve`."""
        values = (tenant, idempotency_key, seen_fence, to, by, body, reason)
        row = self._row("SELECT tcl.resolve(%s, %s, %s, %s, %s, %s, %s) AS done", values)
        return bool(row["done"])

    def declare_timeline(self, *, lossless: bool, since_ms: int) -> bool:
        """See `People.declare_timeline`."""
        values = (lossless, time_of(since_ms))
        return bool(self._row("SELECT tcl.declare_timeline(%s, %s) AS new", values)["new"])

    def prune(self, margin_s: float, limit: int = 1000) -> int:
        """See `People.prune`."""
        values = (timedelta(seconds=margin_s), limit)
        return int(self._row("SELECT tcl.prune(%s, %s) AS gone", values)["gone"])

    # --- reading

    def fetch_result(self, tenant: str, idempotency_key: str) -> StoredResult | None:
        """See `Ledger.fetch_result`."""
        rows = self._rows("SELECT * FROM tcl.fetch_result(%s, %s)", (tenant, idempotency_key))
        return stored_of(tenant, idempotency_key, rows[0]) if rows else None

    def show(self, tenant: str, idempotency_key: str) -> CallView | None:
        """See `Reading.show`."""
        rows = self._rows("SELECT * FROM tcl.show_call(%s, %s)", (tenant, idempotency_key))
        return view_of(tenant, idempotency_key, rows[0]) if rows else None

    def history(self, tenant: str, idempotency_key: str) -> list[Transition]:
        """See `Reading.history`."""
        rows = self._rows("SELECT * FROM tcl.history(%s, %s)", (tenant, idempotency_key))
        return [transition_of(row) for row in rows]

    def list_calls(
        self, *, state: CallState | None = None, tenant: str | None = None, limit: int = 100
    ) -> list[CallLine]:
        """See `Reading.list_calls`."""
        rows = self._rows("SELECT * FROM tcl.list_calls(%s, %s, %s)", (state, tenant, limit))
        return [line_of(row) for row in rows]

    # --- inner parts

    def _configure(self, connection: _Connection) -> None:
        watched = _Watched()
        connection.add_notice_handler(watched)
        self._watched = {c: w for c, w in self._watched.items() if not c.closed}
        self._watched[connection] = watched

    @contextmanager
    def _connection(
        self, refused: Callable[[psycopg.Error], ProcessorError] = translated
    ) -> Generator[_Connection]:
        """A connection whose driver errors come out as ours, and whose warnings count."""
        try:
            with self._pool.connection() as connection:
                yield connection
                watched = self._watched.get(connection)
                if watched is not None and watched.unreplicated:
                    connection.close()
                    raise Indeterminate("a commit was acknowledged that no standby has")
        except PoolTimeout as e:
            raise Transient("no connection to the ledger was free: ask again") from e
        except psycopg.Error as e:
            raise refused(e) from None

    def _rows(self, sql: LiteralString, values: Sequence[object]) -> list[DictRow]:
        with self._connection() as connection:
            return connection.execute(sql, values).fetchall()

    def _row(self, sql: LiteralString, values: Sequence[object]) -> DictRow:
        rows = self._rows(sql, values)
        if len(rows) != 1:
            raise InvariantViolated(f"a ledger function answered {len(rows)} rows instead of 1")
        return rows[0]

    def _answer(self, sql: LiteralString, values: Sequence[object]) -> Answer:
        row = self._row(sql, values)
        return Answer(row["ok"], row["why"])

    def _until_answered(self, ask: Callable[[], T]) -> T:
        """Ask a question that cannot act twice until somebody answers, a few times."""
        for _ in range(_ASK_AGAIN - 1):
            try:
                return ask()
            except Indeterminate:
                continue
        return ask()


class _PostgresEffect:
    """See `EffectTransaction`."""

    def __init__(self, connection: _Connection, owned: Owned) -> None:
        self._connection = connection
        self._owned = owned
        self.settled = False

    @property
    def connection(self) -> object:
        return self._connection

    def finish(self, outcome: Outcome) -> Answer:
        row = self._connection.execute(_FINISH, finish_values(self._owned, outcome)).fetchone()
        answer = Answer(row["ok"], row["why"]) if row else refused("no answer")
        self.settled = answer.ok
        return answer

    def abandon(self) -> None:
        # A statement that runs holds the lock; what comes after it finds a closed connection. A mere
        # rollback would leave the tool a connection on which every statement commits by itself.
        held = self._connection.lock.acquire(blocking=False)
        if not held:
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=_CANCEL_S)
            held = self._connection.lock.acquire(timeout=_CANCEL_S)
        try:
            self._connection.close()
        finally:
            if held:
                self._connection.lock.release()


class _NotSettledError(Exception):
    """Leaves a transaction without a commit."""


def _undone(error: psycopg.Error) -> ProcessorError:
    """An error of a tool's own transaction ends the call, whatever it would mean for a question."""
    if family_of(error.sqlstate) in {Fenced, Indeterminate}:
        return translated(error)
    return EffectUndone(error.sqlstate or "none")
