"""`make chaos`: many executor processes, killed and frozen at random, over the same keys.

Every process runs the real runner and ledger on keys drawn at random, under leases so short that a
frozen process always comes back too late. Some processes are killed, some are stopped for longer than
a lease and go on as if nothing had happened. What took effect is counted in a table that the ledger
does not know. In the end people settle what is in doubt by what that table says.
"""

import argparse
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import psycopg

from processor.core.outcomes import CallCompleted, EffectClass
from processor.executor.ports import AllowAll, Silent, SystemClock
from processor.executor.runner import CallRunner, RunnerSettings
from processor.executor.served import ServedTool, serve
from processor.ledger.port import TERMINAL
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from tests.integration.executor_kills import CLASSES, prepare, tools_of
from tests.integration.pg_server import Server
from tests.unit.executor.calls import completed_call

#: What a state of a call tells a person; anything else at the end is a failure of the run.
UNDERSTOOD: Final = TERMINAL | {"in_doubt"}
LEASE_S: Final = 0.4


@dataclass
class Tally:
    """What the run did to the processes."""

    kills: int = 0
    freezes: int = 0
    problems: list[str] = field(default_factory=list[str])


def calls_of(keys: int) -> list[CallCompleted]:
    """`keys` calls of every class."""
    return [
        completed_call(number=10_000 * (1 + i) + n, tool=effect, effect_class=effect)
        for i, effect in enumerate(CLASSES)
        for n in range(keys)
    ]


def all_tools(url: str) -> Mapping[str, ServedTool]:
    """One tool for each class; the kills count the same effects."""
    found: dict[str, ServedTool] = {}
    for effect in CLASSES:
        found |= serve(tools_of(url, effect))
    return found


class Pausing:
    """Crash points at which this process now and then sleeps over its own lease, or dies."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._pause = threading.Event()

    def __call__(self, point: str) -> None:
        """A crash point of the runner."""
        del point
        drawn = self._chance.random()
        if drawn < 0.02:
            os.kill(os.getpid(), signal.SIGKILL)
        elif drawn < 0.05:
            self._pause.wait(LEASE_S * 1.5)


def work(url: str, keys: int, seed: int) -> None:
    """One executor process: draws keys until everything is settled or in doubt."""
    chance = random.Random(seed)
    calls, clock = calls_of(keys), SystemClock()
    with PostgresLedger(PostgresSettings(url, pool_max=2)) as ledger:
        runner = CallRunner(
            ledger,
            all_tools(url),
            owner=f"chaos-{os.getpid()}",
            # The margin is the lease here, because the tools have no time limit worth the name.
            settings=RunnerSettings(claim_lease_s=LEASE_S, lease_margin_s=LEASE_S - 20),
            clock=clock,
            authoriser=AllowAll(),
            observer=Silent(),
            crash_point=Pausing(chance),
        )
        while True:
            runner.run(chance.choice(calls), None, {})
            if chance.random() < 0.05:
                ledger.sweep()


class Team:
    """The processes, and what befalls them."""

    def __init__(self, url: str, keys: int, processes: int, seed: int) -> None:
        self._url, self._keys = url, keys
        self._chance = random.Random(seed)
        self._children: list[int] = [self._start() for _ in range(processes)]
        self._frozen: list[tuple[float, int]] = []
        self.tally = Tally()

    def _start(self) -> int:
        seed = self._chance.getrandbits(32)
        child = os.fork()
        if child == 0:
            try:
                work(self._url, self._keys, seed)
            finally:
                os._exit(70)
        return child

    def trouble(self, now_s: float) -> None:
        """Collect the dead, wake the frozen, kill one or freeze one."""
        for due_s, child in list(self._frozen):
            if due_s <= now_s:
                self._frozen.remove((due_s, child))
                os.kill(child, signal.SIGCONT)
        for child in list(self._children):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                self._note_end(child, status)
        frozen = {child for _, child in self._frozen}
        awake = [c for c in self._children if c not in frozen]
        # A third of the team stays awake, or nothing would ever be settled.
        if len(awake) * 3 <= len(self._children) or self._chance.random() < 0.5:
            return
        victim = self._chance.choice(awake)
        if self._chance.random() < 0.5:
            os.kill(victim, signal.SIGKILL)
        else:
            os.kill(victim, signal.SIGSTOP)
            self.tally.freezes += 1
            self._frozen.append((now_s + LEASE_S * 2, victim))

    def _note_end(self, child: int, status: int) -> None:
        self._children.remove(child)
        self._frozen = [(s, c) for s, c in self._frozen if c != child]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.tally.kills += 1
        else:
            self.tally.problems.append(f"a process ended by itself with status {status}")
        self._children.append(self._start())

    def end(self) -> None:
        """Kill whoever is left."""
        for child in self._children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def unsettled(connection: psycopg.Connection, calls: int) -> int:
    """How many calls are in no state that a person understands, or were never claimed."""
    row = connection.execute(
        "SELECT count(*) FROM tcl.call_guard WHERE state::text = ANY (%s)", (list(UNDERSTOOD),)
    ).fetchone()
    assert row
    return calls - int(row[0])


def run(url: str, *, keys: int, processes: int, seed: int, limit_s: float) -> Tally:
    """The whole run on an empty database. Raises: nothing; problems stand in the tally."""
    prepare(url)
    team = Team(url, keys, processes, seed)
    pause = threading.Event()
    calls = keys * len(CLASSES)
    deadline_s = time.monotonic() + limit_s
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            while unsettled(connection, calls):
                if time.monotonic() > deadline_s:
                    team.tally.problems.append(f"not settled within {limit_s:.0f} s")
                    break
                team.trouble(time.monotonic())
                pause.wait(0.05)
    finally:
        team.end()
    with psycopg.connect(url, autocommit=True) as connection:
        for effect in CLASSES:
            print_class(connection, effect, keys, team.tally)
    return team.tally


_COUNTS: Final = """
SELECT g.state::text, (SELECT count(*) FROM effect e WHERE e.key = g.idempotency_key) AS effects,
       count(*)
  FROM tcl.call_guard g WHERE g.effect = %s::tcl.effect_class GROUP BY 1, 2 ORDER BY 1, 2
