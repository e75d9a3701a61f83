"""A shorter way to read the two events that end every call; the general reader stays the judge.

Rules:
    Only what is exactly of the usual shape is read here; for anything else the answer is None, and
    the general reader decides. A property test demands that both read the same.
    Measured: 1 µs instead of 3 µs, on two of the 23 events of a usual call.
"""

from typing import Final, get_args

from processor.codec.fields import SEQ_MAX
from processor.codec.varint import Malformed, read_long
from processor.core.events import ArgumentsDone, ResponseEnded, ResponseOutcome, StreamEvent

#: Indexes of the union's branches as they are written: ArgumentsDone and ResponseEnded.
_DONE: Final = 2 << 1
_ENDED: Final = 3 << 1
#: Index of `bytes` in the union of an optional field.
_PRESENT: Final = 1 << 1


def _ended_tails(outcomes: tuple[str, ...]) -> dict[bytes, ResponseOutcome]:
    """Outcome without a detail, as it is written: index of the symbol, null."""
    return {bytes((index << 1, 0)): outcome for index, outcome in enumerate(outcomes)}  # type: ignore[misc]  # the symbols are the literal's


_ENDED_TAILS: Final = _ended_tails(get_args(ResponseOutcome))


def read_ending(value: bytes, at: int) -> StreamEvent | None:
    """The event behind the frame that ends at `at`, if it is an ending of the usual shape."""
    try:
        seq, at = read_long(value, at)
        at_ms, at = read_long(value, at)
        branch = value[at]
        if not 0 <= seq <= SEQ_MAX:
            return None
        if branch == _ENDED:
            outcome = _ENDED_TAILS.get(value[at + 1 :])
            return (
                None if outcome is None else StreamEvent(seq, ResponseEnded(outcome), at_ms or None)
            )
        if branch == _DONE:
            return _read_done(value, at + 1, seq, at_ms or None)
    except (Malformed, IndexError):
        pass
    return None


def _read_done(value: bytes, at: int, seq: int, at_ms: int | None) -> StreamEvent | None:
    present = value[at]
    if present == 0:
        whole = at + 1 == len(value)
        return StreamEvent(seq, ArgumentsDone(None), at_ms) if whole else None
    if present != _PRESENT:
        return None
    size, start = read_long(value, at + 1)
    if size < 0 or start + size != len(value):
        return None
    return StreamEvent(seq, ArgumentsDone(value[start:]), at_ms)
