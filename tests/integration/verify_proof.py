"""A verification's material on the real broker: events, the outputs of a pure fold, and faults."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from processor.cli.main import build_app
from processor.codec.records import decode_completed, encode_rejected
from processor.core.assembly import FOLD_VERSION
from processor.core.limits import Limits
from processor.core.outcomes import CallRejected
from processor.core.terms import TermsMark
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.offset_metadata import OffsetMetadata
from processor.runtime.outbox import OutputRecord
from tests.integration.assembler_rig import Record, Rig, call_records

#: What a test expects of a difference: its code, its topic, and its key as far as it has one.
Fault = tuple[str, str, str | None]
BAD_VALUE = b"\x00not a record"


@dataclass
class Proof:
    """The topics of one rig, written without an assembler."""

    made: Rig
    outputs: list[OutputRecord] = field(default_factory=list[OutputRecord])
    expected: list[Fault] = field(default_factory=list[Fault])

    def write_events(self, calls: int, bad: int) -> None:
        """So many calls of three fragments, and so many records that nobody can read."""
        text = b'{"order_id":"ORDER-%d"}'
        log: list[Record] = [r for n in range(calls) for r in call_records(n, text % n, 3)]
        log += [(call_records(calls + n, text % n, 1)[0][0], BAD_VALUE) for n in range(bad)]
        self.made.write(log)
        tasks, self.outputs = self.made.fold()
        self.commit({p: task.next_offset for p, task in tasks.items()})

    def commit(
        self, offsets: dict[int, int], *, catalogue_digest: str | None = None, since: int = 0
    ) -> None:
        """Commit as an assembler would."""
        topic_id = KafkaAdmin(self.made.bootstrap).describe_topic(self.made.topics.events).topic_id
        mark = TermsMark(catalogue_digest, Limits(), wait_for_response=False)
        consumer = Consumer({"bootstrap.servers": self.made.bootstrap, "group.id": self.made.group})
        metadata = [
            TopicPartition(
                self.made.topics.events,
                p,
                offset,
                metadata=OffsetMetadata(
                    FOLD_VERSION, offset, 0, self.made.partitions, topic_id, mark, since
                ).encode(),
            )
            for p, offset in offsets.items()
        ]
        consumer.commit(offsets=metadata, asynchronous=False)
        consumer.close()

    def produce(self, records: Sequence[OutputRecord]) -> None:
        """Write output records as they are."""
        producer = Producer(
            {
                "bootstrap.servers": self.made.bootstrap,
                "partitioner": "murmur2_random",
                "linger.ms": 5,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for topic, key, value, headers, partition in records:
            producer.produce(
                topic, value, key, partition=-1 if partition is None else partition, headers=headers
            )
            producer.poll(0)
        assert producer.flush(60) == 0

    # --- faults, each on an output of its own ---------------------------------------------------

    def _take(self, topic: str) -> int:
        """Position of the next output of `topic` that has no fault yet."""
        used = {fault[2] for fault in self.expected}
        return next(
            i
            for i, o in enumerate(self.outputs)
            if o.topic == topic and (o.key or b"").decode() not in used
        )

    def _note(self, code: str, output: OutputRecord) -> None:
        self.expected.append((code, output.topic, (output.key or b"").decode()))

    def alter_a_byte(self) -> None:
        """The last byte of one completed value."""
        at = self._take(self.made.topics.completed)
        value = self.outputs[at].value or b""
        self.outputs[at] = self.outputs[at]._replace(value=value[:-1] + bytes([value[-1] ^ 1]))
        self._note("altered", self.outputs[at])

    def alter_a_header(self) -> None:
        """The source that one completed record names."""
        at = self._take(self.made.topics.completed)
        headers = [(n, b"x" if n == "ce_source" else v) for n, v in self.outputs[at].headers]
        self.outputs[at] = self.outputs[at]._replace(headers=headers)
        self._note("headers_altered", self.outputs[at])

    def lose(self, topic: str) -> None:
        """One output."""
        at = self._take(topic)
        self._note("missing", self.outputs[at])
        del self.outputs[at]

    def double(self) -> None:
        """One completed record comes again at the end."""
        at = self._take(self.made.topics.completed)
        self._note("doubled", self.outputs[at])
        self.outputs.append(self.outputs[at])

    def invent(self, *, at_offset: Callable[[int], int]) -> None:
        """A completed record for an event that decides nothing, or that does not exist."""
        at = self._take(self.made.topics.completed)
        output = self.outputs[at]
        topic, partition, offset = str(output.headers[0][1], "utf-8").rsplit("/", 2)  # type: ignore[arg-type]  # ours are bytes
        place = f"{topic}/{partition}/{at_offset(int(offset))}".encode()
        self.outputs.append(output._replace(headers=[("ce_id", place), *output.headers[1:]]))
        self._note("invented", output)

    def reject_what_was_completed(self) -> None:
        """The verdict of one call lies on the other topic."""
        at = self._take(self.made.topics.completed)
        output = self.outputs[at]
        call = decode_completed(output.key, output.value)
        rejected = CallRejected(
            call.key, "truncated", "completion", "by the response", replace(call.evidence)
        )
        self.outputs[at] = output._replace(
            topic=self.made.topics.rejected, value=encode_rejected(rejected)
        )
        self._note("other_verdict", self.outputs[at])


def arguments_of(made: Rig, *more: str) -> list[str]:
    """`verify` on the topics of a rig."""
    return [
        "verify",
        "--kafka-bootstrap",
        made.bootstrap,
        "--prefix",
        made.prefix,
        "--group",
        made.group,
        "--json",
        *more,
    ]


def verified(made: Rig, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit status and answer of `toolcalls verify --json`."""
    result = CliRunner().invoke(build_app(), arguments_of(made, *more))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def faults_of(answer: dict[str, Any]) -> list[Fault]:
    """The listed differences as a test expects them."""
    return sorted((d["code"], d["topic"], d["key"]) for d in answer["listed"])
