"""One tracked call: the data that the fold keeps for a key, and its states.

Rules:
    NEW is the state of a key that is not tracked; it is never stored.
    `items[seq]` is what the event with that seq carried: a delta its bare bytes, any other event
    its body. So the number of items is the next seq, and a repeat can be compared with the first.
"""

from enum import Enum
from typing import Final

from processor.core.errors import InvariantViolated
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallAborted,
    CallStarted,
    ResponseEnded,
)
from processor.core.judgement import Judged


class State(Enum):
    """Where a key stands. OPEN and DONE are open calls; the others only swallow."""

    NEW = "new"
    OPEN = "open"
    DONE = "done"
    RELEASED = "released"
    REJECTED = "rejected"
    CLOSED = "closed"


OPEN_STATES: Final = frozenset({State.OPEN, State.DONE})

Item = bytes | CallStarted | ArgumentsDone | ResponseEnded | CallAborted


class Call:
    """Mutable state of one tracked key. Times are log time in milliseconds, offsets the topic's.

    `need_offset` and `need_time_ms` say from where the call could be read again: the first record
    that it needs, and the log time just before it. `room_bytes` is what the buffer may still grow.
    `repeat_offset` is the last record that repeated the key's first event, -1 without one, and
    `repeat_ms` the log time of the first such record. A closed call has lost all but the times.
    """

    __slots__ = (
        "duplicates",
        "final_copy_seen",
        "first_ms",
        "first_offset",
        "items",
        "judged",
        "last_ms",
        "last_seq",
        "need_offset",
        "need_time_ms",
        "outcome",
        "repeat_ms",
        "repeat_offset",
        "room_bytes",
        "started",
        "state",
        "text",
    )

    def __init__(self, offset: int, timestamp_ms: int, prior_ms: int, room_bytes: int) -> None:
        self.state = State.OPEN
        self.first_offset = self.need_offset = offset
        self.first_ms = timestamp_ms
        self.need_time_ms = prior_ms
        self.last_ms = max(prior_ms, timestamp_ms)
        self.room_bytes = room_bytes
        self.items: list[Item] = []
        self.last_seq = -1
        self.started: CallStarted | None = None
        self.duplicates = 0
        #: The whole buffer from the call's own end on.
        self.text = b""
        self.judged: Judged | None = None
        self.final_copy_seen = False
        self.outcome: str | None = None
        self.repeat_offset = -1
        self.repeat_ms = -1

    def begun(self) -> CallStarted:
        """What began the call. Raises: `InvariantViolated` for a key that was never an open call."""
        if self.started is None:
            raise InvariantViolated(f"the call read from offset {self.first_offset} has no start")
        return self.started

    @property
    def fragments(self) -> int:
        """How many deltas have been applied. Cost: linear in the items, used once per call."""
        return sum(1 for item in self.items if type(item) is bytes)

    def join(self) -> bytes:
        """The whole buffer, joined once, at the call's end."""
        return b"".join(item for item in self.items if type(item) is bytes)

    def repeats(self, seq: int, body: Body) -> bool:
        """True when an event with a seq already applied carries the same as the first one did."""
        first = self.items[seq]
        if isinstance(body, ArgumentsDelta):
            return first == body.fragment
        return first == body

    def release_memory(self) -> None:
        """Drop what only an open call needs; the key goes on being tracked."""
        self.last_seq = max(self.last_seq, len(self.items) - 1)
        self.items = []
        self.text = b""
        self.judged = None
