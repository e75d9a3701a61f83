"""`make bench-restart`: how long a group stands still when one of its processes is killed.

A process of its own writes a steady stream of whole calls. First one slot has every partition: it is
killed and started again at once, KILLS times. Then two slots share them and one is killed for good,
LOSSES times. The end of a stand-still is seen from outside: a `read_committed` reader of the
completed topic gets a record that was written after the kill, from each partition of the killed one.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

from confluent_kafka import Consumer, Producer, TopicPartition

from processor import devstack
from processor.codec.records import encode_event
from processor.core.events import CallStarted, StreamEvent
from processor.core.identity import CallKey
from processor.runtime.group_view import KafkaGroupView
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.settings import RuntimeSettings
from processor.runtime.topics import TopicNames, topic_specs
from tests.perf.bench_assembler import call_events, say

#: Budgets in seconds: 99 of 100 stand-stills are shorter.
RESTART_BUDGET_S = 2.0
LOSS_BUDGET_S = 15.0
PATIENCE_S = 60.0
#: How often the load is topped up, and how many calls are open at a time.
TICK_S = 0.01
CALLS_INTERLEAVED = 50
GROUP = "bench-restart"


class Stop(NamedTuple):
    """One kill: seconds until the first record that was written after it, and until all partitions."""

    start_to_first_s: float
    kill_to_first_s: float
    kill_to_all_s: float


# --- the load, in its own process -------------------------------------------------------------


def write_load(bootstrap: str, topic: str, rate: int) -> None:
    """Write whole interleaved calls at `rate` events a second until killed.

    Only the first record of a call names it, so the others are encoded once for all calls.
    """
    at_ms = time.time_ns() // 1_000_000
    _, bodies = call_events(0)
    rest = [encode_event(StreamEvent(seq, b, at_ms)) for seq, b in enumerate(bodies)][1:]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 500_000,
            "compression.type": "lz4",
        }
    )
    open_calls: deque[tuple[bytes, int]] = deque()
    written, following, started_s = 0, 0, time.monotonic()
    while True:
        due = int(rate * (time.monotonic() - started_s))
        for _ in range(due - written):
            if len(open_calls) < CALLS_INTERLEAVED:
                key = CallKey("bench", f"req_{following}", "resp", "call_A")
                started = CallStarted(*key, tool="lookup_order", dialect="openai-responses")
                name, at = key.encode(), 0
                value = encode_event(StreamEvent(0, started, at_ms))
                following += 1
            else:
                name, at = open_calls.popleft()
                value = rest[at - 1]
            producer.produce(topic, value, name)
            if at < len(rest):
                open_calls.append((name, at + 1))
        written = due
        producer.poll(TICK_S)


# --- what is seen from outside ----------------------------------------------------------------


class Completed:
    """The completed topic, read as it grows."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.partitions = set(range(partitions))
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench-restart-reader",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 10,
            }
        )
        self._consumer.assign([TopicPartition(topic, p, 0) for p in sorted(self.partitions)])

    def wait(self, since_ms: int, wanted: set[int]) -> tuple[float, float]:
        """When (monotonic seconds) the first and the last of `wanted` gave a record since `since_ms`."""
        missing, first_s = set(wanted), None
        give_up_s = time.monotonic() + PATIENCE_S
        while missing:
            assert time.monotonic() < give_up_s, f"nothing from partitions {sorted(missing)}"
            message = self._consumer.poll(0.5)
            if message is None or message.error() is not None:
                continue
            if message.partition() in missing and message.timestamp()[1] > since_ms:
                missing.discard(cast("int", message.partition()))
                first_s = first_s or time.monotonic()
        return first_s or 0.0, time.monotonic()

    def pass_time(self, seconds: float) -> None:
        """Read on for a while, so that the next kill comes at any moment of a transaction."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self._consumer.consume(10_000, 0.05)


class Group:
    """The assembler processes, and what Kafka says of them."""

    def __init__(self, args: argparse.Namespace, folder: Path) -> None:
        self._args = args
        self._folder = folder
        self.topics = TopicNames.prefixed(args.prefix)
        self._view = KafkaGroupView(
            RuntimeSettings(args.bootstrap, self.topics.events, group=GROUP), ask_s=10
        )
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, slot: str) -> None:
        """Start one slot."""
        environment = {
            "TOOLCALLS_KAFKA_BOOTSTRAP": self._args.bootstrap,
            "TOOLCALLS_TOPIC_PREFIX": self._args.prefix,
            "TOOLCALLS_GROUP": GROUP,
            "TOOLCALLS_SLOT": slot,
            "TOOLCALLS_START": "earliest",
        }
        with (self._folder / f"slot-{slot}.log").open("ab") as log:
            self.running[slot] = subprocess.Popen(
                [sys.executable, "-m", "processor.cli.main", "run"],
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    def kill(self, slot: str) -> None:
        """SIGKILL, and wait for the end of the process."""
        process = self.running.pop(slot)
        assert process.poll() is None, f"slot {slot} ended by itself: {self._folder}"
        process.kill()
        process.wait(30)

    def wait_shared(self) -> dict[str, set[int]]:
        """Wait until each running slot has partitions; returns which."""
        give_up_s = time.monotonic() + PATIENCE_S
        while True:
            owned = self._view.owned() or {}
            if set(owned) == set(self.running) and all(owned.values()):
                return owned
            assert time.monotonic() < give_up_s, f"the group did not settle: {self._folder}"
            threading.Event().wait(0.2)

    def end(self) -> None:
        """End every process."""
        for slot in list(self.running):
            self.kill(slot)


def restart(group: Group, completed: Completed, slot: str) -> Stop:
    """Kill the only slot and start it again at once."""
    killed_s, killed_ms = time.monotonic(), time.time_ns() // 1_000_000
    group.kill(slot)
    started_s = time.monotonic()
    group.start(slot)
    first_s, all_s = completed.wait(killed_ms, completed.partitions)
    return Stop(first_s - started_s, first_s - killed_s, all_s - killed_s)


def lose(group: Group, completed: Completed, slot: str, owned: set[int]) -> Stop:
    """Kill one of two slots for good."""
    killed_s, killed_ms = time.monotonic(), time.time_ns() // 1_000_000
    group.kill(slot)
    first_s, all_s = completed.wait(killed_ms, owned)
    return Stop(math.nan, first_s - killed_s, all_s - killed_s)


# --- the run ----------------------------------------------------------------------------------


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all are not above."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def figures(values: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and maximum, in seconds."""
    named = {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": max(values)}
    return {name: round(value, 3) for name, value in named.items()}


def log_end(bootstrap: str, topic: str, partitions: int) -> int:
    """Records that were ever written to `topic`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-restart-ends"})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, p), 20) for p in range(partitions)]
    consumer.close()
    return sum(end for _, end in ends)


def measure(args: argparse.Namespace, folder: Path) -> dict[str, dict[str, float]]:
    """Kill and look; the result by row of the table."""
    rng = random.Random(args.seed)
    group = Group(args, folder)
    completed = Completed(args.bootstrap, group.topics.completed, args.partitions)
    rows: dict[str, dict[str, float]] = {}
    try:
        group.start("0")
        completed.wait(0, completed.partitions)
        restarts: list[Stop] = []
        for _ in range(args.kills):
            completed.pass_time(rng.uniform(0.5, 1.5))
            restarts.append(restart(group, completed, "0"))
        if restarts:
            rows["restart: start to first commit"] = figures([s.start_to_first_s for s in restarts])
            rows["restart: kill to first commit"] = figures([s.kill_to_first_s for s in restarts])
            rows["restart: kill to all partitions"] = figures([s.kill_to_all_s for s in restarts])
        losses: list[Stop] = []
        for _ in range(args.losses):
            for slot in {"0", "1"} - set(group.running):
                group.start(slot)
            owned = group.wait_shared()
            completed.pass_time(rng.uniform(1.0, 3.0))
            slot = rng.choice(sorted(owned))
            losses.append(lose(group, completed, slot, owned[slot]))
        if losses:
            rows["loss: kill to first commit"] = figures([s.kill_to_first_s for s in losses])
            rows["loss: kill to all partitions"] = figures([s.kill_to_all_s for s in losses])
    finally:
        group.end()
    return rows


def run(args: argparse.Namespace) -> bool:
    """Make topics and load, measure, print; True when the budgets were kept."""
    args.prefix = f"bench-{uuid.uuid4().hex[:8]}-"
    topics = TopicNames.prefixed(args.prefix)
    admin = KafkaAdmin(args.bootstrap)
    admin.create(topic_specs(topics, partitions=args.partitions, replication_factor=1))
    folder = Path(tempfile.mkdtemp(prefix="bench-restart-"))
    command = [sys.executable, "-m", "tests.perf.bench_restart", "--load", topics.events]
    command += ["--bootstrap", args.bootstrap, "--rate", str(args.rate)]
    with subprocess.Popen(command) as load:
        started_s = time.monotonic()
        try:
            rows = measure(args, folder)
            written = log_end(args.bootstrap, topics.events, args.partitions)
        finally:
            load.kill()
        rate = written / (time.monotonic() - started_s)
    kept = (
        rows.get("restart: start to first commit", {"p99": 0.0})["p99"] <= RESTART_BUDGET_S
        and rows.get("loss: kill to all partitions", {"p99": 0.0})["p99"] <= LOSS_BUDGET_S
    )
    if args.json:
        say(json.dumps({"rate": round(rate), "seed": args.seed, "rows": rows, "kept": kept}))
        return kept
    say(f"{args.kills} restarts, {args.losses} losses, {rate:,.0f} events/s, seed {args.seed}")
    for name, row in rows.items():
        say(f"{name:32}" + "".join(f"  {k} {v:7.3f} s" for k, v in row.items()))
    verdict = "kept" if kept else "MISSED"
    say(f"budgets (p99 restart {RESTART_BUDGET_S} s, loss {LOSS_BUDGET_S} s): {verdict}")
    return kept


def main() -> None:
    """Parse the arguments; without `--bootstrap`, a broker is started for the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--losses", type=int, default=10)
    parser.add_argument("--rate", type=int, default=20_000, help="events a second")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--bootstrap", default=os.environ.get("TOOLCALLS_KAFKA_BOOTSTRAP"))
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        write_load(args.bootstrap, args.load, args.rate)
    if args.bootstrap:
        sys.exit(not run(args))
    directory = Path(tempfile.gettempdir()) / f"toolcalls-bench-{os.getpid()}"
    try:
        args.bootstrap = devstack.up(directory, only="kafka").kafka_bootstrap
        kept = run(args)
    finally:
        devstack.down(directory)
    sys.exit(not kept)


if __name__ == "__main__":
    main()
