"""What proves a verdict: data only, rendered elsewhere.

Rules:
    Offsets and counts come from the log, times from the records' timestamps, never from a clock.
"""

from typing import Literal

from processor.core._record import record

FinalCopy = Literal["equal", "absent"]


@record
class Place:
    """Which partition a fold reads."""

    topic: str
    partition: int


@record
class Evidence:
    """Where on the events topic a call was read, and what was counted on the way.

    `last_offset` is the record that decided. `events` counts applied events; repeats that were
    dropped are in `duplicates_dropped` alone. `outcome` is the response's end, None while it runs.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    events: int
    fragments: int
    duplicates_dropped: int
    started_at_ms: int
    ended_at_ms: int
    final_copy: FinalCopy
    outcome: str | None
