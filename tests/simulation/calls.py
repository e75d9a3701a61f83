"""Small logs of interleaved calls: whole, cut, with repeats, holes, late events, and bad bytes."""

import functools
import random
from typing import NamedTuple

from processor.codec.records import encode_event
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    Body,
    CallStarted,
    ResponseEnded,
    ResponseOutcome,
    StreamEvent,
)
from processor.core.identity import CallKey

#: Whether a call may be given out at its own end depends on its tool.
EARLY_TOOL, LATE_TOOL = "lookup_order", "issue_refund"


class Line(NamedTuple):
    """One record to write: event `seq` of call `call`, or bytes that are none."""

    call: int
    seq: int
    pieces: int
    outcome: ResponseOutcome = "completed"
    bad: bool = False

    def __str__(self) -> str:
        """Short, for people."""
        return f"{self.call}#{'bad' if self.bad else self.seq}"

    @property
    def key(self) -> bytes:
        """Key of the record."""
        return _key(self.call).encode()

    @property
    def value(self) -> bytes:
        """Value of the record."""
        return b"\xc3\x01nothing" if self.bad else encoded(*self[:4])


def _key(call: int) -> CallKey:
    return CallKey("acme", f"req_{call}", f"resp_{call}", "call_A")


@functools.cache
def encoded(call: int, seq: int, pieces: int, outcome: ResponseOutcome) -> bytes:
    """The value of one event of a whole call in `pieces` fragments."""
    key = _key(call)
    text = b'{"order_id":"ORDER-%d"}' % (1000 + call)
    size = -(-len(text) // pieces)
    bodies: list[Body] = [
        CallStarted(*key, tool=LATE_TOOL if call % 2 else EARLY_TOOL, dialect="openai-responses"),
        *(ArgumentsDelta(text[size * i : size * (i + 1)]) for i in range(pieces)),
        ArgumentsDone(text),
        ResponseEnded(outcome),
    ]
    return encode_event(StreamEvent(seq, bodies[seq], 1_764_550_000_000 + seq))


def draw_log(rng: random.Random, calls: int) -> list[Line]:
    """Interleaved calls, at most 60 records or so."""
    waiting = [_draw_call(rng, number) for number in range(calls)]
    log: list[Line] = []
    while waiting:
        chosen = rng.choice(waiting[:3])
        log.append(chosen.pop(0))
        if not chosen:
            waiting.remove(chosen)
    return log


def _draw_call(rng: random.Random, number: int) -> list[Line]:
    pieces = rng.randint(1, 4)
    outcome: ResponseOutcome = "truncated" if rng.random() < 0.25 else "completed"
    lines = [Line(number, seq, pieces, outcome) for seq in range(pieces + 3)]
    place = rng.randrange(1, len(lines))
    fault = rng.randrange(12)
    if fault == 0:
        del lines[place:]
    elif fault == 1:
        del lines[place]
    elif fault == 2:
        lines.insert(place, lines[0])
    elif fault == 3:
        lines += lines
    elif fault == 4:
        lines.append(lines[-1])
    elif fault == 5:
        lines.insert(1, lines[0]._replace(bad=True))
    return lines
