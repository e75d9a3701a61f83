"""Runs real assembler processes on the real broker, and recomputes what they had to write."""

import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from processor.codec.records import encode_event
from processor.core.assembly import Assembly, Place
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallStarted,
    ResponseEnded,
    StreamEvent,
)
from processor.core.gate import NoCatalogue
from processor.core.identity import CallKey
from processor.core.limits import Limits
from processor.core.terms import Terms
from processor.runtime.absorb import Absorber
from processor.runtime.absorb import Message as Consumed
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.outbox import Headers, Outbox, OutputRecord
from processor.runtime.output_writer import OutputTopics, OutputWriter
from processor.runtime.settings import RuntimeSettings
from processor.runtime.task import Task
from processor.runtime.topics import TopicNames, dead_letter_bytes, topic_specs

#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")

AT_MS = 1_764_550_000_000
Record = tuple[bytes | None, bytes | None]


class Output(NamedTuple):
    """One record of an output topic, as far as the oracle compares it."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0) -> None:
    """Wait for `condition`; fail naming `what` when it does not come true."""
    pause = threading.Event()
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not seen within {timeout_s} s: {what}"
        pause.wait(0.05)


def call_records(number: int, text: bytes, pieces: int, outcome: str = "completed") -> list[Record]:
    """A whole call in `pieces` fragments, keyed and encoded."""
    key = CallKey("acme", f"req_{number}", f"resp_{number}", "call_A")
    size = max(1, -(-len(text) // pieces))
    bodies: list[Body] = [
        CallStarted(*key, tool="lookup_order", dialect="openai-responses"),
        *(ArgumentsDelta(text[i : i + size]) for i in range(0, len(text), size)),
        ArgumentsDone(text),
        ResponseEnded(outcome),  # type: ignore[arg-type]  # tests name the outcome as text
    ]
    return [
        (key.encode(), encode_event(StreamEvent(seq, body, AT_MS + seq)))
        for seq, body in enumerate(bodies)
    ]


def random_log(seed: int, calls: int) -> list[Record]:
    """Interleaved calls: whole, cut, with repeats, holes, late events, and bad bytes."""
    rng = random.Random(seed)
    waiting = [_random_call(rng, number) for number in range(calls)]
    log: list[Record] = []
    open_calls: list[list[Record]] = []
    while waiting or open_calls:
        while waiting and len(open_calls) < 20:
            open_calls.append(waiting.pop())
        chosen = rng.choice(open_calls)
        if chosen:
            log.append(chosen.pop(0))
        else:
            open_calls.remove(chosen)
    return log


def _random_call(rng: random.Random, number: int) -> list[Record]:
    """A whole call, or, five times in twelve, one with something wrong."""
    text = b'{"order_id":"ORDER-%d","note":"%s"}' % (number, b"n" * rng.randrange(40))
    records = call_records(number, text, rng.randint(1, 12))
    place = rng.randrange(1, len(records))
    faults: list[Callable[[], object]] = [
        lambda: records.__delitem__(slice(place, None)),
        lambda: records.__delitem__(place),
        lambda: records.insert(place, records[0]),
        lambda: records.extend(list(records)),
        lambda: records.append(records[-1]),
        lambda: records.insert(1, (records[0][0], rng.randbytes(rng.randrange(30)))),
    ]
    chosen = rng.randrange(2 * len(faults))
    if chosen < len(faults):
        faults[chosen]()
    return records


class Rig:
    """One set of topics on the broker, the processes of one group on it, and the oracle."""

    verb = "run"
    group_variable = "TOOLCALLS_GROUP"

    def __init__(self, bootstrap: str, prefix: str, partitions: int = 3) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.topics = TopicNames.prefixed(prefix, chunks=True)
        self.input_topic = self.topics.events
        self.output_topics = [self.topics.completed, self.topics.rejected, self.topics.deadletter]
        self.group = f"{prefix}{self.verb}"
        self.partitions = partitions
        # A broker that is away on purpose would make a client write a line for each try.
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin: Any = admin.AdminClient(quiet)
        self._group_reader = Consumer({**quiet, "group.id": self.group})
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs: dict[int, Path] = {}
        self._folder = tempfile.mkdtemp(prefix="rig-")

    def write(self, records: Sequence[Record], partition: int = -1) -> None:
        """Produce `records` in order to the input topic."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "message.max.bytes": 16 * 1024 * 1024,
                "linger.ms": 5,
            }
        )
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            del message
            if error is not None:
                failures.append(error)

        for key, value in records:
            while True:
                try:
                    producer.produce(
                        self.input_topic, value, key, partition=partition, on_delivery=on_delivery
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(60) == 0
        assert not failures, failures[0].name()

    def start(self, slot: str = "0", **extra: str) -> subprocess.Popen[bytes]:
        """Start one assembler process; `extra` are TOOLCALLS_ variables in lower case."""
        environment = {
            "TOOLCALLS_KAFKA_BOOTSTRAP": self.bootstrap,
            "TOOLCALLS_TOPIC_PREFIX": self.prefix,
            self.group_variable: self.group,
            "TOOLCALLS_SLOT": slot,
            "TOOLCALLS_START": "earliest",
            **{f"TOOLCALLS_{name.upper()}": value for name, value in extra.items()},
        }
        log_path = Path(self._folder) / f"{len(self._processes)}.log"
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "processor.cli.main", self.verb],
                env={**os.environ, **{k: v for k, v in environment.items() if v}},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self._processes.append(process)
        self._logs[process.pid] = log_path
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """What the process has logged so far."""
        return self._logs[process.pid].read_text()

    def stop(self, process: subprocess.Popen[bytes]) -> str:
        """SIGTERM, wait for a clean end, and return what it logged."""
        wait_until(
            lambda: process.poll() is not None or "er_started" in self.log(process),
            "the start of the process",
        )
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert process.returncode == 0, self.log(process)
        return self.log(process)

    def kill_all(self) -> None:
        """End what a failed test left behind."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(30)
        self._group_reader.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def set_message_bytes(self, topic: str, bytes_max: int) -> None:
        """Change the largest record that a topic takes."""
        entry = admin.ConfigEntry(
            "max.message.bytes",
            str(bytes_max),
            incremental_operation=admin.AlterConfigOpType.SET,
        )
        resource = admin.ConfigResource(
            admin.ResourceType.TOPIC, topic, incremental_configs=[entry]
        )
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(20)

    def ends(self, topic: str) -> dict[int, int]:
        """Offset behind the last record of every partition that has one.

        Counted by records: a transaction's control record has an offset too, and is never committed.
        """
        return {cast("int", m.partition()): cast("int", m.offset()) + 1 for m in self.read(topic)}

    def committed(self) -> dict[int, tuple[int, str]]:
        """Committed offset and metadata by partition.

        Asked through a consumer: librdkafka 2.16's `list_consumer_group_offsets` dereferences a
        null pointer when the coordinator answers with an error, as a new broker does.
        """
        asked = [TopicPartition(self.input_topic, p) for p in range(self.partitions)]
        try:
            found = self._group_reader.committed(asked, 20)
        except KafkaException as e:
            if e.args[0].retriable():
                # A new broker, or one that has just come back, looks for the coordinator first.
                return {}
            raise
        return {tp.partition: (tp.offset, tp.metadata or "") for tp in found if tp.offset >= 0}

    def delete_group(self) -> None:
        """Delete the group's offsets, as soon as the broker takes its members for gone."""

        def deleted() -> bool:
            (future,) = self._admin.delete_consumer_groups([self.group]).values()
            return future.exception(20) is None

        wait_until(deleted, "the end of the group")

    def wait_committed(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """Wait until the group has committed the whole input topic."""
        ends = self.ends(self.input_topic)

        def done() -> bool:
            if process is not None and process.poll() is not None:
                raise AssertionError(self.log(process))
            committed = self.committed()
            return all(committed.get(p, (0, ""))[0] >= end for p, end in ends.items())

        wait_until(done, "the group at the end of its input")

    def wait_ended_or_committed(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a process was killed, or has nothing left to be killed at."""
        ends = self.ends(self.input_topic)

        def done() -> bool:
            committed = self.committed()
            at_end = all(committed.get(p, (0, ""))[0] >= end for p, end in ends.items())
            return process.poll() is not None or at_end

        wait_until(done, "the kill, or the end of the input")

    def read(self, topic: str) -> list[Message]:
        """Every committed record of a topic, partition by partition in offset order."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "rig-read",
                "log_level": 0,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.message.max.bytes": 16 * 1024 * 1024,
                # A fetch that waits at a log's end holds back the next partition's.
                "fetch.wait.max.ms": 5,
                "fetch.queue.backoff.ms": 5,
            }
        )
        messages: list[Message] = []
        try:
            parts = consumer.list_topics(topic, 20).topics[topic].partitions
            consumer.assign([TopicPartition(topic, p, 0) for p in parts])
            running = set(parts)
            while running:
                message = consumer.poll(30)
                assert message is not None, f"{topic} did not end"
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    running.discard(message.partition())
                else:
                    raise AssertionError(error.name())
        finally:
            consumer.close()
        return sorted(messages, key=lambda m: (m.partition(), m.offset()))

    def dead_letter_bytes(self) -> int:
        """The largest original record that a dead letter of these topics carries."""
        described = KafkaAdmin(self.bootstrap).describe_topic(self.topics.deadletter)
        return dead_letter_bytes(described.settings)

    def fold(self) -> tuple[dict[int, Task[Assembly]], Outbox]:
        """A pure fold over the whole events topic, without any group: its tasks and outputs."""
        settings = RuntimeSettings(self.bootstrap, self.topics.events)
        writer = OutputWriter(
            OutputTopics(self.topics.completed, self.topics.rejected, self.topics.deadletter),
            self.topics.events,
            dead_letter_bytes_max=self.dead_letter_bytes(),
        )
        absorber = Absorber(
            writer,
            value_bytes_max=settings.value_bytes_max,
            fragments_max=settings.limits.fragments_max,
        )
        tasks = {
            p: Task(
                p,
                Assembly(Place(self.topics.events, p), Limits(), NoCatalogue()),
                start_offset=0,
                mute_below=0,
                committed_offset=None,
                topic_id="",
                partitions=self.partitions,
                terms=Terms(Limits(), NoCatalogue()),
                since=0,
            )
            for p in range(self.partitions)
        }
        outbox: Outbox = []
        for message in self.read(self.topics.events):
            absorber.absorb([cast("Consumed", message)], tasks, outbox)
        return tasks, outbox

    def expected(self) -> list[Output]:
        """What the outputs must be."""
        return as_outputs(self.outputs())

    def outputs(self) -> Outbox:
        """What a pure fold of the input topic puts out."""
        return self.fold()[1]

    def actual(self) -> list[Output]:
        """What the outputs are."""
        found = (m for name in self.output_topics for m in self.read(name))
        return sorted((_from_message(m) for m in found), key=_order)

    def assert_exact(self) -> list[Output]:
        """Nothing lost, nothing doubled, nothing invented, no transaction left open."""
        expected, actual = self.expected(), self.actual()
        assert len(actual) == len(expected)
        assert actual == expected
        return actual


