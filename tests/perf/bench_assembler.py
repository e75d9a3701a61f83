"""`make bench`: how fast one assembler process works off a backlog, beside the raw consume limit.

Both are measured in the same run, in turn, on the same topic, each in a process of its own; the
figures are medians. CPU seconds are those of the measured process, client threads included.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from processor import devstack
from processor.app import build_assembler, run_assembler
from processor.codec.records import encode_event
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.identity import CallKey
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.settings import RuntimeSettings
from processor.runtime.topics import TopicNames, topic_specs

#: One start, 20 deltas, the call's own end, the response's end: the reference call of the budgets.
EVENTS_PER_CALL = 23
CALLS_INTERLEAVED = 50


def call_events(number: int) -> tuple[CallKey, list[Body]]:
    """The reference call number `number`."""
    key = CallKey("bench", f"req_{number}", f"resp_{number}", "call_A")
    text = json.dumps({"order_id": f"ORDER-{number}", "note": "x" * 120, "amount": 12.5}).encode()
    size = -(-len(text) // (EVENTS_PER_CALL - 3))
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    pieces += [b""] * (EVENTS_PER_CALL - 3 - len(pieces))
    return key, [
        CallStarted(*key, tool="lookup_order", dialect="openai-responses"),
        *(ArgumentsDelta(piece) for piece in pieces),
        ArgumentsDone(text),
        ResponseEnded("completed"),
    ]


class OpenCall:
    """A call that is being written, and its next event."""

    def __init__(self, key: bytes, bodies: list[Body]) -> None:
        self.key = key
        self.bodies = bodies
        self.at = 0


def fill(bootstrap: str, topic: str, events: int, seed: int) -> int:
    """Write at least `events` interleaved events; returns how many."""
    rng = random.Random(seed)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 200_000,
            "compression.type": "lz4",
        }
    )
    calls = -(-events // EVENTS_PER_CALL)
    at_ms = time.time_ns() // 1_000_000
    written, following = 0, 0
    open_calls: list[OpenCall] = []
    while following < calls or open_calls:
        while following < calls and len(open_calls) < CALLS_INTERLEAVED:
            key, bodies = call_events(following)
            open_calls.append(OpenCall(key.encode(), bodies))
            following += 1
        chosen = rng.choice(open_calls)
        value = encode_event(StreamEvent(chosen.at, chosen.bodies[chosen.at], at_ms))
        while True:
            try:
                producer.produce(topic, value, chosen.key)
                break
            except BufferError:
                producer.poll(0.1)
        chosen.at += 1
        written += 1
        if chosen.at == len(chosen.bodies):
            open_calls.remove(chosen)
    producer.flush(60)
    return written


def measure_raw(bootstrap: str, topic: str, events: int, partitions: int) -> None:
    """Consume the topic and look at nothing but keys and values."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench-raw",
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "queued.min.messages": 100_000,
            "fetch.queue.backoff.ms": 20,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    seen, started_s, cpu_s = 0, None, 0.0
    while seen < events:
        messages = consumer.consume(10_000, 0.1)
        if started_s is None and messages:
            started_s, cpu_s = time.monotonic(), time.process_time()
        for message in messages:
            if message.error() is None:
                seen += bool(message.key() and message.value() and message.offset() is not None)
    report(seen, time.monotonic() - (started_s or 0), time.process_time() - cpu_s)
    consumer.close()


def measure_assembler(bootstrap: str, prefix: str, events: int) -> None:
    """The product's own loop, exactly-once, until every event has been folded and committed."""
    topics = TopicNames.prefixed(prefix)
    group = f"bench-{uuid.uuid4().hex[:8]}"
    settings = RuntimeSettings(bootstrap, topics.events, group=group, slot="0", start="earliest")
    worker = build_assembler(settings, topics)
    begun: list[tuple[float, float]] = []

    def stop() -> bool:
        if not begun and worker.events_count:
            begun.append((time.monotonic(), time.process_time()))
        return worker.events_count >= events

    run_assembler(worker, stop)
    wall_s, cpu_s = begun[0]
    report(events, time.monotonic() - wall_s, time.process_time() - cpu_s)


def report(events: int, wall_s: float, cpu_s: float) -> None:
    """One JSON line for the parent process."""
    sys.stdout.write(json.dumps({"events": events, "wall_s": wall_s, "cpu_s": cpu_s}) + "\n")


def say(line: str) -> None:
    """One line of the report."""
    sys.stdout.write(line + "\n")


def run_child(mode: str, args: argparse.Namespace) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--child", mode, "--bootstrap", args.bootstrap]
    command += ["--prefix", args.prefix, "--events", str(args.events)]
    command += ["--partitions", str(args.partitions)]
    done = subprocess.run(command, check=True, capture_output=True)
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def compare(args: argparse.Namespace) -> None:
    """Fill a topic, measure in turn, print medians."""
    args.prefix = f"bench-{uuid.uuid4().hex[:8]}-"
    topics = TopicNames.prefixed(args.prefix)
    admin = KafkaAdmin(args.bootstrap)
    admin.create(topic_specs(topics, partitions=args.partitions, replication_factor=1))
    args.events = fill(args.bootstrap, topics.events, args.events, args.seed)
    runs: dict[str, list[dict[str, float]]] = {"raw": [], "assembler": []}
    for _ in range(args.runs):
        for mode, figures in runs.items():
            figures.append(run_child(mode, args))
    rates = {}
    say(f"{args.events} events, {args.partitions} partitions, medians of {args.runs}")
    for mode, figures in runs.items():
        rates[mode] = statistics.median(f["events"] / f["wall_s"] for f in figures)
        cpu_s = statistics.median(f["cpu_s"] / f["events"] * 1e6 for f in figures)
        say(f"{mode:10} {rates[mode]:>12,.0f} events/s {cpu_s:>8.2f} CPU s per million events")
    say(f"assembler / raw consume: {rates['assembler'] / rates['raw']:.2f}")


def main() -> None:
    """Parse the arguments; without `--bootstrap`, a broker is started for the run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bootstrap", default=os.environ.get("TOOLCALLS_KAFKA_BOOTSTRAP"))
    parser.add_argument("--prefix", default="")
    parser.add_argument("--child", choices=["raw", "assembler"])
    args = parser.parse_args()
    if args.child == "raw":
        topic = TopicNames.prefixed(args.prefix).events
        measure_raw(args.bootstrap, topic, args.events, args.partitions)
    elif args.child == "assembler":
        measure_assembler(args.bootstrap, args.prefix, args.events)
    elif args.bootstrap:
        compare(args)
    else:
        directory = Path(tempfile.gettempdir()) / f"toolcalls-bench-{os.getpid()}"
        try:
            args.bootstrap = devstack.up(directory).kafka_bootstrap
            compare(args)
        finally:
            devstack.down(directory)


if __name__ == "__main__":
    main()
