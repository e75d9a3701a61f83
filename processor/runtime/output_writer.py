"""What the fold says, as records of the output topics: encoded, keyed, with their headers.

Rules:
    An output stands in the partition of its own topic that its key leads to (murmur2).
    A dead letter keeps the original bytes; its headers say from where it came and why.
    The id of an output is derived from the place that decided it, so a replay writes the same.
"""

from typing import Final

from processor.codec.headers import Headers, cloudevents_headers, position_id, trace_headers
from processor.codec.records import Undecodable, encode_completed, encode_rejected
from processor.core._record import record
from processor.core.canonical import sha256
from processor.core.outcomes import CallCompleted, Outcome
from processor.runtime.absorb import Message
from processor.runtime.outbox import OutputRecord

SOURCE: Final = "toolcalls/assembler"


@record
class OutputTopics:
    """Where the assembler writes to."""

    completed: str
    rejected: str
    dead_letter: str


class OutputWriter:
    """Writes the outcomes and dead letters of one events topic."""

    def __init__(
        self, topics: OutputTopics, events_topic: str, *, dead_letter_bytes_max: int
    ) -> None:
        self._topics = topics
        self._events_topic = events_topic
        self._dead_letter_bytes_max = dead_letter_bytes_max

    def outcome(self, outcome: Outcome, message: Message) -> OutputRecord:
        """The record of a call decided by `message`, whose trace context it goes on. Cost: 10 µs."""
        evidence = outcome.evidence
        ce_id = position_id(evidence.topic, evidence.partition, evidence.last_offset)
        if isinstance(outcome, CallCompleted):
            topic, value, kind = self._topics.completed, encode_completed(outcome), "completed"
        else:
            topic, value, kind = self._topics.rejected, encode_rejected(outcome), "rejected"
        headers = cloudevents_headers(ce_id, SOURCE, f"toolcall.{kind}")
        headers += _trace_of(message)
        return OutputRecord(topic, message.key(), value, headers)

    def dead_letter(self, message: Message, refusal: Undecodable) -> OutputRecord:
        """The original bytes and key, with the origin and the code of the refusal as headers.

        A value larger than the topic is sure to take is not copied: topics bound the compressed
        size, so a record may be legal on one topic and, unpacked or packed otherwise, too large for
        another. Its size and digest are headers then, and the origin says where it lies.
        """
        value, key = message.value(), message.key()
        partition, offset = message.partition(), message.offset()
        ce_id = position_id(self._events_topic, partition, offset)
        headers = cloudevents_headers(ce_id, SOURCE, "toolcall.dead_letter")
        headers += [
            ("origin_topic", self._events_topic.encode()),
            ("origin_partition", str(partition).encode()),
            ("origin_offset", str(offset).encode()),
            ("error_code", refusal.code.encode()),
            ("error_detail", refusal.detail.encode()),
        ]
        if len(value or b"") + len(key or b"") > self._dead_letter_bytes_max:
            headers += [
                ("value_bytes", str(len(value or b"")).encode()),
                ("value_sha256", sha256(value or b"").hex().encode()),
            ]
            value = None
            if len(key or b"") > self._dead_letter_bytes_max:
                key = None
        return OutputRecord(self._topics.dead_letter, key, value, headers)


def _trace_of(message: Message) -> Headers:
    """The trace context of a record; a header name that is no UTF-8 makes the client refuse all."""
    try:
        return trace_headers(message.headers())
    except (UnicodeDecodeError, SystemError):
        return []
