"""Two ledgers under one set of questions, and the builders that the contract tests share."""

import hashlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, cast

import psycopg
import pytest

from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.ledger.batches import BatchedLedger
from processor.ledger.memory import MemoryLedger
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import (
    UNSURE,
    Begin,
    CallState,
    Claim,
    Outcome,
    Owned,
    Source,
    Transition,
    Verdict,
)
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir

NOW_MS = 1_800_000_000_000
CLASSES: tuple[EffectClass, ...] = (
    "read_only",
    "idempotent",
    "reconcilable",
    "transactional",
    "at_most_once",
)
SUCCEEDED = Outcome("succeeded", body=b'{"ok":true}')


class Harness(Protocol):
    """A ledger, and the two things a test must be able to force upon it."""

    ledger: BatchedLedger
    now_ms: int

    def end_lease(self, key: CallKey) -> None:
        """Make the current lease of `key` a thing of the past."""
        ...

    def pass_deadline(self, key: CallKey) -> None:
        """Make the deadline of `key` a thing of the past."""
        ...

    def end_redrive_window(self, key: CallKey) -> None:
        """Make the downstream system forget the idempotency key."""
        ...

    def promote(self) -> None:
        """Go on as a new primary that nobody has declared."""
        ...


class MemoryHarness:
    """The memory ledger with a clock that only tests move."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.memory = MemoryLedger(lambda: self.now_ms)
        self.ledger: BatchedLedger = self.memory

    def end_lease(self, key: CallKey) -> None:
        """Move the clock past every lease of these tests."""
        del key
        self.now_ms += 61_000

    def pass_deadline(self, key: CallKey) -> None:
        """Move the clock past every deadline of these tests."""
        del key
        self.now_ms += 3_601_000

    def end_redrive_window(self, key: CallKey) -> None:
        """Move the clock past every redrive window of these tests, not past a deadline."""
        del key
        self.now_ms += 1_801_000

    def promote(self) -> None:
        """Begin a timeline."""
        self.memory.promote()


class PostgresHarness:
    """The Postgres ledger; time is moved by rewriting rows as the superuser."""

    def __init__(self, database_url: str, ledger: PostgresLedger) -> None:
        self._database_url = database_url
        self.ledger: BatchedLedger = ledger
        with psycopg.connect(database_url) as connection:
            row = connection.execute("SELECT extract(epoch FROM now()) * 1000").fetchone()
        assert row is not None
        self.now_ms = int(row[0])

    def _force(self, table_and_change: str, key: CallKey) -> None:
        with psycopg.connect(self._database_url) as connection:
            done = connection.execute(
                f"UPDATE {table_and_change} WHERE tenant = %s AND idempotency_key = %s".encode(),
                (key.tenant, key.idempotency_key),
            )
            assert done.rowcount == 1

    def end_lease(self, key: CallKey) -> None:
        """Set it back."""
        self._force("tcl.call_active SET lease_until = now() - interval '1 s'", key)

    def pass_deadline(self, key: CallKey) -> None:
        """Set it back."""
        self._force("tcl.call_guard SET deadline = now() - interval '1 s'", key)

    def end_redrive_window(self, key: CallKey) -> None:
        """Set it back, and the lease with it."""
        self._force("tcl.call_guard SET redrive_until = now() - interval '1 s'", key)
        self.end_lease(key)

    def promote(self) -> None:
        """Pretend that what was declared belongs to an older timeline, as after a promotion."""
        with psycopg.connect(self._database_url) as connection:
            connection.execute("DELETE FROM tcl.epoch WHERE timeline = tcl.timeline()")
            # Fences of before then belong to the timeline before.
            connection.execute("UPDATE tcl.call_guard SET fence = fence & ((1::bigint << 40) - 1)")
            connection.execute("UPDATE tcl.call_active SET fence = fence & ((1::bigint << 40) - 1)")


def key(number: int = 1001, tenant: str = "acme") -> CallKey:
    """A call key of these tests."""
    return CallKey(tenant, f"req_{number}", f"resp_{number}", "call_1")


def claim_for(harness: Harness, effect_class: EffectClass = "at_most_once") -> Claim:
    """A claim that is due now and has an hour to start."""
    return Claim(
        key=key(),
        tool="refund",
        effect_class=effect_class,
        args_hash=b"\x01" + hashlib.sha256(b'{"order":"ORDER-1001"}').digest(),
        owner="slot-0/1",
        lease_s=60,
        emitted_at_ms=harness.now_ms - 1000,
        deadline_ms=harness.now_ms + 3_600_000,
        max_begun=1 if effect_class in UNSURE else 3,
        source=Source("toolcalls.completed.v1", 2, 41),
    )


def owned(claim: Claim, verdict: Verdict) -> Owned:
    """What a claimed verdict entitles to."""
    assert verdict.kind == "claimed"
    assert verdict.fence is not None
    return Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)


def begun(harness: Harness, claim: Claim) -> Owned:
    """Claim and begin."""
    own = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.begin_effect(own, Begin(lease_s=60, redrive_s=1800)).ok
    return own


def state_of(harness: Harness) -> CallState:
    """The state of the call of these tests."""
    view = harness.ledger.show("acme", key().idempotency_key)
    assert view is not None
    return view.state


def moves(transitions: list[Transition]) -> list[tuple[str | None, str, str | None]]:
    """History as (from, to, why)."""
    return [(t.from_state, t.to_state, t.why) for t in transitions]


@contextmanager
def open_harness(kind: str, request: pytest.FixtureRequest) -> Generator[Harness]:
    """The ledger of this kind; Postgres with a database of its own."""
    if kind == "memory":
        yield MemoryHarness()
        return
    database_url = cast("str", request.getfixturevalue("database"))
    migrate(database_url, read_migrations(migrations_dir()), phase="all")
    with PostgresLedger(PostgresSettings(database_url)) as ledger:
        yield PostgresHarness(database_url, ledger)
