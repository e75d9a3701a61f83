"""An executor killed with SIGKILL at every point of a call's life, for every effect class."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from processor.core.outcomes import EffectClass
from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir
from tests.integration import executor_child

pytestmark = [pytest.mark.integration, pytest.mark.faults]

ROOT = Path(executor_child.__file__).parents[2]
SAFE: tuple[EffectClass, ...] = ("read_only", "idempotent", "transactional")
UNSURE: tuple[EffectClass, ...] = ("reconcilable", "at_most_once")


def expectations() -> list[tuple[str, EffectClass, str, str, int]]:
    """(point, class, state after the second run, its word, effects left in the world)."""
    found: list[tuple[str, EffectClass, str, str, int]] = []
    for each in SAFE + UNSURE:
        found.append(("after_claim", each, "succeeded", "settled succeeded", 1))
        found.append(("after_finish", each, "succeeded", "settled replay", 1))
    for each in SAFE:
        found.append(("after_begin", each, "succeeded", "settled succeeded", 1))
        # Reading twice is allowed; the other two leave one effect.
        reads = 2 if each == "read_only" else 1
        found.append(("after_effect", each, "succeeded", "settled succeeded", reads))
    for each in UNSURE:
        found.append(("after_begin", each, "in_doubt", "parked in_doubt", 0))
        found.append(("after_effect", each, "in_doubt", "parked in_doubt", 1))
    return found


def run_child(
    database_url: str, effect_class: EffectClass, crash_at: str | None
) -> subprocess.CompletedProcess[str]:
    """Start the program as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if crash_at is not None:
        environment |= {"TOOLCALLS_CRASH_AT": crash_at, "TOOLCALLS_ALLOW_CRASH_POINTS": "1"}
    return subprocess.run(
        [sys.executable, executor_child.__file__, database_url, effect_class],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(("point", "effect_class", "state", "word", "effects"), expectations())
def test_a_killed_executor_never_leaves_two_effects(
    database: str, point: str, effect_class: EffectClass, state: str, word: str, effects: int
) -> None:
    """Killed, started again after the lease: one effect, or a doubt that says so."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (key text, fence bigint)")
        killed = run_child(database, effect_class, point)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        connection.execute("UPDATE tcl.call_active SET lease_until = now() - interval '1 s'")
        again = run_child(database, effect_class, None)
        assert again.returncode == 0, again.stderr
        assert again.stdout.strip() == word
        row = connection.execute(
            "SELECT state::text, (SELECT count(*) FROM effect) FROM tcl.call_guard"
        ).fetchall()
        assert row == [(state, effects)]
        third = run_child(database, effect_class, None)
        assert third.stdout.strip() in {"settled replay", "parked in_doubt"}
        after = connection.execute("SELECT count(*) FROM effect").fetchall()
        assert after == [(effects,)]
