"""`make kills`: an executor killed with SIGKILL between a record's arrival and its offset's commit.

Every kill hits a process of its own, which is forked after the imports and runs the real loop, runner
and ledger; only the topic is a list, with its offset in a table. The next process starts at the stored
offset, as Kafka would let it, and dies over the following record. Effects are counted in a table that
the ledger does not know.
"""

import argparse
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, cast

import psycopg

from processor.codec.records import decode_completed, encode_completed
from processor.core.outcomes import EffectClass
from processor.executor import ToolContext, ToolSet
from processor.executor.dispatch import Dispatcher
from processor.executor.ports import AllowAll, Silent, SystemClock
from processor.executor.runner import CallRunner, RunnerSettings
from processor.executor.served import serve
from processor.executor.source import Assigned, Delivered, Listener
from processor.executor.worker import Worker, WorkerSettings
from processor.ledger.grouped import GroupedLedger
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import UNSURE
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from tests.integration.pg_server import Server
from tests.unit.executor.calls import completed_call

CLASSES: Final[tuple[EffectClass, ...]] = (
    "read_only",
    "idempotent",
    "transactional",
    "reconcilable",
    "at_most_once",
)
POINTS: Final = (
    "received",
    "after_claim",
    "after_begin",
    "after_effect",
    "after_finish",
    "before_commit",
    "after_commit",
)
TOPIC: Final = "toolcalls.completed.v1"
_CHILD_S: Final = 30

TABLES = """
CREATE TABLE effect (key text, fence bigint);
CREATE TABLE attempt (key text, fence bigint);
CREATE TABLE stored_offset (run text PRIMARY KEY, next_offset bigint NOT NULL);
"""


class Promise(NamedTuple):
    """What must be true of a killed call after the restart."""

    state: str
    effects: int
    attempts: int


def promise(effect: EffectClass, point: str) -> Promise:
    """What the class promises when its executor dies at `point`."""
    if point == "after_begin" and effect in UNSURE:
        return Promise("in_doubt", 0, 0)
    if point == "after_effect":
        if effect in UNSURE:
            return Promise("in_doubt", 1, 1)
        if effect == "read_only":
            return Promise("succeeded", 2, 2)
        # The other side has seen the key before, or the first try was rolled back with its mark.
        return Promise("succeeded", 1, 2 if effect == "idempotent" else 1)
    return Promise("succeeded", 1, 1)


class ListedTopic:
    """A partition whose records are a list and whose committed offset is a row."""

    def __init__(
        self, url: str, run: str, records: Sequence[tuple[bytes, bytes]], dies_at: int, point: str
    ):
        self._url, self._run, self._records = url, run, records
        self._dies_at, self._point = dies_at, point
        self._listener: Listener | None = None
        self._paused = False
        self._pause = threading.Event()
        self._next = -1

    @property
    def outlives(self) -> bool:
        """True when there is no record to die over."""
        return self._dies_at >= len(self._records)

    @property
    def topic(self) -> str:
        """See `CompletedSource`."""
        return TOPIC

    def subscribe(self, listener: Listener) -> None:
        """See `CompletedSource`."""
        self._listener = listener

    def poll(self, timeout_s: float) -> Delivered | None:
        """See `CompletedSource`."""
        if self._next < 0:
            assert self._listener
            with psycopg.connect(self._url) as connection:
                row = connection.execute(
                    "SELECT next_offset FROM stored_offset WHERE run = %s", (self._run,)
                ).fetchone()
            self._next = int(row[0]) if row else 0
            self._listener.assigned([Assigned(0, self._next, fresh=row is None)])
            return None
        last = min(self._dies_at, len(self._records) - 1)
        if self._paused or self._next > last:
            self._pause.wait(min(timeout_s, 0.001))
            return None
        offset, self._next = self._next, self._next + 1
        self.perhaps_die("received", offset)
        return Delivered(TOPIC, 0, offset, *self._records[offset], {})

    def perhaps_die(self, point: str, offset: int | None = None) -> None:
        """End this process as an out-of-memory killer would, when it is time."""
        at = self._next - 1 if offset is None else offset
        if point == self._point and at == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def pause(self) -> None:
        """See `CompletedSource`."""
        self._paused = True

    def resume(self) -> None:
        """See `CompletedSource`."""
        self._paused = False

    def commit(self, next_offsets: Mapping[int, int]) -> bool:
        """See `CompletedSource`."""
        self.perhaps_die("before_commit", next_offsets[0] - 1)
        with psycopg.connect(self._url) as connection:
            connection.execute(
                "INSERT INTO stored_offset VALUES (%s, %s)"
                " ON CONFLICT (run) DO UPDATE SET next_offset = excluded.next_offset",
                (self._run, next_offsets[0]),
            )
        self.perhaps_die("after_commit", next_offsets[0] - 1)
        return True

    def close(self) -> None:
        """See `CompletedSource`."""

    def fetch(self, partition: int, offset: int) -> Delivered | None:
        """See `Refetch`."""
        return Delivered(TOPIC, partition, offset, *self._records[offset], {})


