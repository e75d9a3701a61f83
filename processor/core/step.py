"""What a transition of the fold sees, and what the fold counts."""

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from processor.core._record import record
from processor.core.events import Body, ResponseOutcome

#: The reason by which a response's end rejects a call that it does not complete.
REASON_OF_OUTCOME: Final[dict[ResponseOutcome, str]] = {
    "truncated": "truncated",
    "content_filter": "content_filter",
    "refusal": "refusal",
    "failed": "response_failed",
    "cancelled": "response_cancelled",
    "stream_ended": "stream_ended",
    "unknown": "unexpected_finish_reason",
}

B_co = TypeVar("B_co", bound=Body, covariant=True)


@dataclass(slots=True)
class Counts:
    """What the fold dropped without an outcome; mutable, read by the runtime for its metrics."""

    duplicates: int = 0
    swallowed: int = 0
    late: int = 0
    expiries_void: int = 0


@record
class Step(Generic[B_co]):
    """One event at its place in the log, as a transition sees it: with the body it is listed for."""

    key: bytes
    seq: int
    body: B_co
    offset: int
    timestamp_ms: int
