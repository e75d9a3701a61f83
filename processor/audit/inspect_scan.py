"""What the topics hold of one call: its events, verdicts, dead letters and results.

Rules:
    A call lies in one partition of each topic, found by its key; no other is read.
    The partition's fold is repeated for this key alone: other records only move log time. So its
    state is exact but for the bound of open calls, which depends on the others.
    Content is looked at and never kept: counts, offsets and digests are.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar, cast

from processor.audit.kafka_state import KafkaState
from processor.audit.log_scan import LogScan, Stretch
from processor.codec.records import (
    Undecodable,
    decode_completed,
    decode_event,
    decode_rejected,
    decode_result,
    encode_completed,
    encode_rejected,
)
from processor.core._record import field, record
from processor.core.assembly import Assembly, Place
from processor.core.call import OPEN_STATES
from processor.core.canonical import sha256
from processor.core.events import ArgumentsDone, CallStarted, ResponseEnded, StreamEvent
from processor.core.identity import CallKey
from processor.core.outcomes import CallCompleted, Outcome
from processor.core.results import CallResult
from processor.core.terms import Terms
from processor.runtime.absorb import Message
from processor.runtime.partitioner import partition_of
from processor.runtime.topics import TopicNames

#: Records of one kind that are kept to be shown; all are counted.
KEPT_MAX: Final = 100
_CLOCKS_APART_MS: Final = 60 * 60 * 1000

T = TypeVar("T")
OnProgress = Callable[[str, int, int], None]


@record
class RecordAt:
    """Where a record lies, and its timestamp in epoch milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@record
class Verdict:
    """A completed or rejected record of the call, without its arguments.

    `is_confirmed`: the re-fold writes the same bytes; None when it says nothing at that place.
    """

    at: RecordAt
    outcome: Outcome
    arguments_bytes: int
    is_confirmed: bool | None


@record
class DeadLetter:
    """A record with the call's key that could not be read; `origin` is where it came from."""

    at: RecordAt
    code: str
    detail: str
    origin: str


@record
class Result:
    """A result that was published for the call."""

    at: RecordAt
    result: CallResult


@record
class OpenCall:
    """A call that waits for more events. `text_sha256` is over the whole text, once it has ended."""

    state: str
    next_seq: int
    fragments: int
    text_bytes: int
    text_sha256: str | None
    duplicates_dropped: int


@record
class Events:
    """The call's events in the stretch that was read; `lives` counts how often it began anew."""

    kinds: Mapping[str, int]
    first: RecordAt | None
    last: RecordAt | None
    started: CallStarted | None
    lives: int
    seq_max: int
    fragment_bytes: int
    ends: tuple[int, ...]
    copies: int
    response_end: tuple[int, str] | None
    unread: int


@record
class Found:
    """Everything that the topics say of a call."""

    key: CallKey
    partition: int
    scanned_from: int
    scanned_to: int
    committed: int | None
    events: Events
    refolded: Mapping[int, bytes]
    open_call: OpenCall | None
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    dead_letters: list[DeadLetter] = field(default_factory=list[DeadLetter])
    results: list[Result] = field(default_factory=list[Result])
    unreadable: list[RecordAt] = field(default_factory=list[RecordAt])

    @property
    def is_known(self) -> bool:
        """True when any topic has a record of the call."""
        return bool(
            self.events.first
            or self.verdicts
            or self.dead_letters
            or self.results
            or self.unreadable
        )


class CallScan:
    """Looks for one call. `since_ms` bounds the reading; None reads whole partitions."""

    def __init__(
        self,
        scan: LogScan,
        state: KafkaState,
        topics: TopicNames,
        key: CallKey,
        on_progress: OnProgress,
        *,
        since_ms: int | None = None,
    ) -> None:
        self._scan = scan
        self._state = state
        self._topics = topics
        self._key = key
        self._encoded = key.encode()
        self._on_progress = on_progress
        self._since_ms = since_ms

    def find(self, terms: Terms, group: str) -> Found:
        """Read the call's partitions. Cost: about 2 µs for a record of the partition.

        Raises: a runtime error when Kafka does not answer or refuses.
        """
        committed = self._scan.committed(group, self._topics.events)
        partition, stretch = self._stretch(self._topics.events)
        commit = committed.get(partition)
        decided_to = None if commit is None else commit.offset
        tally = _Tally(self._topics.events, partition, self._encoded, terms, decided_to)
        for message in self._messages(self._topics.events, partition, stretch):
            tally.absorb(message)
        found = Found(
            key=self._key,
            partition=partition,
            scanned_from=stretch.start,
            scanned_to=stretch.end,
            committed=decided_to,
            events=tally.events(),
            refolded=tally.outcomes,
            open_call=tally.open_call(),
        )
        for topic, keep in (
            (self._topics.completed, _keep_completed),
            (self._topics.rejected, _keep_rejected),
            (self._topics.deadletter, _keep_dead_letter),
            (self._topics.results, _keep_result),
        ):
            self._gather(topic, keep, found)
        return found

    def _gather(
        self, topic: str, keep: Callable[[RecordAt, Message, Found], None], found: Found
    ) -> None:
        if not self._scan.partitions(topic):
            return
        partition, stretch = self._stretch(topic, apart_ms=_CLOCKS_APART_MS)
        for message in self._messages(topic, partition, stretch):
            if message.key() == self._encoded:
                at = RecordAt(topic, partition, message.offset(), message.timestamp()[1])
                try:
                    keep(at, message, found)
                except Undecodable:
                    _bounded(found.unreadable, at)

    def _stretch(self, topic: str, *, apart_ms: int = 0) -> tuple[int, Stretch]:
        partition = partition_of(self._encoded, len(self._scan.partitions(topic)))
        log = self._state.log_states(topic, [partition])[partition]
        start = log.first
        if self._since_ms is not None:
            time_ms = max(0, self._since_ms - apart_ms)
            found = self._scan.offsets_at(topic, [partition], time_ms)[partition]
            start = log.stable if found is None else found
        return partition, Stretch(start, log.stable)

    def _messages(self, topic: str, partition: int, stretch: Stretch) -> Iterator[Message]:
        total = stretch.end - stretch.start
        for piece in self._scan.read(topic, {partition: stretch}):
            messages = cast("list[Message]", piece)
            yield from messages
            self._on_progress(topic, messages[-1].offset() + 1 - stretch.start, total)