"""


def print_class(
    connection: psycopg.Connection, effect: EffectClass, keys: int, tally: Tally
) -> None:
    """States and effects of one class, held against its promise."""
    rows = connection.execute(_COUNTS, (effect,)).fetchall()
    seen = 0
    for state, effects, count in rows:
        seen += count
        broken = broken_promise(effect, str(state), int(effects))
        sys.stdout.write(f"{effect:<14} {state:<10} {effects:>2} effects {count:>5} keys\n")
        if broken:
            tally.problems.append(f"{effect}: {count} keys are {state} with {effects} effects")
    if seen != keys:
        tally.problems.append(f"{effect}: {seen} of {keys} keys are in the ledger")


def broken_promise(effect: EffectClass, state: str, effects: int) -> bool:
    """Does this contradict what the class promises?"""
    if state == "in_doubt":
        return effects > 1 or effect in {"read_only", "transactional"}
    if state == "failed":
        # Starts or claims used up: a reading has no effect, and nothing else fails so after a start.
        return effects > 0 and effect != "read_only"
    if effect == "read_only":
        return state != "succeeded" or effects < 1
    return state != "succeeded" or effects != 1


def main() -> None:
    """Run, print a table; status 1 when something was not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", help="an empty database; by default a server of its own")
    parser.add_argument("--keys", type=int, default=300, help="of each effect class")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--limit-s", type=float, default=600.0)
    args = parser.parse_args()
    sys.stdout.write(f"seed {args.seed}, {args.processes} processes, {args.keys} keys a class\n")
    sys.stdout.flush()
    started_s = time.monotonic()
    server = None if args.database_url else Server()
    try:
        url = args.database_url or (server.make().url if server else "")
        tally = run(
            url, keys=args.keys, processes=args.processes, seed=args.seed, limit_s=args.limit_s
        )
    finally:
        if server:
            server.close()
    for problem in tally.problems:
        sys.stdout.write(f"PROBLEM {problem}\n")
    seconds = time.monotonic() - started_s
    sys.stdout.write(
        f"{tally.kills} kills, {tally.freezes} freezes in {seconds:.0f} s;"
        f" problems: {len(tally.problems)}\n"
    )
    sys.exit(1 if tally.problems else 0)


if __name__ == "__main__":
    main()
