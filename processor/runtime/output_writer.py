"""What the fold says, as records of the output topics: encoded, keyed, with their headers.

Rules:
    An output stands in the partition of its own topic that its key leads to (murmur2).
    The id of an output is derived from the place that decided it, so a replay writes the same.
"""

from typing import Final

from processor.codec.headers import Headers, cloudevents_headers, position_id, trace_headers
from processor.codec.records import Undecodable, encode_completed, encode_rejected
from processor.core._record import record
from processor.core.outcomes import CallCompleted, Outcome
from processor.runtime.absorb import Message
from processor.runtime.dead_letters import DeadLetterWriter
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
        self._dead_letters = DeadLetterWriter(
            topics.dead_letter, events_topic, SOURCE, bytes_max=dead_letter_bytes_max
        )

    def outcome(self, outcome: Outcome, message: Message) -> OutputRecord:
        """The record of a call decided by `message`, whose trace context it goes on. Cost: 10 µs."""
        evidence = outcome.evidence
        ce_id = position_id(evidence.topic, evidence.partition, evidence.last_offset)
        if isinstance(outcome, CallCompleted):
            topic, value, kind = self._topics.completed, encode_completed(outcome), "completed"
        else:
            topic, value, kind = self._topics.rejected, encode_rejected(outcome), "rejected"
        headers = cloudevents_headers(ce_id, SOURCE, f"toolcall.{kind}")
        headers += trace_of(message)
        return OutputRecord(topic, message.key(), value, headers)

    def dead_letter(self, message: Message, refusal: Undecodable) -> OutputRecord:
        """The record that keeps the original bytes of an unreadable one."""
        return self._dead_letters.write(message, refusal)


def trace_of(message: Message) -> Headers:
    """The trace context of a record; a header name that is no UTF-8 makes the client refuse all."""
    try:
        return trace_headers(message.headers())
    except (UnicodeDecodeError, SystemError):
        return []
