"""Taking over a partition: from the committed offset and its metadata to a place to read from.

Rules:
    The committed offset is read stable, that is, after every transaction that could still move it.
    What does not fit is refused by name with the fix; nothing falls back to a default offset.
    `low` and the committed offset are explicit start positions of the assignment.
"""

from typing import Final, Literal

from processor.core._record import record
from processor.core.terms import TermsMark
from processor.runtime.errors import RestoreRefused
from processor.runtime.offset_metadata import MetadataError, OffsetMetadata, decode_metadata

Origin = Literal["restored", "fresh", "accepted_reset"]

#: What the client reports for a partition that the group has never committed.
NO_OFFSET: Final = -1001


@record
class Committed:
    """What the group has committed for one partition; `offset` below 0 when there is nothing."""

    topic: str
    partition: int
    offset: int
    metadata: str


@record
class LogEnds:
    """First and next offset of the partition's log now."""

    first_offset: int
    next_offset: int


@record
class TopicFacts:
    """What the topic is now: its id changes when it is recreated."""

    topic_id: str
    partitions: int


@record
class StartAt:
    """Where to begin reading, from where on outputs count, and the log time just before."""

    offset: int
    mute_below: int
    log_time_ms: int
    origin: Origin
    #: Today's terms are in force from here on, `former` below, when that is still needed.
    since: int
    former: TermsMark | None = None
    #: How many checkpoints belong to this position; None when the commit did not say.
    checkpoints: int | None = None


def plan_start(
    committed: Committed,
    ends: LogEnds,
    facts: TopicFacts,
    fold_version: int,
    terms: TermsMark,
    *,
    start: Literal["earliest", "latest"] | None,
    accept_reset: bool,
) -> StartAt:
    """Decide where a partition is taken over.

    Raises: `RestoreRefused` with a code, the place and the fix.
    """
    where = f"{committed.topic}[{committed.partition}]"
    if committed.partition >= facts.partitions:
        raise RestoreRefused(
            f"partitions_changed: {where} was assigned, and the topic had {facts.partitions}"
            " partitions when this process began. Keys have moved between partitions: drain the"
            " topic with the old count, then use a new topic"
        )
    if committed.offset < 0:
        return _fresh(where, ends, start)
    if not committed.metadata:
        return _reset_by_hand(where, committed, ends, accept_reset=accept_reset)
    try:
        metadata = decode_metadata(committed.metadata)
    except MetadataError as e:
        raise RestoreRefused(
            f"metadata_unreadable: {where} has committed offset {committed.offset} with metadata"
            f" that is not ours: {e}. Another application uses this group id; choose another one"
        ) from e
    _check_topic(where, metadata, facts, fold_version)
    _check_range(where, metadata, committed.offset, ends)
    since, former = _plan_terms(where, metadata, committed.offset, terms)
    return StartAt(
        metadata.low,
        committed.offset,
        metadata.log_time_ms,
        "restored",
        since,
        former,
        metadata.checkpoints,
    )


def _plan_terms(
    where: str, metadata: OffsetMetadata, offset: int, terms: TermsMark
) -> tuple[int, TermsMark | None]:
    """From where on today's terms decide, and the terms of what lies below and is still needed."""
    if metadata.terms == terms:
        return metadata.since, metadata.former
    if metadata.low == offset:
        return offset, None
    if metadata.former is not None:
        raise RestoreRefused(
            f"terms_changed_twice: {where} still needs records from before the last change of"
            " catalogue, limits or release setting, and they have changed again. Start with those"
            " of the last commit; when its calls have ended, change them"
        )
    return offset, metadata.terms


def _fresh(where: str, ends: LogEnds, start: Literal["earliest", "latest"] | None) -> StartAt:
    if start is None:
        raise RestoreRefused(
            f"no_committed_offset: the group has no position for {where}. A new group is started"
            " with --start earliest or --start latest; for an old one its offsets have expired or"
            " were deleted: find out from where on outputs are missing first"
        )
    offset = ends.first_offset if start == "earliest" else ends.next_offset
    return StartAt(offset, offset, -1, "fresh", offset)


def _reset_by_hand(
    where: str, committed: Committed, ends: LogEnds, *, accept_reset: bool
) -> StartAt:
    if not accept_reset:
        raise RestoreRefused(
            f"reset_by_hand: {where} has committed offset {committed.offset} without metadata, so"
            " somebody moved it by hand. Calls that were open there cannot be known. Start once"
            " with --accept-reset to begin there; such calls are then rejected as missing_start"
        )
    if not ends.first_offset <= committed.offset <= ends.next_offset:
        raise RestoreRefused(_out_of_range(where, committed.offset, ends))
    return StartAt(committed.offset, committed.offset, -1, "accepted_reset", committed.offset)


def _check_topic(
    where: str, metadata: OffsetMetadata, facts: TopicFacts, fold_version: int
) -> None:
    if metadata.fold != fold_version:
        raise RestoreRefused(
            f"fold_version: {where} was committed by fold version {metadata.fold}, this program has"
            f" {fold_version}. Run the release that wrote it, or one that knows both"
        )
    if metadata.topic_id != facts.topic_id:
        raise RestoreRefused(
            f"topic_recreated: {where} now has topic id {facts.topic_id}, the committed position"
            f" belongs to {metadata.topic_id}. The topic was deleted and made again: delete the"
            " group's offsets and start it with --start earliest"
        )
    if metadata.partitions != facts.partitions:
        raise RestoreRefused(
            f"partitions_changed: the topic of {where} has {facts.partitions} partitions, it had"
            f" {metadata.partitions} at the last commit. Keys have moved between partitions: drain"
            " the topic with the old count, then use a new topic"
        )


def _check_range(where: str, metadata: OffsetMetadata, offset: int, ends: LogEnds) -> None:
    if not metadata.low <= offset:
        raise RestoreRefused(
            f"metadata_unreadable: {where} has low-water {metadata.low} above its committed offset"
            f" {offset}"
        )
    # With no open call, `low` equals the committed offset, and retention may have emptied the log
    # up to there without any loss.
    if metadata.low < ends.first_offset or offset > ends.next_offset:
        raise RestoreRefused(_out_of_range(where, metadata.low, ends))


def _out_of_range(where: str, offset: int, ends: LogEnds) -> str:
    return (
        f"offset_out_of_range: {where} must be read from offset {offset}, the log holds"
        f" {ends.first_offset} to {ends.next_offset}. Records that open calls need are gone:"
        " raise the topic's retention.ms, then reset the group by hand and start with --accept-reset"
    )
