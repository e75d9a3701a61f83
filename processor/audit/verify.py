"""Verification: the outputs of a stretch of the events topic against a re-fold of it.

Rules:
    The place of the deciding record names an output; the first record with that place must be the
    one that the re-fold writes, byte for byte. A later record of the same key is a declared repeat
    when the re-fold says it too, at its own place; anything else is doubled or invented.
    Partitions of the events topic are re-folded one after the other, so the memory is that of the
    open calls of one partition; outputs wait in an index on disk.
    Nothing is written to Kafka, no group is joined.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, cast

from processor.audit.kafka_state import KafkaState, LogState
from processor.audit.log_scan import LogScan, Stretch
from processor.audit.verify_index import (
    HEADERS_DIGEST_BYTES,
    ExpectedIndex,
    Output,
    Place,
    digest_of,
)
from processor.audit.verify_plan import Bound, PartitionPlan, Planner
from processor.audit.verify_refold import Expected, Refold
from processor.audit.verify_report import (
    COMPLETED,
    KINDS,
    LISTED_MAX,
    REJECTED,
    Difference,
    DifferenceCode,
    Report,
    shown_key,
)
from processor.codec.headers import Headers
from processor.codec.records import Undecodable, decode_completed, decode_rejected
from processor.core._record import field, record
from processor.core.errors import Misuse
from processor.core.evidence import Evidence
from processor.core.terms import Terms
from processor.runtime.absorb import Message
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.known_terms import KnownTerms
from processor.runtime.output_writer import OutputTopics, OutputWriter
from processor.runtime.partitioner import partition_of
from processor.runtime.restore import TopicFacts
from processor.runtime.topics import TopicNames, dead_letter_bytes

#: How much earlier than the first compared event an output may be dated: clocks of two machines.
CLOCKS_APART_MS: Final = 60 * 60 * 1000
_VALUE_AT: Final = -HEADERS_DIGEST_BYTES

#: Called with the phase, the records done and the records there are.
OnProgress = Callable[[str, int, int], None]


@record
class VerifySettings:
    """What is verified. Times in milliseconds; `look_back_ms` is more than a call may live."""

    bootstrap: str
    topics: TopicNames
    group: str
    look_back_ms: int
    lower: Bound = field(default_factory=Bound)
    upper: Bound = field(default_factory=Bound)
    listed_max: int = LISTED_MAX
    value_bytes_max: int = 1024 * 1024
    folder: Path | None = None


def verify(
    settings: VerifySettings,
    terms: KnownTerms,
    on_progress: OnProgress,
    *,
    assumed: Terms | None = None,
) -> Report:
    """Compare the outputs of a stretch with what the events say.

    Cost: about 15 µs for an event and 15 µs for an output, 40 bytes of disk for an output.

    Raises: `Misuse` when the group has committed nothing; `RestoreRefused` when its commits do not
        fit the topic or name an unknown catalogue; `TopicRefused`, `Unreachable`.
    """
    topics, admin = settings.topics, KafkaAdmin(settings.bootstrap)
    events = admin.describe_topic(topics.events)
    writer = OutputWriter(
        OutputTopics(topics.completed, topics.rejected, topics.deadletter),
        topics.events,
        dead_letter_bytes_max=dead_letter_bytes(admin.describe_topic(topics.deadletter).settings),
    )
    with LogScan(settings.bootstrap) as scan, ExpectedIndex(settings.folder) as index:
        committed = scan.committed(settings.group, topics.events)
        if not committed:
            raise Misuse(
                f"the group {settings.group} has committed nothing on {topics.events}: name the"
                " assembler's group with --group"
            )
        state = KafkaState(settings.bootstrap)
        planner = Planner(
            scan,
            topics.events,
            TopicFacts(events.topic_id, events.partitions),
            terms,
            look_back_ms=settings.look_back_ms,
            assumed=assumed,
        )
        logs = state.log_states(topics.events, sorted(committed))
        plans = planner.plan(committed, logs, settings.lower, settings.upper)
        run = _Run(settings, scan, state, index, plans, on_progress)
        run.refold(writer)
        run.compare()
        run.list_missing()
        run.judge_beyond()
        run.report.index_bytes = index.bytes_on_disk()
        return run.report


class _Run:
    """One verification under way."""

    def __init__(
        self,
        settings: VerifySettings,
        scan: LogScan,
        state: KafkaState,
        index: ExpectedIndex,
        plans: list[PartitionPlan],
        on_progress: OnProgress,
    ) -> None:
        self._settings = settings
        self._events = settings.topics.events
        self._outputs = (
            settings.topics.completed,
            settings.topics.rejected,
            settings.topics.deadletter,
        )
        self._scan = scan
        self._index = index
        self._plans = {plan.partition: plan for plan in plans}
        self._on_progress = on_progress
        #: Keys of calls that may have begun before the stretch: as many as were open there.
        self._unsure_keys: dict[Place, bytes] = {}
        self._undecidable: set[bytes] = set()
        self.report = Report(plans, listed_max=settings.listed_max)
        self._logs = [state.log_states(topic, scan.partitions(topic)) for topic in self._outputs]
        self._deleted_before_ms = [
            {p: self._first_ms(topic, p, log) for p, log in logs.items() if log.first > 0}
            for topic, logs in zip(self._outputs, self._logs, strict=True)
        ]

    def _first_ms(self, topic: str, partition: int, log: LogState) -> int | None:
        """Time of the oldest record that retention has left; None when it has left none."""
        first = self._scan.first_record(topic, partition, Stretch(log.first, log.stable))
        return None if first is None else first.timestamp()[1]

    # --- what must be there --------------------------------------------------------------------

    def refold(self, writer: OutputWriter) -> None:
        """Fill the index."""
        total = sum(plan.end - plan.begin for plan in self._plans.values())
        done = 0
        for plan in self._plans.values():
            fold = Refold(
                self._events,
                plan,
                writer,
                value_bytes_max=self._settings.value_bytes_max,
                look_back_ms=self._settings.look_back_ms,
            )
            at = plan.begin
            stretch = {plan.partition: Stretch(plan.begin, plan.end)}
            for piece in self._scan.read(self._events, stretch):
                messages = cast("list[Message]", piece)
                self._keep(plan, [said for m in messages if (said := fold.absorb(m))])
                self.report.events_read += len(messages)
                last = messages[-1].offset() + 1
                done, at = done + last - at, last
                self._on_progress("events", done, total)
            done += plan.end - at
            self.report.open_at_end += fold.open_count

    def _keep(self, plan: PartitionPlan, said: Sequence[Expected]) -> None:
        outputs: list[Output] = []
        for offset, timestamp_ms, output, is_unsure in said:
            kind = self._outputs.index(output.topic)
            if is_unsure:
                self._unsure_keys[Place(plan.partition, offset)] = output.key or b""
            self.report.expected[KINDS[kind]] += 1
            outputs.append(
                Output(
                    Place(plan.partition, offset),
                    kind,
                    digest_of(output.key, output.value, output.headers),
                    is_unsure=is_unsure,
                    is_retired=self._is_retired(kind, output.key, timestamp_ms),
                )
            )
        if outputs:
            self._index.add(outputs)

    def _is_retired(self, kind: int, key: bytes | None, timestamp_ms: int) -> bool:
        """True when retention may have deleted an output of that time."""
        deleted = self._deleted_before_ms[kind]
        if not deleted:
            return False
        where: Iterable[int] = (
            deleted if key is None else [partition_of(key, len(self._logs[kind]))]
        )
        for partition in where:
            if partition in deleted:
                first_ms = deleted[partition]
                if first_ms is None or timestamp_ms <= first_ms + CLOCKS_APART_MS:
                    return True
        return False

    # --- what is there -------------------------------------------------------------------------

    def compare(self) -> None:
        """Read the output topics and compare each record."""
        stretches = [self._stretches(kind) for kind in range(len(KINDS))]
        total = sum(s.end - s.start for of_kind in stretches for s in of_kind.values())
        before = 0
        for kind, of_kind in enumerate(stretches):
            at = {p: s.start for p, s in of_kind.items()}
            for piece in self._scan.read(self._outputs[kind], of_kind):
                for message in cast("list[Message]", piece):
                    self._compare(kind, message)
                    at[message.partition()] = message.offset() + 1
                done = sum(at[p] - of_kind[p].start for p in of_kind)
                self._on_progress("outputs", before + done, total)
            before += sum(s.end - s.start for s in of_kind.values())

    def _stretches(self, kind: int) -> dict[int, Stretch]:
        """From the time of the first compared event on, to where the topic ends now."""
        logs, topic = self._logs[kind], self._outputs[kind]
        whole = {p: Stretch(log.first, log.high) for p, log in logs.items()}
        times_ms = [
            plan.begin_ms
            for plan in self._plans.values()
            if plan.begin_ms >= 0 and plan.begin < plan.end
        ]
        if not times_ms or any(plan.empty_before for plan in self._plans.values()):
            return whole
        found = self._scan.offsets_at(topic, sorted(logs), min(times_ms) - CLOCKS_APART_MS)
        return {
            p: Stretch(s.end if found[p] is None else cast("int", found[p]), s.end)
            for p, s in whole.items()
        }

    def _compare(self, kind: int, message: Message) -> None:
        place = self._place_of(kind, message)
        if place is None:
            self._differs("invented", kind, message, None)
            return
        plan = self._plans.get(place.partition)
        if plan is None or place.offset < plan.start or plan.end <= place.offset < plan.committed:
            self.report.outside_count += 1
            return
        if place.offset >= plan.end:
            at = Place(message.partition(), message.offset())
            self._index.add_beyond(place, kind, at, message.key())
            return
        expected = self._index.find(place)
        if expected is not None and expected.is_seen:
            self._differs("doubled", kind, message, place)
            return
        code = _judge(expected, kind, message)
        if expected is not None:
            self._index.mark_seen(place)
        if code is None:
            self.report.agreeing[KINDS[kind]] += 1
        elif (expected is not None and expected.is_unsure) or self._began_before(kind, message):
            self._undecidable.add(message.key() or b"")
        else:
            self._differs(code, kind, message, place)

    def _place_of(self, kind: int, message: Message) -> Place | None:
        """The event that a record says decided it; partition -1 for another events topic's."""
        topic, partition, offset = _named_place(message) or _evidence_place(kind, message)
        if partition < 0:
            return None
        return Place(partition, offset) if topic == self._events else Place(-1, -1)

    def _began_before(self, kind: int, message: Message) -> bool:
        """True when the call began before the re-folded stretch, so that nothing proves it wrong."""
        evidence = _evidence(kind, message)
        if evidence is None or evidence.topic != self._events:
            return False
        plan = self._plans.get(evidence.partition)
        return plan is not None and evidence.first_offset < plan.begin

    def _differs(
        self, code: DifferenceCode, kind: int, message: Message, event: Place | None
    ) -> None:
        found_at = (message.partition(), message.offset())
        key = shown_key(message.key())
        self.report.differs(Difference(code, self._outputs[kind], *found_at, key, event))

    # --- what is not there, or too early -------------------------------------------------------

    def list_missing(self) -> None:
        """Everything that must be there and was not found."""
        for output in self._index.unseen():
            if output.is_retired:
                self.report.undecided["output_deleted"] += 1
            elif output.is_unsure:
                self._undecidable.add(self._unsure_keys[output.place])
            else:
                self._list_missing(output)
        if self._undecidable:
            self.report.undecided["open_before_range"] = len(self._undecidable)

    def _list_missing(self, output: Output) -> None:
        topic, partition, key = self._outputs[output.kind], None, None
        if not self.report.is_full:
            at = output.place
            found = self._scan.first_record(
                self._events, at.partition, Stretch(at.offset, at.offset + 1)
            )
            key = None if found is None else found.key()
            if key is not None:
                partition = partition_of(key, len(self._logs[output.kind]))
        self.report.differs(
            Difference("missing", topic, partition, None, shown_key(key), output.place)
        )

    def judge_beyond(self) -> None:
        """Records of places that were not committed at first: by now they must be."""
        committed = None
        for place, kind, at, key in self._index.beyond():
            if committed is None:
                committed = self._scan.committed(self._settings.group, self._events)
            decided = committed.get(place.partition)
            if decided is None or place.offset >= decided.offset:
                topic = self._outputs[kind]
                self.report.differs(Difference("invented", topic, *at, shown_key(key), place))
            else:
                self.report.outside_count += 1


