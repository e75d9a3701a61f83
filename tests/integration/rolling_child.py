"""An executor of whichever version stands first on the path; the test of rolling deploys starts two.

Usage: rolling_child.py DATABASE_URL NAME FOLDER. Waits for a line on standard input before each half of
the keys, runs what it is given to run, and says on standard output when a half is done.
"""

import hashlib
import random
import sys
import threading
import time
from pathlib import Path

import psycopg

import processor
from processor.core.identity import CallKey
from processor.ledger.port import TERMINAL, UNSURE, Begin, Claim, Outcome, Owned
from processor.ledger.postgres import PostgresLedger, PostgresSettings

CLASSES = ("read_only", "idempotent", "reconcilable", "at_most_once")
KEYS_PER_HALF = 25


def claim_of(name: str, effect: str, half: int, number: int) -> Claim:
    """The question for one call; the same for both versions."""
    now_ms = int(time.time() * 1000)
    return Claim(
        key=CallKey("acme", f"req_{effect}_{half}_{number}", "resp_1", "call_1"),
        tool="refund",
        effect_class=effect,  # type: ignore[arg-type]  # one of the literal's words
        args_hash=b"\x01" + hashlib.sha256(str(number).encode()).digest(),
        owner=f"{name}/{half}/{effect}/{number}/{random.random()}",
        lease_s=60,
        emitted_at_ms=now_ms,
        deadline_ms=now_ms + 3_600_000,
        max_begun=1 if effect in UNSURE else 3,
    )


def run_one(ledger: PostgresLedger, world: psycopg.Connection, name: str, claim: Claim) -> bool:
    """One delivery; True when the call has ended, by us or by the other version."""
    verdict = ledger.claim(claim)
    if verdict.kind != "claimed" or verdict.fence is None:
        return verdict.kind == "replay" and verdict.state in TERMINAL
    owned = Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)
    assert ledger.begin_effect(owned, Begin(60, redrive_s=600)).ok
    world.execute("INSERT INTO effect VALUES (%s, %s)", (claim.key.idempotency_key, name))
    assert ledger.finish(owned, Outcome("succeeded", body=b"1")).ok
    return True


def waits_for_the_other(world: psycopg.Connection, name: str, half: str) -> bool:
    """Has this version caused an effect in this half, and the other one none yet?"""
    rows = world.execute(
        "SELECT DISTINCT by_version FROM effect WHERE split_part(key, '_', -3) = %s", (half,)
    ).fetchall()
    return rows == [(name,)]


def main() -> None:
    """Work off both halves."""
    url, name, folder = sys.argv[1:4]
    assert Path(processor.__file__).is_relative_to(folder), processor.__file__
    pause = threading.Event()
    with (
        PostgresLedger(PostgresSettings(url, pool_max=2)) as ledger,
        psycopg.connect(url, autocommit=True) as world,
    ):
        while words := sys.stdin.readline().split():
            half = words[0]
            open_keys = [(c, n) for c in CLASSES for n in range(KEYS_PER_HALF)]
            while open_keys:
                random.shuffle(open_keys)
                left: list[tuple[str, int]] = []
                for effect, number in open_keys:
                    if not run_one(ledger, world, name, claim_of(name, effect, int(half), number)):
                        left.append((effect, number))
                    while "both" in words and waits_for_the_other(world, name, half):
                        pause.wait(0.01)
                open_keys = left
                pause.wait(0.005)
            sys.stdout.write("done\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
