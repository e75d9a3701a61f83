"""The normaliser's folding: chunks of responses, as their vendors sent them, into events of calls.

Rules:
    What a chunk says is a pure function of the chunks topic: the time of an event is its chunk's.
    An event that no reader would take is written as the call's `CallAborted` under the same seq; so
    the call is rejected by name, and what still comes of it is swallowed by the assembler.
    A chunk that cannot be used goes to the dead-letter topic, whatever it did to its response.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from processor.codec.chunk_records import decode_chunk
from processor.codec.dead_letter_codes import Undecodable, Unencodable
from processor.codec.event_records import event_record, usage_record
from processor.codec.headers import Headers
from processor.core._record import record
from processor.core.chunks import ResponseChunk
from processor.core.events import CallAborted, StreamEvent
from processor.core.gate import NoCatalogue
from processor.core.limits import KEY_BYTES_MAX, Limits
from processor.core.terms import Terms
from processor.core.usage import ResponseUsage
from processor.dialects.normalise import VERSION, Normalised, ResponseFold
from processor.dialects.stream import KeyedEvent
from processor.runtime.absorb import Message
from processor.runtime.dead_letters import DeadLetterWriter
from processor.runtime.outbox import Outbox, OutputRecord
from processor.runtime.output_writer import trace_of
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.task import Task
from processor.runtime.topics import MESSAGE_BYTES

SOURCE: Final = "toolcalls/normaliser"
#: The fold has no terms of its own: its bounds belong to its version.
_TERMS: Final = Terms(Limits(), NoCatalogue())
#: What the client adds to key and value at most: the id repeats the key, then the trace context.
_OVERHEAD_BYTES: Final = KEY_BYTES_MAX + 1024
_EVENT_BYTES_MAX: Final = MESSAGE_BYTES - _OVERHEAD_BYTES


@record
class NormaliserTopics:
    """Where the normaliser reads from and writes to."""

    chunks: str
    events: str
    usage: str
    dead_letter: str


class Normalising:
    """The `Folding` of the chunks topic."""

    def __init__(
        self, topics: NormaliserTopics, *, value_bytes_max: int, dead_letter_bytes_max: int
    ) -> None:
        self._topics = topics
        self._value_bytes_max = value_bytes_max
        self._dead_letters = DeadLetterWriter(
            topics.dead_letter, topics.chunks, SOURCE, bytes_max=dead_letter_bytes_max
        )
        self.version = VERSION
        self.mark = _TERMS.mark
        self.events_count = 0
        self.output_bytes_count = 0
        self.dead_letters_count = 0
        self.dropped_count = 0

    def begin(self, partition: int, plan: StartAt, facts: TopicFacts) -> Task[ResponseFold]:
        """The task of a partition that was just taken over."""
        return Task(
            partition,
            ResponseFold(log_time_ms=plan.log_time_ms),
            start_offset=plan.offset,
            mute_below=plan.mute_below,
            committed_offset=plan.mute_below if plan.origin == "restored" else None,
            topic_id=facts.topic_id,
            partitions=facts.partitions,
            terms=_TERMS,
            since=plan.since,
        )

    def absorb(
        self, messages: Sequence[Message], tasks: Mapping[int, Task[ResponseFold]], outbox: Outbox
    ) -> None:
        """Apply `messages` in order. Cost: the dialect's, 10 to 30 µs a chunk."""
        for message in messages:
            task = tasks.get(message.partition())
            if task is None:
                self.dropped_count += 1
                continue
            self.events_count += 1
            outputs = self._outputs(message, task)
            task.next_offset = message.offset() + 1
            if message.offset() >= task.mute_below:
                self.output_bytes_count += sum(len(output.value or b"") for output in outputs)
                outbox.extend(outputs)

    def append_due(self, tasks: Mapping[int, Task[ResponseFold]], outbox: Outbox) -> int:
        """Nothing: what is silent for too long is forgotten, and its calls expire."""
        del tasks, outbox
        return 0

    def held_bytes(self, tasks: Mapping[int, Task[ResponseFold]]) -> int:
        """Nothing: a response keeps counters, no buffers."""
        del tasks
        return 0

    def append_checkpoints(self, task: Task[ResponseFold], outbox: Outbox) -> None:
        """Nothing: a response does not live long, so its log is short."""
        del task, outbox

    def _outputs(self, message: Message, task: Task[ResponseFold]) -> Outbox:
        timestamp_ms = message.timestamp()[1]
        try:
            chunk = decode_chunk(
                message.key(), message.value(), value_bytes_max=self._value_bytes_max
            )
        except Undecodable as refusal:
            task.fold.advance(timestamp_ms)
            return [self._dead_letter(message, refusal)]
        key = message.key() or b""  # the codec refuses a null key
        said = task.fold.apply(key, chunk, message.offset(), timestamp_ms)
        return self._written(message, chunk, said)

    def _written(self, message: Message, chunk: ResponseChunk, said: Normalised) -> Outbox:
        trace = trace_of(message) if said.events or said.usage else []
        at_ms = message.timestamp()[1] if chunk.at_ms is None else chunk.at_ms
        outputs = [self._event(keyed, at_ms, trace) for keyed in said.events]
        if said.usage is not None:
            outputs.append(self._usage(message, said.usage, trace))
        if said.refusal is not None:
            refusal = Undecodable(said.refusal.code, said.refusal.detail)
            outputs.append(self._dead_letter(message, refusal))
        return outputs

    def _event(self, keyed: KeyedEvent, at_ms: int, trace: Headers) -> OutputRecord:
        key, event = keyed.key.encode(), keyed.event
        try:
            value, headers = event_record(
                key, StreamEvent(event.seq, event.body, at_ms), SOURCE, trace
            )
        except Unencodable:
            return self._aborted(key, event.seq, "malformed_event", at_ms, trace)
        if len(key) + len(value) > _EVENT_BYTES_MAX:
            return self._aborted(key, event.seq, "too_large", at_ms, trace)
        return OutputRecord(self._topics.events, key, value, headers)

    def _aborted(
        self, key: bytes, seq: int, reason: str, at_ms: int, trace: Headers
    ) -> OutputRecord:
        event = StreamEvent(seq, CallAborted(reason), at_ms)
        return OutputRecord(self._topics.events, key, *event_record(key, event, SOURCE, trace))

    def _usage(self, message: Message, usage: ResponseUsage, trace: Headers) -> OutputRecord:
        try:
            return OutputRecord(self._topics.usage, *usage_record(usage, SOURCE, trace))
        except Unencodable as e:
            return self._dead_letter(message, Undecodable("invalid_field", str(e)))

    def _dead_letter(self, message: Message, refusal: Undecodable) -> OutputRecord:
        self.dead_letters_count += 1
        return self._dead_letters.write(message, refusal)
