"""Which stretch of each partition is verified, by which terms, and what cannot be known of it.

Rules:
    Nothing above the committed offset is looked at: it has not been decided yet.
    What was decided is decided again by the terms of its time, which the commit names. Below the
    last change of terms, when that is long past, nobody knows them: left out, and said so.
    The re-fold begins earlier than what is compared, by more than a call may live, so that the
    calls that were open at the first compared record are known. Where the log begins later than
    that, calls may have been open before it: what only they explain is not decidable.
"""

from collections.abc import Mapping

from processor.audit.kafka_state import LogState
from processor.audit.log_scan import CommittedOffset, LogScan, Stretch
from processor.core._record import record
from processor.core.assembly import FOLD_VERSION
from processor.core.terms import Terms
from processor.runtime.errors import RestoreRefused
from processor.runtime.known_terms import KnownTerms
from processor.runtime.offset_metadata import MetadataError, OffsetMetadata, decode_metadata
from processor.runtime.restore import TopicFacts


@record
class Bound:
    """A bound as a person names it: a time in epoch milliseconds, or offsets by partition."""

    time_ms: int | None = None
    offsets: Mapping[int, int] | None = None


@record
class PartitionPlan:
    """What is done with one partition: re-fold `[begin, end)`, compare what `[start, end)` decided.

    Up to `committed`, at or above `end`, the group had decided when the plan was made.

    `begin_ms` is the time of the first re-folded record, -1 when there is none. With
    `empty_before` nothing was ever before `begin`. `left_out` offsets below `start` were asked for
    and cannot be compared, since their terms are not known.
    """

    partition: int
    begin: int
    start: int
    end: int
    committed: int
    begin_ms: int
    empty_before: bool
    terms: Terms
    since: int
    former: Terms | None
    left_out: int


class Planner:
    """Plans the partitions of one events topic. `assumed` decides where the terms are unknown."""

    def __init__(
        self,
        scan: LogScan,
        events_topic: str,
        facts: TopicFacts,
        terms: KnownTerms,
        *,
        look_back_ms: int,
        assumed: Terms | None = None,
    ) -> None:
        self._scan = scan
        self._topic = events_topic
        self._facts = facts
        self._terms = terms
        self._look_back_ms = look_back_ms
        self._assumed = assumed

    def plan(
        self,
        committed: Mapping[int, CommittedOffset],
        logs: Mapping[int, LogState],
        lower: Bound,
        upper: Bound,
    ) -> list[PartitionPlan]:
        """One plan for every partition with a committed offset, by number.

        Raises: `RestoreRefused` when a commit does not fit the topic, or names a catalogue that
            was not given.
        """
        lowers, uppers = self._offsets(lower, logs), self._offsets(upper, logs)
        return [
            self._plan_partition(p, committed[p], logs[p], lowers.get(p), uppers.get(p))
            for p in sorted(committed)
        ]

    def _offsets(self, bound: Bound, logs: Mapping[int, LogState]) -> dict[int, int]:
        if bound.offsets is not None:
            return dict(bound.offsets)
        if bound.time_ms is None:
            return {}
        found = self._scan.offsets_at(self._topic, sorted(logs), bound.time_ms)
        return {p: logs[p].high if offset is None else offset for p, offset in found.items()}

    def _plan_partition(
        self,
        partition: int,
        committed: CommittedOffset,
        log: LogState,
        lower: int | None,
        upper: int | None,
    ) -> PartitionPlan:
        where = f"{self._topic}[{partition}]"
        metadata = checked_metadata(where, committed, self._facts)
        end = min(committed.offset, committed.offset if upper is None else upper)
        start = log.first if lower is None else max(log.first, lower)
        start = min(start, end)
        begin = self._look_back(partition, log.first, start, end)
        terms = self._terms.known(metadata.terms)
        former = None if metadata.former is None else self._terms.known(metadata.former)
        # Records from `low` up to the change were decided by the former terms; older ones perhaps
        # by others still.
        known_from = min(metadata.since if former is None else metadata.low, end)
        left_out = 0
        if begin < known_from and begin < metadata.since and self._assumed is None:
            left_out = max(0, known_from - start)
            begin, start = known_from, max(start, known_from)
        first = self._scan.first_record(self._topic, partition, Stretch(begin, end))
        return PartitionPlan(
            partition=partition,
            begin=begin,
            start=start,
            end=end,
            committed=committed.offset,
            begin_ms=-1 if first is None else first.timestamp()[1],
            empty_before=begin == 0,
            terms=terms,
            since=metadata.since,
            former=former or self._assumed,
            left_out=left_out,
        )

    def _look_back(self, partition: int, first: int, start: int, end: int) -> int:
        if start == first:
            return first
        at_start = self._scan.first_record(self._topic, partition, Stretch(start, end))
        if at_start is None:
            return start
        time_ms = at_start.timestamp()[1] - self._look_back_ms
        begin = self._scan.offsets_at(self._topic, [partition], time_ms)[partition]
        return start if begin is None else max(first, min(begin, start))


def checked_metadata(
    where: str, committed: CommittedOffset, facts: TopicFacts | None
) -> OffsetMetadata:
    """The metadata of a commit, if it is ours and fits the topic. Raises: `RestoreRefused`."""
    if not committed.metadata:
        raise RestoreRefused(
            f"reset_by_hand: {where} has committed offset {committed.offset} without metadata, so"
            " the terms of what lies below are not known. Name a group whose assembler has"
            " committed since"
        )
    try:
        metadata = decode_metadata(committed.metadata)
    except MetadataError as e:
        raise RestoreRefused(
            f"metadata_unreadable: {where} has committed offset {committed.offset} with metadata"
            f" that is not ours: {e}. Name the assembler's group"
        ) from e
    if metadata.fold != FOLD_VERSION:
        raise RestoreRefused(
            f"fold_version: {where} was committed by fold version {metadata.fold}, this program has"
            f" {FOLD_VERSION}. Use the release that wrote it"
        )
    if facts is not None and metadata.topic_id != facts.topic_id:
        raise RestoreRefused(
            f"topic_recreated: {where} now has topic id {facts.topic_id}, the committed position"
            f" belongs to {metadata.topic_id}"
        )
    if facts is not None and metadata.partitions != facts.partitions:
        raise RestoreRefused(
            f"partitions_changed: the topic of {where} has {facts.partitions} partitions, it had"
            f" {metadata.partitions} at the last commit"
        )
    return metadata
