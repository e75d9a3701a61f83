"""What must hold for any bytes at all, whatever the dialect: the oracles of the fuzzer.

Rules:
    Bytes that begin with `DAMAGE` name a captured stream and a damage to one of its chunks; all
    others are a stream as it comes.
    Nothing but `DialectError` is raised; any cutting gives the same events, or the same error.
    The fold accepts every event: `seq` without a hole, one end for each call that appears.
    No error text has a word of the input, and what comes out is no more than what went in.
"""

import functools
import re
import zlib
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Final

import processor
from processor.core.events import ArgumentsDelta, ArgumentsDone, CallAborted, ResponseEnded
from processor.core.outcomes import CallRejected
from processor.core.reasons import REASONS
from processor.dialects.calls import CALLS_MAX
from processor.dialects.registry import DIALECTS
from processor.dialects.stream import DialectError, KeyedEvent
from tests.fuzz.damage import KINDS, Damage, check_damage, fixtures_of, untouched
from tests.golden.replay import fold, stream

DAMAGE: Final = b"\xff\xfd"
#: Length of what names a damage: fixture, kind, chunk, other place.
DAMAGE_BYTES: Final = len(DAMAGE) + 4
#: Longest run of the input that an error text may share with it, if it is not a text of ours.
SHARED_MAX: Final = 6

_WORD: Final = re.compile(rf"[^\s,;:]{{{SHARED_MAX},}}")


def check(dialect: str, data: bytes) -> None:
    """Raises `AssertionError`, or whatever should not have been raised."""
    if data.startswith(DAMAGE) and len(data) >= DAMAGE_BYTES:
        name, damage = damage_of(dialect, data)
        check_damage(name, damage)
    else:
        check_stream(dialect, data)


def damage_of(dialect: str, data: bytes) -> tuple[str, Damage]:
    """The captured stream and the damage that the bytes name."""
    which, kind, at, other = data[len(DAMAGE) : DAMAGE_BYTES]
    names = fixtures_of(dialect)
    name = names[which % len(names)]
    count = len(untouched(name).chunks)
    return name, Damage(KINDS[kind % len(KINDS)], at % count, other % count)


def check_stream(dialect: str, data: bytes) -> None:
    """Any bytes, whole and in pieces."""
    whole = events_or_error(dialect, [data])
    rng = Random(zlib.crc32(data))
    assert events_or_error(dialect, cut(data, rng)) == whole, "a cutting changed the events"
    if isinstance(whole, str):
        check_text(whole, data)
        return
    check_events(whole, data)
    for outcome in fold(whole):
        if isinstance(outcome, CallRejected):
            check_text(outcome.detail, data)


def events_or_error(dialect: str, pieces: list[bytes]) -> list[KeyedEvent] | str:
    """All events of an input, or the text of its refusal, which comes before any event."""
    of, events = stream(dialect), list[KeyedEvent]()
    try:
        for piece in pieces:
            events += of.observe_bytes(piece)
        events += of.end()
    except DialectError as e:
        assert not events, "events before a refusal"
        return str(e)
    assert of.ended
    assert not of.end()
    _ = of.usage
    return events


def cut(data: bytes, rng: Random) -> list[bytes]:
    """The bytes in pieces: a few, or one by one for a short input."""
    if len(data) <= 256 and rng.random() < 0.25:
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(1, 8)))
    return [data[start:stop] for start, stop in pairwise([0, *places, len(data)])]


def check_events(events: list[KeyedEvent], data: bytes) -> None:
    """Reasons of the closed list, and no more calls, events and bytes than the input can mean."""
    calls = len({key for key, _ in events})
    size = 2 * calls  # what `{}` stands for may have no text on the wire
    assert calls <= CALLS_MAX
    assert len(events) <= len(data)
    for _, event in events:
        body = event.body
        if isinstance(body, CallAborted):
            assert body.reason in REASONS
        elif isinstance(body, ArgumentsDelta):
            assert body.fragment, "an empty fragment is no event"
            size -= len(body.fragment)
        elif isinstance(body, ArgumentsDone) and body.arguments is not None:
            size -= len(body.arguments)
        elif isinstance(body, ResponseEnded):
            assert body.detail is None or re.fullmatch(r"[A-Za-z0-9_.:-]{1,64}", body.detail)
    assert -size <= len(data), "more text than came"


def check_text(text: str, data: bytes) -> None:
    """No word of an error is the input's, but for those that are in our own source."""
    for word in _WORD.findall(text):
        assert word.encode() not in data or word in own_words(), "an error quotes its input"


@functools.cache
def own_words() -> str:
    """Everything that our own texts could be made of: the source of the package, and names."""
    root = Path(processor.__file__).parent
    sources = [p.read_text() for room in ("core", "dialects") for p in (root / room).glob("*.py")]
    return "\n".join([*sources, *DIALECTS])