class _Tally:
    """Counts the events of one key and folds them."""

    def __init__(
        self, topic: str, partition: int, key: bytes, terms: Terms, decided_to: int | None
    ) -> None:
        self._topic, self._partition, self._key = topic, partition, key
        self._decided_to = decided_to
        self._assembly = Assembly(
            Place(topic, partition),
            terms.limits,
            terms.rules,
            wait_for_response=terms.wait_for_response,
        )
        #: SHA-256 of each record that the fold writes, by the offset that decided it.
        self.outcomes: dict[int, bytes] = {}
        self._kinds: Counter[str] = Counter()
        self._first: RecordAt | None = None
        self._last: RecordAt | None = None
        self._started: CallStarted | None = None
        self._lives = 0
        self._seq_max = -1
        self._fragment_bytes = 0
        self._ends: list[int] = []
        self._copies = 0
        self._response_end: tuple[int, str] | None = None
        self._unread = 0

    def absorb(self, message: Message) -> None:
        timestamp_ms = message.timestamp()[1]
        if message.key() != self._key:
            self._assembly.advance(timestamp_ms)
            return
        offset = message.offset()
        self._last = RecordAt(self._topic, self._partition, offset, timestamp_ms)
        self._first = self._first or self._last
        self._unread += self._decided_to is not None and offset >= self._decided_to
        try:
            event = decode_event(message.key(), message.value())
        except Undecodable:
            self._kinds["unreadable"] += 1
            self._assembly.advance(timestamp_ms)
            return
        self._count(event, offset)
        tracked = self._key in self._assembly.calls
        outcome = self._assembly.apply(self._key, event, offset, timestamp_ms)
        self._lives += not tracked and self._key in self._assembly.calls
        if outcome is not None and len(self.outcomes) < KEPT_MAX:
            self.outcomes[offset] = sha256(_encoded(outcome))

    def _count(self, event: StreamEvent, offset: int) -> None:
        body = event.body
        self._kinds[type(body).__name__] += 1
        self._seq_max = max(self._seq_max, event.seq)
        if isinstance(body, CallStarted):
            self._started = self._started or body
        elif isinstance(body, ArgumentsDone):
            self._copies += body.arguments is not None
            if len(self._ends) < KEPT_MAX:
                self._ends.append(offset)
        elif isinstance(body, ResponseEnded):
            self._response_end = (offset, body.outcome)
        else:
            self._fragment_bytes += len(getattr(body, "fragment", b""))

    def events(self) -> Events:
        return Events(
            kinds=dict(self._kinds),
            first=self._first,
            last=self._last,
            started=self._started,
            lives=self._lives,
            seq_max=self._seq_max,
            fragment_bytes=self._fragment_bytes,
            ends=tuple(self._ends),
            copies=self._copies,
            response_end=self._response_end,
            unread=self._unread,
        )

    def open_call(self) -> OpenCall | None:
        call = self._assembly.calls.get(self._key)
        if call is None or call.state not in OPEN_STATES:
            return None
        text = call.text or call.join()
        return OpenCall(
            state=call.state.value,
            next_seq=len(call.items),
            fragments=call.fragments,
            text_bytes=len(text),
            text_sha256=sha256(call.text).hex() if call.text else None,
            duplicates_dropped=call.duplicates,
        )


def _encoded(outcome: Outcome) -> bytes:
    if isinstance(outcome, CallCompleted):
        return encode_completed(outcome)
    return encode_rejected(outcome)


def _keep_completed(at: RecordAt, message: Message, found: Found) -> None:
    call = decode_completed(message.key(), message.value())
    confirmed = _confirmed(call, message, found)
    bare = replace(call, arguments=b"")
    _bounded(found.verdicts, Verdict(at, bare, len(call.arguments), confirmed))


def _keep_rejected(at: RecordAt, message: Message, found: Found) -> None:
    call = decode_rejected(message.key(), message.value())
    _bounded(found.verdicts, Verdict(at, call, 0, _confirmed(call, message, found)))


def _confirmed(outcome: Outcome, message: Message, found: Found) -> bool | None:
    digest = found.refolded.get(outcome.evidence.last_offset)
    return None if digest is None else digest == sha256(message.value() or b"")


def _keep_dead_letter(at: RecordAt, message: Message, found: Found) -> None:
    texts = {
        name: value.decode(errors="replace")
        for name, value in message.headers() or []
        if isinstance(value, bytes)
    }
    origin = (
        f"{texts.get('origin_topic', '?')}[{texts.get('origin_partition', '?')}]"
        f"@{texts.get('origin_offset', '?')}"
    )
    code, detail = texts.get("error_code", "?"), texts.get("error_detail", "")
    _bounded(found.dead_letters, DeadLetter(at, code, detail, origin))


def _keep_result(at: RecordAt, message: Message, found: Found) -> None:
    _bounded(found.results, Result(at, decode_result(message.key(), message.value())))


def _bounded(kept: list[T], one: T) -> None:
    if len(kept) < KEPT_MAX:
        kept.append(one)
