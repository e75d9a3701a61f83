"""The ledger behind PgBouncer in transaction mode: nothing depends on a session."""

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import psycopg
import pytest

from processor.core.errors import Transient
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import Begin, Claim, Owned, Verdict
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from tests.contract.ledger_harness import SUCCEEDED, PostgresHarness, claim_for, key
from tests.integration.pg_server import Pooler, Server

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer on this machine"),
]
THREADS = 8
CALLS = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own with the ledger's schema."""
    made = Server()
    try:
        migrate(made.make().url, read_migrations(migrations_dir()), phase="all")
        yield made
    finally:
        made.close()


@pytest.fixture
def pooler(server: Server) -> Iterator[Pooler]:
    """Two server connections for everybody."""
    assert PGBOUNCER
    made = Pooler(PGBOUNCER, server, connections=2)
    try:
        yield made
    finally:
        made.close()


def run_call(ledger: PostgresLedger, claim: Claim) -> None:
    """Claim, begin, finish."""
    verdict = ledger.claim(claim)
    assert verdict.kind == "claimed"
    assert verdict.fence is not None
    owned = Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)
    assert ledger.begin_effect(owned, Begin(60)).ok
    assert ledger.finish(owned, SUCCEEDED).ok


def test_many_threads_share_two_connections_of_the_server(server: Server, pooler: Pooler) -> None:
    """More questions of each kind than a driver needs to prepare them; every call is settled once."""
    with PostgresLedger(PostgresSettings(pooler.url, pool_max=THREADS)) as ledger:
        base = claim_for(PostgresHarness(server.url, ledger))
        failures: list[BaseException] = []

        def work(index: int) -> None:
            try:
                for n in range(CALLS):
                    number = 10_000 + index * CALLS + n
                    run_call(ledger, replace(base, key=key(number), owner=f"pooled/{number}"))
            except BaseException as e:  # noqa: BLE001 - raised below, in the test's own thread
                failures.append(e)

        team = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join(100)
        assert failures == []
        claims = [replace(base, key=key(20_000 + n), owner=f"batch/{n}") for n in range(50)]
        verdicts = ledger.claim_many(claims)
        assert [isinstance(v, Verdict) and v.kind for v in verdicts] == ["claimed"] * 50
    with psycopg.connect(server.url) as connection:
        settled = connection.execute(
            "SELECT count(*) FROM tcl.call_guard WHERE state = 'succeeded'"
            " AND request_id BETWEEN 'req_10000' AND 'req_19999'"
        ).fetchone()
        assert settled == (THREADS * CALLS,)
        used = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
        ).fetchone()
        assert used is not None
        assert used[0] <= 3


def test_time_limits_hold_behind_the_pooler_and_leak_to_nobody(
    server: Server, pooler: Pooler
) -> None:
    """They are set in each transaction; a session's setting would reach another client."""
    settings = PostgresSettings(pooler.url, lock_timeout_ms=50, statement_timeout_ms=5_000)
    with PostgresLedger(settings) as ledger:
        claim = replace(claim_for(PostgresHarness(server.url, ledger)), key=key(30_001))
        assert ledger.claim(claim).kind == "claimed"
        with psycopg.connect(server.url) as connection:
            connection.execute("SELECT 1 FROM tcl.call_guard FOR UPDATE")
            with pytest.raises(Transient, match="55P03"):
                ledger.claim(claim)
    with psycopg.connect(pooler.url, prepare_threshold=None) as other:
        for name in ("statement_timeout", "lock_timeout"):
            row = other.execute("SELECT current_setting(%s)", (name,)).fetchone()
            assert row == ("0",)


def test_a_transactional_effect_commits_with_its_settlement(server: Server, pooler: Pooler) -> None:
    """One transaction stays on one connection of the server."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE pooled_effect (key text)")
    with PostgresLedger(PostgresSettings(pooler.url)) as ledger:
        base = claim_for(PostgresHarness(server.url, ledger), "transactional")
        claim = replace(base, key=key(40_001))
        verdict = ledger.claim(claim)
        assert verdict.fence is not None
        owned = Owned("acme", claim.key.idempotency_key, verdict.fence)
        assert ledger.begin_effect(owned, Begin(60)).ok
        with ledger.effect_transaction(owned) as effect:
            tools_own = cast("psycopg.Connection", effect.connection)
            tools_own.execute("INSERT INTO pooled_effect VALUES ('x')")
            assert effect.finish(SUCCEEDED).ok
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT count(*) FROM pooled_effect").fetchone() == (1,)
