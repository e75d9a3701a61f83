"""Many threads, many keys, every class: the database admits each effect once."""

import hashlib
import random
import threading
from collections.abc import Callable

import psycopg
import pytest

from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import UNSURE, Begin, Claim, Outcome, Owned
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir

pytestmark = pytest.mark.integration

CLASSES: tuple[EffectClass, ...] = (
    "read_only",
    "idempotent",
    "reconcilable",
    "transactional",
    "at_most_once",
)
UNSURE_CLASSES: tuple[EffectClass, ...] = ("reconcilable", "at_most_once")
KEYS_PER_CLASS = 12
THREADS = 12
NOW_MS = 1_800_000_000_000


def claim_of(number: int, effect_class: EffectClass, owner: str, lease_s: float) -> Claim:
    """A claim without a deadline that could matter."""
    return Claim(
        key=CallKey("acme", f"req_{effect_class}_{number}", "resp_1", "call_1"),
        tool="refund",
        effect_class=effect_class,
        args_hash=b"\x01" + hashlib.sha256(str(number).encode()).digest(),
        owner=owner,
        lease_s=lease_s,
        emitted_at_ms=NOW_MS,
        deadline_ms=NOW_MS * 2,
        max_begun=1 if effect_class in UNSURE else 50,
    )


def in_threads(work: Callable[[int], None]) -> None:
    """Run `work` in all threads at once, and raise what any of them raised."""
    failures: list[BaseException] = []
    barrier = threading.Barrier(THREADS)

    def run(index: int) -> None:
        try:
            barrier.wait(30)
            work(index)
        except BaseException as e:  # noqa: BLE001 - raised below, in the test's own thread
            failures.append(e)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
    if failures:
        raise failures[0]


def effects(connection: psycopg.Connection) -> dict[str, int]:
    """How often each key took effect."""
    rows = connection.execute("SELECT key, count(*) FROM effect GROUP BY key").fetchall()
    return {str(key): int(count) for key, count in rows}


def test_every_thread_tries_every_key_and_each_key_takes_effect_once(database: str) -> None:
    """Nobody crashes: exactly one effect per key, one result, and the others are told so."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (key text)")
        with PostgresLedger(PostgresSettings(database, pool_max=THREADS)) as ledger:

            def work(index: int) -> None:
                order: list[tuple[EffectClass, int]] = [
                    (c, n) for c in CLASSES for n in range(KEYS_PER_CLASS)
                ]
                random.Random(index).shuffle(order)
                for effect_class, number in order:
                    claim = claim_of(number, effect_class, f"thread-{index}/{number}", 60)
                    verdict = ledger.claim(claim)
                    if verdict.kind != "claimed" or verdict.fence is None:
                        assert verdict.kind in {"busy", "replay"}
                        continue
                    owned = Owned("acme", claim.key.idempotency_key, verdict.fence)
                    assert ledger.begin_effect(owned, Begin(60, redrive_s=600)).ok
                    with psycopg.connect(database, autocommit=True) as world:
                        world.execute(
                            "INSERT INTO effect VALUES (%s)", (claim.key.idempotency_key,)
                        )
                    assert ledger.finish(owned, Outcome("succeeded", body=b"1")).ok

            in_threads(work)
            done = ledger.list_calls(state="succeeded", limit=1000)
        assert len(done) == len(CLASSES) * KEYS_PER_CLASS
        assert set(effects(connection).values()) == {1}
        assert len(effects(connection)) == len(done)


@pytest.mark.faults
def test_owners_that_vanish_at_random_never_double_an_unsure_effect(database: str) -> None:
    """Short leases, owners that stop before or after the effect: at most one per unsure key."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (key text)")
        with PostgresLedger(PostgresSettings(database, pool_max=THREADS)) as ledger:

            def work(index: int) -> None:
                chance = random.Random(1001 + index)
                for _ in range(150):
                    number = chance.randrange(KEYS_PER_CLASS)
                    effect_class = chance.choice(UNSURE_CLASSES)
                    # A lease of no time: whoever comes next finds it over.
                    lease_s = chance.choice((0.0, 60.0))
                    claim = claim_of(number, effect_class, f"thread-{index}", 60)
                    verdict = ledger.claim(claim)
                    if verdict.kind != "claimed" or verdict.fence is None:
                        if chance.random() < 0.1:
                            ledger.sweep()
                        continue
                    owned = Owned("acme", claim.key.idempotency_key, verdict.fence)
                    if chance.random() < 0.3:
                        ledger.release(owned, not_sent=True)
                        continue
                    if not ledger.begin_effect(owned, Begin(lease_s)).ok:
                        continue
                    if chance.random() < 0.2:
                        continue
                    with psycopg.connect(database, autocommit=True) as world:
                        world.execute(
                            "INSERT INTO effect VALUES (%s)", (claim.key.idempotency_key,)
                        )
                    if chance.random() < 0.4:
                        ledger.finish(owned, Outcome("succeeded"))

            in_threads(work)
        found = effects(connection)
        assert found
        assert set(found.values()) == {1}
        # What took effect is either settled or says that somebody has to look.
        rows = connection.execute(
            "SELECT idempotency_key, state::text FROM tcl.call_guard"
        ).fetchall()
        state = {str(key): str(word) for key, word in rows}
        assert {state[key] for key in found} <= {"succeeded", "in_doubt", "executing"}
        assert "in_doubt" in state.values()
