"""Real servers that crash, restart, and are replaced by a standby that missed the last commits."""

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import psycopg
import pytest

from processor.core.errors import Indeterminate, Transient
from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import UNSURE, Answer, Begin, Claim, Outcome, Owned, Verdict
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from tests.contract.ledger_harness import (
    CLASSES,
    SUCCEEDED,
    Harness,
    PostgresHarness,
    claim_for,
    key,
)
from tests.integration.assembler_rig import wait_until
from tests.integration.pg_server import Server

pytestmark = [pytest.mark.integration, pytest.mark.faults]
THREADS = 6
SAFE: tuple[EffectClass, ...] = ("idempotent", "transactional")
CALLS = 60


@pytest.fixture
def primary() -> Iterator[Server]:
    """A primary of its own, with the schema, ready for a standby."""
    server = Server({"wal_level": "replica", "max_wal_senders": "4", "fsync": "on"})
    try:
        migrate(server.make().url, read_migrations(migrations_dir()), phase="all")
        yield server
    finally:
        server.close()


@pytest.fixture
def standby(primary: Server) -> Iterator[Server]:
    """A streaming replica of it."""
    server = Server({"hot_standby": "on", "fsync": "on"})
    try:
        yield server.copy_of(primary)
    finally:
        server.close()


def patient(pause: threading.Event, ask: Callable[[], Answer | Verdict]) -> Answer | Verdict:
    """Ask until the ledger answers, as an executor does."""
    while True:
        try:
            return ask()
        except (Transient, Indeterminate):
            pause.wait(0.05)