def as_outputs(records: Outbox) -> list[Output]:
    """Records of an outbox in the form and order in which the oracle compares them."""
    return sorted((_from_record(record) for record in records), key=_order)


def _order(output: Output) -> tuple[object, ...]:
    return output.topic, output.key or b"", output.value or b"", output.headers


def _from_record(record: OutputRecord) -> Output:
    return Output(record.topic, record.key, record.value, _sorted_headers(record.headers))


def _from_message(message: Message) -> Output:
    topic = message.topic()
    assert topic is not None
    return Output(
        topic,
        message.key(),
        message.value(),
        _sorted_headers(cast("Headers", message.headers() or [])),
    )


def _sorted_headers(
    headers: Sequence[tuple[str, str | bytes | None]],
) -> tuple[tuple[str, bytes], ...]:
    return tuple(sorted((k, v.encode() if isinstance(v, str) else v or b"") for k, v in headers))


R = TypeVar("R", bound=Rig)


@contextmanager
def rig(bootstrap: str, prefix: str, partitions: int = 3) -> Generator[Rig]:
    """A rig with its topics made; its processes are ended at exit."""
    with made_rig(Rig(bootstrap, prefix, partitions)) as made:
        yield made


@contextmanager
def made_rig(made: R) -> Generator[R]:
    """As `rig`, for a rig of any kind."""
    bootstrap, partitions = made.bootstrap, made.partitions
    specs = topic_specs(made.topics, partitions=partitions, replication_factor=1)
    KafkaAdmin(bootstrap).create(specs)
    try:
        yield made
    finally:
        made.kill_all()
