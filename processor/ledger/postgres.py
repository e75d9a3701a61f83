"""The ledger in Postgres: each question is one call of a function of `migrations/`.

Rules:
    One function call is one transaction in READ COMMITTED; no transaction stays open during an
    effect, except for the class `transactional`.
    A connection lost while a commit may be under way answers nothing: the question is asked again
    in a form that cannot act twice, and only then reported as unknown.
    Answers come from the primary only; a replica would say "not found".
    The driver's messages can quote key values, so only SQLSTATE and constraint are passed on.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, LiteralString, TypeVar

import psycopg
from psycopg.rows import DictRow

from processor.core.errors import Fenced, Indeterminate, ProcessorError, Transient
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
from processor.ledger.postgres_batches import PostgresBatches, begin_values
from processor.ledger.postgres_pool import Connection, Pooled, PostgresSettings, translated
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
from processor.ledger.postgres_stats import PostgresStats
from processor.ledger.sqlstates import family_of

T = TypeVar("T")

__all__ = ["PostgresLedger", "PostgresSettings"]
#: How often a question whose answer was lost is asked again, on a fresh connection each time.
_ASK_AGAIN: Final = 3
#: How long a tool's statement gets to end after it was cancelled.
_CANCEL_S: Final = 5.0


_CLAIM: Final = (
    "SELECT * FROM tcl.claim(%s, %s, %s, %s, %s, %s::tcl.effect_class, %s, %s, %s, %s, %s, %s, %s,"
    " %s, %s)"
)
_BEGIN: Final = "SELECT * FROM tcl.begin_effect(%s, %s, %s, %s, %s, %s, %s, %s)"
_FINISH: Final = (
    "SELECT * FROM tcl.finish(%s, %s, %s, %s::tcl.call_state, %s, %s, %s, %s, %s::jsonb)"
)


class PostgresLedger(Pooled, PostgresBatches, PostgresStats):
    """`FullLedger` on Postgres. Open it with `with`; safe to use from several threads."""

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
        values = begin_values(owned, begin)
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
        with self._pool.connection(refused=_undone) as connection:
            effect = _PostgresEffect(connection, owned)
            try:
                with self._pool.limited(connection):
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
        self,
        *,
        state: CallState | None = None,
        tenant: str | None = None,
        tool: str | None = None,
        older_s: float | None = None,
        newer_s: float | None = None,
        limit: int = 100,
    ) -> list[CallLine]:
        """See `Reading.list_calls`."""
        rows = self._rows(
            "SELECT * FROM tcl.find_calls(%s, %s, %s, %s, %s, %s)",
            (state, tenant, tool, older_s, newer_s, limit),
        )
        return [line_of(row) for row in rows]

    # --- inner parts

    def _rows(self, sql: LiteralString, values: Sequence[object]) -> list[DictRow]:
        return self._pool.rows(sql, values)

    def _row(self, sql: LiteralString, values: Sequence[object]) -> DictRow:
        return self._pool.row(sql, values)

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

    def __init__(self, connection: Connection, owned: Owned) -> None:
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