def run_call(ledger: PostgresLedger, claim: Claim, done: Callable[[], None]) -> None:
    """One call with patience; a claim that was committed unseen is found busy, and is its own."""
    pause = threading.Event()
    while True:
        verdict = patient(pause, partial(ledger.claim, claim))
        assert isinstance(verdict, Verdict)
        if verdict.kind != "claimed" or verdict.fence is None:
            assert verdict.kind == "busy"
            pause.wait(0.05)
            continue
        owned = Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)
        begun = patient(pause, partial(ledger.begin_effect, owned, Begin(60)))
        assert isinstance(begun, Answer)
        if begun.ok:
            break
        # The server was away for longer than the lease, and nothing had begun: claim it again.
        assert begun.why == "lease_lost"
    done()
    ended = patient(pause, partial(ledger.finish, owned, SUCCEEDED))
    assert isinstance(ended, Answer)
    assert ended.ok


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_restart_in_the_middle_of_the_load_loses_nothing_and_needs_no_hand(
    primary: Server, how: signal.Signals
) -> None:
    """Sessions are cut, or the server crashes: every call is settled, each effect happened once."""
    effects: list[str] = []
    failures: list[BaseException] = []
    settings = PostgresSettings(primary.url, pool_max=THREADS, pool_wait_s=2.0)
    with PostgresLedger(settings) as ledger:
        base = replace(claim_for(PostgresHarness(primary.url, ledger)), lease_s=1.0)

        def work(index: int) -> None:
            try:
                for n in range(CALLS // THREADS):
                    name = key(index * CALLS + n)
                    claim = replace(base, key=name, owner=f"restart/{index}/{n}")
                    run_call(ledger, claim, partial(effects.append, name.idempotency_key))
            except BaseException as e:  # noqa: BLE001 - raised below, in the test's own thread
                failures.append(e)

        team = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
        for thread in team:
            thread.start()
        wait_until(lambda: len(effects) > CALLS // 4, "the load")
        primary.stop(how)
        primary.start()
        for thread in team:
            thread.join(60)
        assert failures == []
        assert len(ledger.list_calls(state="succeeded", limit=1000)) == CALLS
    assert sorted(effects) == sorted(set(effects))
    assert len(effects) == CALLS


def caught_up(primary: Server, standby: Server) -> Callable[[], bool]:
    """Has the standby replayed what the primary has written until now?"""
    with psycopg.connect(primary.url) as connection:
        row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row
    written = str(row[0])

    def ask() -> bool:
        with psycopg.connect(standby.url) as connection:
            found = connection.execute(
                "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", (written,)
            ).fetchone()
        return found == (True,)

    return ask


def cut_off(standby: Server) -> None:
    """From here on the standby gets nothing more of the primary."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
        connection.execute("SELECT pg_reload_conf()")
    wait_until(lambda: not has_receiver(standby), "the end of the replication")


def has_receiver(standby: Server) -> bool:
    """Is the standby connected to its primary?"""
    with psycopg.connect(standby.url) as connection:
        row = connection.execute("SELECT count(*) FROM pg_stat_wal_receiver").fetchone()
    return row != (0,)


def promote(standby: Server) -> None:
    """Make it the primary and wait until it takes writes."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("SELECT pg_promote(true, 30)")


def begun_on(ledger: PostgresLedger, claim: Claim) -> Owned:
    """Claim and begin."""
    verdict = ledger.claim(claim)
    assert verdict.kind == "claimed"
    assert verdict.fence is not None
    owned = Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)
    assert ledger.begin_effect(owned, Begin(60, redrive_s=1800)).ok
    return owned


def of_class(harness: Harness, effect: EffectClass, name: str) -> Claim:
    """A claim of this class and name."""
    call_key = CallKey("acme", f"{name}_{effect}", "resp_1", "call_1")
    return replace(claim_for(harness, effect), key=call_key, owner=f"failover/{effect}/{name}")


def test_a_standby_without_the_last_commits_repeats_no_unsure_effect(
    primary: Server, standby: Server
) -> None:
    """Paused until declared; then what may have run on the lost tail is in doubt, what is later runs."""
    with PostgresLedger(PostgresSettings(primary.url)) as old:
        harness = PostgresHarness(primary.url, old)
        known: dict[EffectClass, Claim] = {c: of_class(harness, c, "known") for c in CLASSES}
        for claim in known.values():
            begun_on(old, claim)
        claimed_only = of_class(harness, "at_most_once", "claimed")
        assert old.claim(claimed_only).kind == "claimed"
        wait_until(caught_up(primary, standby), "the standby to follow")
        cut_off(standby)
        # The tail that nobody will ever see again: an effect begun, executed and settled.
        lost: dict[EffectClass, Claim] = {c: of_class(harness, c, "lost") for c in CLASSES}
        lost_owned: dict[EffectClass, Owned] = {
            c: begun_on(old, claim) for c, claim in lost.items()
        }
        assert old.finish(lost_owned["at_most_once"], SUCCEEDED).ok
    primary.stop(signal.SIGQUIT)
    promote(standby)
    with psycopg.connect(standby.url) as connection:
        row = connection.execute("SELECT tcl.timeline()").fetchone()
        assert row is not None
        assert row[0] >= 2
    with PostgresLedger(PostgresSettings(standby.url)) as new:
        for effect in UNSURE:
            assert new.claim(lost[effect]).kind == "paused"
        again = new.claim(lost["read_only"])
        assert again.kind == "claimed"
        assert again.fence is not None
        # A number is never issued twice, although the sequence has lost its tail as well.
        assert again.fence > max(o.fence for o in lost_owned.values())
        waiting = psycopg.connect(standby.url).execute("SELECT state, calls FROM tcl.waiting()")
        assert ("undeclared_timeline", 1) in waiting.fetchall()
        waiting.connection.close()
        assert new.declare_timeline(lossless=False, since_ms=harness.now_ms + 1)
        check_quarantine(new, standby, lost, lost_owned, known, claimed_only)


def check_quarantine(
    new: PostgresLedger,
    standby: Server,
    lost: dict[EffectClass, Claim],
    lost_owned: dict[EffectClass, Owned],
    known: dict[EffectClass, Claim],
    claimed_only: Claim,
) -> None:
    """What a lossy failover must lead to, class by class."""
    with psycopg.connect(standby.url, autocommit=True) as connection:
        connection.execute("UPDATE tcl.call_active SET lease_until = now() - interval '1 s'")
    for effect in UNSURE:
        # The lost owner's word counts for nothing here: its row does not exist, or has a new fence.
        assert new.finish(lost_owned[effect], SUCCEEDED).why == "fenced"
        assert new.claim(lost[effect]).kind == "in_doubt"
        assert new.claim(known[effect]).kind == "in_doubt"
    assert new.claim(claimed_only).kind == "in_doubt"
    for effect in SAFE:
        # The other side remembers the key; the lost transaction took its effect with it.
        assert new.claim(lost[effect]).kind == "claimed"
        assert new.claim(known[effect]).kind == "claimed"
    later = replace(
        lost["at_most_once"],
        key=key(4001),
        emitted_at_ms=lost["at_most_once"].emitted_at_ms + 10_000,
    )
    owned = begun_on(new, later)
    assert new.finish(owned, Outcome("succeeded")).ok
    # People see the doubts and can settle them.
    assert {line.tool for line in new.list_calls(state="in_doubt")} == {"refund"}
    assert len(new.list_calls(state="in_doubt")) == 5


def test_a_declared_lossless_promotion_goes_on_where_it_was(
    primary: Server, standby: Server
) -> None:
    """The owner of before may still begin and settle; nothing is in doubt."""
    with PostgresLedger(PostgresSettings(primary.url)) as old:
        harness = PostgresHarness(primary.url, old)
        claim = of_class(harness, "at_most_once", "first")
        owned = begun_on(old, claim)
        wait_until(caught_up(primary, standby), "the standby to follow")
    primary.stop(signal.SIGINT)
    promote(standby)
    with PostgresLedger(PostgresSettings(standby.url)) as new:
        assert new.declare_timeline(lossless=True, since_ms=harness.now_ms)
        assert new.finish(owned, SUCCEEDED).ok
        assert new.claim(claim).kind == "replay"
        assert new.claim(of_class(harness, "at_most_once", "later")).kind == "claimed"
