"""The transaction of a `transactional` tool: however it ends, the ledger says what became of it."""

import hashlib
import logging
import threading
from contextlib import suppress
from typing import cast

import psycopg
import pytest

from processor.core.errors import Indeterminate
from processor.core.identity import CallKey
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import (
    Begin,
    Claim,
    EffectTransaction,
    EffectUndone,
    Ledger,
    Outcome,
    Owned,
)
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir

pytestmark = [pytest.mark.integration, pytest.mark.faults]

DONE = Outcome("succeeded", body=b"1")
TABLES = (
    "CREATE TABLE effect (id int); CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child"
    " (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)"
)


@pytest.fixture
def migrated(database: str) -> str:
    """A database with the ledger's schema and tables of the application."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(TABLES.encode())
    return database


def begun(ledger: Ledger) -> Owned:
    """A transactional call whose effect may start."""
    claim = Claim(
        key=CallKey("acme", "req_1", "resp_1", "call_1"),
        tool="refund",
        effect_class="transactional",
        args_hash=b"\x01" + hashlib.sha256(b"{}").digest(),
        owner="slot-0/1",
        lease_s=60,
        emitted_at_ms=1_800_000_000_000,
        deadline_ms=3_600_000_000_000,
        max_begun=3,
    )
    verdict = ledger.claim(claim)
    assert verdict.fence is not None
    owned = Owned("acme", claim.key.idempotency_key, verdict.fence)
    assert ledger.begin_effect(owned, Begin(60)).ok
    return owned


def connection_of(effect: EffectTransaction) -> psycopg.Connection:
    """The tool's connection."""
    return cast("psycopg.Connection", effect.connection)


def effects(database_url: str) -> int:
    """Rows that were committed."""
    with psycopg.connect(database_url) as connection:
        return connection.execute("SELECT FROM effect").rowcount


def end_backend(database_url: str, effect: EffectTransaction) -> None:
    """What an administrator or a failover does to the tool's connection."""
    pid = connection_of(effect).info.backend_pid
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute("SELECT pg_terminate_backend(%s, 10000)", (pid,))


def test_a_backend_that_ends_under_a_tool_that_says_no_leaves_no_effect(
    migrated: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised for a roll-back that nobody could carry out, and nothing is logged."""
    with caplog.at_level(logging.DEBUG), PostgresLedger(PostgresSettings(migrated)) as ledger:
        owned = begun(ledger)
        with ledger.effect_transaction(owned) as effect:
            connection_of(effect).execute("INSERT INTO effect VALUES (1)")
            end_backend(migrated, effect)
        assert ledger.release(owned, not_sent=False, why="raised:ValueError") == "ready"
    assert effects(migrated) == 0
    assert caplog.records == []


def test_a_backend_that_ends_before_the_settlement_is_unknown(migrated: str) -> None:
    """The ledger is asked afterwards."""
    with PostgresLedger(PostgresSettings(migrated)) as ledger:
        owned = begun(ledger)

        def cut() -> None:
            with ledger.effect_transaction(owned) as effect:
                connection_of(effect).execute("INSERT INTO effect VALUES (1)")
                end_backend(migrated, effect)
                effect.finish(DONE)

        with pytest.raises(Indeterminate):
            cut()
        stored = ledger.fetch_result("acme", owned.idempotency_key)
        assert stored is not None
        assert stored.state == "executing"
    assert effects(migrated) == 0


@pytest.mark.parametrize(
    ("statement", "sqlstate"),
    [("SELECT 1/0", "25P02"), ("INSERT INTO child VALUES (999)", "23503")],
    ids=["swallowed", "deferred"],
)
def test_a_refusal_of_the_tools_own_transaction_undoes_it(
    migrated: str, statement: str, sqlstate: str
) -> None:
    """A swallowed error, or a constraint at the commit: neither is a wrong question of ours."""
    with PostgresLedger(PostgresSettings(migrated)) as ledger:
        owned = begun(ledger)

        def refuse() -> None:
            with ledger.effect_transaction(owned) as effect:
                connection_of(effect).execute("INSERT INTO effect VALUES (1)")
                with suppress(psycopg.errors.DivisionByZero):
                    connection_of(effect).execute(statement.encode())
                effect.finish(DONE)

        with pytest.raises(EffectUndone) as undone:
            refuse()
        assert undone.value.sqlstate == sqlstate
        assert ledger.release(owned, not_sent=False, why="undone") == "ready"
    assert effects(migrated) == 0


def test_an_abandoned_tool_finds_its_connection_closed(migrated: str) -> None:
    """Whatever it still writes must not commit by itself."""
    with PostgresLedger(PostgresSettings(migrated, pool_max=1)) as ledger:
        owned = begun(ledger)
        sleeping, ended = threading.Event(), threading.Event()
        raised: list[type[Exception]] = []

        def tool(connection: psycopg.Connection) -> None:
            sleeping.set()
            for statement in (b"SELECT pg_sleep(60)", b"INSERT INTO effect VALUES (2)"):
                try:
                    connection.execute(statement)
                except psycopg.Error as e:
                    raised.append(type(e))
            ended.set()

        with ledger.effect_transaction(owned) as effect:
            connection = connection_of(effect)
            connection.execute("INSERT INTO effect VALUES (1)")
            threading.Thread(target=tool, args=(connection,), daemon=True).start()
            assert sleeping.wait(30)
            effect.abandon()
            assert connection.closed
        assert ended.wait(30)
        assert len(raised) == 2
        assert ledger.release(owned, not_sent=False, why="timed_out") == "ready"
    assert effects(migrated) == 0
