"""`make bench-ledger`: calls per second through claim, begin and finish, beside pgbench.

All on one server of this machine and in one run: pgbench's own transaction for scale, then one commit
for each question, then batches, then many threads before one group commit. Each call is three
questions; a call alone is three commits. `fsync` is on unless `--no-fsync` is given. The rates depend on
what else the machine does; the CPU of client and server together for one call does so hardly.
"""

import argparse
import hashlib
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from processor.core.identity import CallKey
from processor.ledger.grouped import GroupedLedger
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import Begin, Claim, Ledger, Outcome, Owned, Verdict
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from tests.integration.pg_server import Server

RESULT = Outcome("succeeded", body=b'{"refunded":"ORDER-1001"}')
#: What the ledger has to reach on two cores.
ALONE_MIN, BATCHED_MIN = 400, 2_000


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def claim_of(number: int) -> Claim:
    """A call of its own, not to be repeated by guesswork."""
    now_ms = int(time.time() * 1000)
    return Claim(
        key=CallKey("bench", f"req_{number}", "resp_1", "call_1"),
        tool="refund",
        effect_class="at_most_once",
        args_hash=b"\x01" + hashlib.sha256(str(number).encode()).digest(),
        owner=f"bench/{number}",
        lease_s=60,
        emitted_at_ms=now_ms,
        deadline_ms=now_ms + 3_600_000,
    )


def owned_by(claim: Claim, verdict: object) -> Owned:
    """What the verdict entitles to; anything but `claimed` would make the figure worthless."""
    assert isinstance(verdict, Verdict)
    assert verdict.kind == "claimed"
    assert verdict.fence is not None
    return Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence)


def alone(ledger: Ledger, numbers: range) -> None:
    """Three questions, three commits for each call."""
    for number in numbers:
        claim = claim_of(number)
        owned = owned_by(claim, ledger.claim(claim))
        assert ledger.begin_effect(owned, Begin(60)).ok
        assert ledger.finish(owned, RESULT).ok


def batched(ledger: PostgresLedger, numbers: range) -> None:
    """Three questions for all of `numbers` together."""
    claims = [claim_of(n) for n in numbers]
    owned = [owned_by(c, v) for c, v in zip(claims, ledger.claim_many(claims), strict=True)]
    for answer in ledger.begin_many([(o, Begin(60)) for o in owned]):
        assert getattr(answer, "ok", False)
    for answer in ledger.finish_many([(o, RESULT) for o in owned]):
        assert getattr(answer, "ok", False)


class Numbers:
    """Hands out numbers of calls, each once."""

    def __init__(self) -> None:
        self._next = 0
        self._lock = threading.Lock()

    def take(self, count: int) -> range:
        """The next `count` numbers."""
        with self._lock:
            first, self._next = self._next, self._next + count
            return range(first, first + count)


def cpu_s(postmaster: int) -> float:
    """CPU seconds until now of this process and of the server with all of its backends."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        # After the name: state, parent, ... utime, stime, and those of children that have ended.
        if int(fields[1]) == postmaster or path.parent.name == str(postmaster):
            own = path.parent.name == str(postmaster)
            ticks += sum(int(f) for f in fields[11 : 15 if own else 13])
    used = resource.getrusage(resource.RUSAGE_SELF)
    return ticks / os.sysconf("SC_CLK_TCK") + used.ru_utime + used.ru_stime


def rate(
    work: Callable[[range], None], numbers: Numbers, *, threads: int, size: int, s: float
) -> tuple[float, int]:
    """Calls per second, and calls, of `threads` that each take `size` at a time for about `s` s."""
    done: list[int] = []
    until_s = time.perf_counter() + s

    def run() -> None:
        while time.perf_counter() < until_s:
            work(numbers.take(size))
            done.append(size)

    started_s = time.perf_counter()
    team = [threading.Thread(target=run) for _ in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    return sum(done) / (time.perf_counter() - started_s), sum(done)


def pgbench(programs: Path, database_url: str, clients: int, seconds: int) -> float:
    """Transactions per second of pgbench's own TPC-B-like script at scale 10."""
    url = urlsplit(database_url)
    base = [str(programs / "pgbench"), "-h", str(url.hostname), "-p", str(url.port)]
    base += ["-U", str(url.username)]
    name = url.path.strip("/")
    subprocess.run([*base, "-i", "-q", "-s", "10", name], check=True, capture_output=True)
    command = [*base, "-c", str(clients), "-j", "1", "-T", str(seconds), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found
    return float(found[1])


def measure(server: Server, args: argparse.Namespace) -> bool:
    """Print the table; True when both floors were reached."""
    database_url, programs = server.url, server.programs
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SHOW fsync").fetchone()
    migrate(database_url, read_migrations(migrations_dir()), phase="all")
    say(
        f"{os.cpu_count()} cores shared by server and clients, load {os.getloadavg()[0]:.1f} before;"
        f" fsync {row[0] if row else '?'}"
    )
    for clients in (1, 8):
        tps = pgbench(programs, database_url, clients, int(args.seconds))
        say(f"pgbench TPC-B-like, {clients:>2} clients{'':<23}{tps:>9,.0f} transactions/s")
    numbers = Numbers()
    reached: dict[str, float] = {}
    with ExitStack() as stack:
        ledger = stack.enter_context(PostgresLedger(PostgresSettings(database_url, pool_max=16)))
        alone(ledger, numbers.take(200))

        def line(name: str, work: Callable[[range], None], threads: int, size: int = 1) -> None:
            before_s = cpu_s(server.pid)
            found, calls = rate(work, numbers, threads=threads, size=size, s=args.seconds)
            each_ms = (cpu_s(server.pid) - before_s) / calls * 1000
            reached[name] = found
            say(f"{name:<48}{found:>7,.0f} calls/s {each_ms:>6.2f} CPU ms a call")

        grouped = GroupedLedger(ledger)
        for threads in (1, 16, 64):
            line(f"one call per transaction, {threads:>2} threads", partial(alone, ledger), threads)
        for size in (16, 64, 256):
            line(f"batches of {size:>3},  2 threads", partial(batched, ledger), 2, size)
        for threads in (1, 16, 64):
            line(f"group commit, {threads:>2} threads", partial(alone, grouped), threads)
    best_alone = max(v for k, v in reached.items() if k.startswith("one call"))
    best_batch = max(v for k, v in reached.items() if k.startswith("batches"))
    say(f"floors: one by one {ALONE_MIN}, in batches {BATCHED_MIN} calls/s")
    return best_alone >= ALONE_MIN and best_batch >= BATCHED_MIN


def main() -> None:
    """Start a server of its own, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each line")
    parser.add_argument("--no-fsync", action="store_true")
    args = parser.parse_args()
    server = Server({"fsync": "off" if args.no_fsync else "on"})
    try:
        reached = measure(server.make(), args)
    finally:
        server.close()
    sys.exit(0 if reached else 1)


if __name__ == "__main__":
    main()