def _judge(expected: Output | None, kind: int, message: Message) -> DifferenceCode | None:
    """What is wrong with the first record of a place; None when it is as it must be."""
    if expected is None:
        return "invented"
    if expected.kind != kind:
        return "other_verdict"
    found = digest_of(message.key(), message.value(), _headers(message))
    if found == expected.digest:
        return None
    same = found[:_VALUE_AT] == expected.digest[:_VALUE_AT]
    return "headers_altered" if same else "altered"


def _headers(message: Message) -> Headers:
    try:
        return message.headers() or []
    except (UnicodeDecodeError, SystemError):
        # A header name that is no UTF-8 makes the client refuse all; ours are.
        return []


def _named_place(message: Message) -> tuple[str, int, int] | None:
    """The place in the header `ce_id`, which every output has."""
    for name, value in _headers(message):
        if name == "ce_id" and isinstance(value, bytes):
            parts = value.decode(errors="replace").rsplit("/", 2)
            if len(parts) == 3 and all(p.isascii() and p.isdecimal() for p in parts[1:]):
                partition, offset = int(parts[1]), int(parts[2])
                if partition < 1 << 18 and offset < 1 << 44:
                    return parts[0], partition, offset
    return None


def _evidence_place(kind: int, message: Message) -> tuple[str, int, int]:
    evidence = _evidence(kind, message)
    if evidence is None:
        return "", -1, -1
    return evidence.topic, evidence.partition, evidence.last_offset


def _evidence(kind: int, message: Message) -> Evidence | None:
    try:
        if kind == COMPLETED:
            return decode_completed(message.key(), message.value()).evidence
        if kind == REJECTED:
            return decode_rejected(message.key(), message.value()).evidence
    except Undecodable:
        pass
    return None
