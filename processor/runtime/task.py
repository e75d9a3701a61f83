"""One owned partition: its fold, how far it has been read, and how far its outputs are muted.

Rules:
    Below `mute_below` (the committed offset) outputs were already given out by an earlier life:
    the fold runs, everything it says is dropped.
    A partition that is still being re-folded is never committed: its position lies below the
    committed offset, and committing it would move the group back.
    Below `since` the fold decides by the terms of that time, from there on by today's.
"""

from typing import Generic, Protocol, TypeVar

from processor.core.low_water import LowWater
from processor.core.terms import Terms
from processor.runtime.offset_metadata import OffsetMetadata


class Fold(Protocol):
    """What a partition's records are folded into, as far as the loop must know."""

    @property
    def version(self) -> int:
        """Version of the fold's rules; it travels in the offset metadata."""
        ...

    def adopt(self, terms: Terms) -> None:
        """Decide by `terms` from the next record on."""
        ...

    def low_water(self, next_offset: int) -> LowWater:
        """Where a restart after committing `next_offset` must begin to read."""
        ...


F = TypeVar("F", bound=Fold)


class Task(Generic[F]):
    """State of one assigned partition. Offsets are the topic's; `next_offset` is the next to read."""

    __slots__ = (
        "checkpoints",
        "committed_offset",
        "fold",
        "former",
        "mute_below",
        "next_offset",
        "partition",
        "partitions",
        "since",
        "terms",
        "topic_id",
    )

    def __init__(
        self,
        partition: int,
        fold: F,
        *,
        start_offset: int,
        mute_below: int,
        committed_offset: int | None,
        topic_id: str,
        partitions: int,
        terms: Terms,
        since: int,
        former: Terms | None = None,
    ) -> None:
        self.partition = partition
        self.fold = fold
        self.next_offset = start_offset
        self.mute_below = mute_below
        #: What the group last committed for us; None before the first commit of a fresh group.
        self.committed_offset = committed_offset
        self.topic_id = topic_id
        self.partitions = partitions
        self.terms = terms
        self.since = since
        #: Terms of what lies below `since`, while something below it is still needed.
        self.former = former
        #: How many checkpoints live with the next commit; None for a fold without any.
        self.checkpoints: int | None = None

    @property
    def restoring(self) -> bool:
        """True until the re-fold has reached the committed offset."""
        return self.next_offset < self.mute_below

    @property
    def dirty(self) -> bool:
        """True when there is a position to commit."""
        return not self.restoring and self.next_offset != self.committed_offset

    @property
    def terms_change_ahead(self) -> bool:
        """True while the next record may still be decided by the former terms."""
        return self.former is not None and self.next_offset < self.since

    def decide(self, offset: int) -> None:
        """Called before the record at `offset` is decided, while a change of terms is ahead."""
        if self.former is not None and offset >= self.since:
            self.fold.adopt(self.terms)

    def metadata(self) -> OffsetMetadata:
        """What must be committed together with `next_offset`."""
        low = self.fold.low_water(self.next_offset)
        return OffsetMetadata(
            fold=self.fold.version,
            low=low.offset,
            log_time_ms=low.log_time_ms,
            partitions=self.partitions,
            topic_id=self.topic_id,
            terms=self.terms.mark,
            since=self.since,
            former=self.former.mark if self.former and low.offset < self.since else None,
            checkpoints=self.checkpoints,
        )