def tools_of(url: str, effect: EffectClass) -> ToolSet:
    """One tool that leaves a row for every effect, as its class does."""
    tools = ToolSet()

    @tools.tool(name=effect, effect_class=effect, timeout_s=20)
    def act(order: str, context: ToolContext) -> dict[str, str]:
        row = (context.idempotency_key, context.fence)
        if effect == "transactional":
            connection = cast("psycopg.Connection", context.connection)
            connection.execute("INSERT INTO attempt VALUES (%s, %s)", row)
            connection.execute("INSERT INTO effect VALUES (%s, %s)", row)
            return {"order": order}
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO attempt VALUES (%s, %s)", row)
            # A system that dedupes by the key keeps the first effect only.
            connection.execute(
                "INSERT INTO effect SELECT %s, %s"
                " WHERE NOT %s OR NOT EXISTS (SELECT 1 FROM effect WHERE key = %s)",
                (*row, effect == "idempotent", row[0]),
            )
        return {"order": order}

    return tools


def run_worker(url: str, effect: EffectClass, topic: ListedTopic) -> None:
    """One executor process, from its start to its end."""
    clock, tools = SystemClock(), serve(tools_of(url, effect))
    with PostgresLedger(PostgresSettings(url, pool_max=2)) as ledger:
        runner = CallRunner(
            GroupedLedger(ledger),
            tools,
            owner=f"killed-{os.getpid()}",
            settings=RunnerSettings(),
            clock=clock,
            authoriser=AllowAll(),
            observer=Silent(),
            crash_point=topic.perhaps_die,
        )
        Worker(
            source=topic,
            refetch=topic,
            ledger=ledger,
            runner=runner,
            dispatcher=Dispatcher(
                threads=1,
                per_tenant=1,
                per_tool={},
                again_after_s=0.05,
                monotonic_s=clock.monotonic_s,
            ),
            tools=frozenset(tools),
            decode=decode_completed,
            clock=clock,
            observer=Silent(),
            settings=WorkerSettings(
                in_flight_max=1,
                poll_s=0.002,
                commit_interval_s=0.0,
                care_interval_s=60.0,
                drain_s=5.0,
                # The last one ends by itself; the others have a record to die over.
                idle_end_s=0.5 if topic.outlives else 10.0,
            ),
            stop_requested=lambda: False,
        ).run()


def forked(url: str, effect: EffectClass, topic: ListedTopic) -> int:
    """Run an executor in a process of its own; its status as `os.waitpid` tells it."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            signal.alarm(_CHILD_S)
            run_worker(url, effect, topic)
            status = 0
        finally:
            # Nothing of the parent's may be closed or flushed by the child.
            os._exit(status)
    return os.waitpid(child, 0)[1]


def kill_all(url: str, effect: EffectClass, point: str, kills: int) -> Counter[Promise]:
    """Kill `kills` executors, one over each record; what became of the calls."""
    run = f"{effect}/{point}"
    base = 1_000_000 * (1 + CLASSES.index(effect)) + 100_000 * POINTS.index(point)
    calls = [
        completed_call(number=base + n, tool=effect, effect_class=effect) for n in range(kills)
    ]
    records = [(call.key.encode(), encode_completed(call)) for call in calls]
    with psycopg.connect(url, autocommit=True) as connection:
        for dies_at in range(kills):
            status = forked(url, effect, ListedTopic(url, run, records, dies_at, point))
            assert os.WIFSIGNALED(status), (run, dies_at, status)
            assert os.WTERMSIG(status) == signal.SIGKILL, (run, dies_at, status)
            connection.execute("UPDATE tcl.call_active SET lease_until = now() - interval '1 s'")
        status = forked(url, effect, ListedTopic(url, run, records, kills, point))
        assert status == 0, (run, status)
        found: Counter[Promise] = Counter()
        for call in calls:
            row = connection.execute(
                "SELECT state::text, (SELECT count(*) FROM effect WHERE key = idempotency_key),"
                " (SELECT count(*) FROM attempt WHERE key = idempotency_key)"
                " FROM tcl.call_guard WHERE tenant = %s AND idempotency_key = %s",
                (call.key.tenant, call.key.idempotency_key),
            ).fetchone()
            found[Promise(*row) if row else Promise("unknown", 0, 0)] += 1
    return found


def prepare(url: str) -> None:
    """The ledger's schema and the world's tables."""
    migrate(url, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
        connection.execute("CREATE INDEX ON effect (key); CREATE INDEX ON attempt (key)")


def table(url: str, each: int) -> int:
    """Kill `each` at every point for every class and print what was found; broken promises."""
    broken = 0
    prepare(url)
    print_line("class", "killed at", "kills", "state after", "effects", "attempts", "kept")
    for effect in CLASSES:
        for point in POINTS:
            for found, count in kill_all(url, effect, point, each).items():
                kept = found == promise(effect, point)
                broken += not kept
                print_line(
                    *(effect, point, count, found.state, found.effects, found.attempts),
                    "yes" if kept else "NO",
                )
    return broken


def main() -> None:
    """Kill, count, print one line for each class and point; status 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database-url", help="an empty database; by default a server of its own")
    parser.add_argument("--kills", type=int, default=500, help="for each effect class, at least")
    args = parser.parse_args()
    each = -(-args.kills // len(POINTS))
    started_s = time.monotonic()
    if args.database_url:
        broken = table(args.database_url, each)
    else:
        server = Server()
        try:
            broken = table(server.make().url, each)
        finally:
            server.close()
    total = each * len(POINTS) * len(CLASSES)
    seconds = time.monotonic() - started_s
    sys.stdout.write(f"{total} kills in {seconds:.0f} s; promises broken: {broken}\n")
    sys.exit(1 if broken else 0)


def print_line(*cells: object) -> None:
    """One line of the table."""
    widths = (14, 14, 6, 12, 8, 9, 4)
    line = " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, widths, strict=True))
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
