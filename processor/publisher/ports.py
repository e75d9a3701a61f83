"""The port between the publisher's logic and whatever carries its records away.

Rules:
    `offer` never waits and never calls `report` itself: reports come from another call or thread.
    Every accepted record is reported exactly once, delivered or failed.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from processor.codec.headers import Headers


class OutRecord(NamedTuple):
    """One record on its way; the partition follows from the key (murmur2)."""

    topic: str
    key: bytes
    value: bytes
    headers: Headers


#: Called once per accepted record: None when it was delivered, else the client's error code.
Report = Callable[[OutRecord, str | None], None]


class EventSink(Protocol):
    """Takes records in order, keeps a bounded number of them, and says what became of each."""

    def offer(self, record: OutRecord, report: Report) -> bool:
        """Take `record` without waiting; False when the queue is full and nothing was taken.

        Raises: `SinkRefused` when this record, or the whole sink, can never succeed.
        """
        ...

    def offer_late(self, record: OutRecord) -> None:
        """Best effort: take `record` now or as soon as there is room; never waits, never fails."""
        ...

    def wait_for_room(self, timeout_s: float) -> None:
        """Wait until it is worth offering again, at most `timeout_s`; may return early."""
        ...

    def flush(self, timeout_s: float) -> int:
        """Wait until all is reported, at most `timeout_s`; returns how many records are not."""
        ...

    def close(self, timeout_s: float) -> int:
        """As `flush`, then report the rest as failed and stop; returns how many those were."""
        ...
