"""One chunk of a captured stream is dropped, repeated, swapped or moved; what may then complete."""

import functools
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

from processor.core.events import ArgumentsDelta, CallAborted
from processor.core.outcomes import CallCompleted
from processor.dialects.stream import DialectError, KeyedEvent
from tests.fuzz.chunks import chunks_of
from tests.fuzz.invisible import NO_ID, NUMBERED, has_parts, possible_texts, shape_of
from tests.golden.replay import fold, stream
from tests.golden.test_streams import NAMES, data_of, expected_of
from tests.unit.dialects.wires import Chunk

Kind = Literal["drop", "repeat", "swap", "move"]
KINDS: Final[tuple[Kind, ...]] = ("drop", "repeat", "swap", "move")


class Damage(NamedTuple):
    """What happens to the chunk at `at`; `other` is the place that it goes to or changes with."""

    kind: Kind
    at: int
    other: int = 0

    def order(self, count: int) -> list[int]:
        """Positions of the chunks that arrive, of `count` that were sent."""
        order = list(range(count))
        match self.kind:
            case "drop":
                del order[self.at]
            case "repeat":
                order.insert(self.other, self.at)
            case "swap":
                order[self.at], order[self.other] = order[self.other], order[self.at]
            case "move":
                order.insert(self.other, order.pop(self.at))
        return order


def every_damage(count: int) -> Iterator[Damage]:
    """All that can happen to one of `count` chunks, each order once for a kind."""
    for at in range(count):
        yield Damage("drop", at)
        yield from (Damage("repeat", at, other) for other in range(at + 1, count + 1))
        yield from (Damage("swap", at, other) for other in range(at + 1, count))
        yield from (Damage("move", at, other) for other in range(count) if other != at)


class Untouched(NamedTuple):
    """A captured stream as it was sent: what each chunk adds to each call, and what completes."""

    dialect: str
    chunks: list[Chunk]
    said: list[dict[str, str]]
    completed: dict[str, str]
    aborted: frozenset[str]


@functools.cache
def untouched(name: str) -> Untouched:
    """The fixture `name`, run once."""
    dialect, chunks = expected_of(name)["dialect"], chunks_of(data_of(name))
    of, events, said = stream(dialect), list[KeyedEvent](), list[dict[str, str]]()
    aborted = set[str]()
    for chunk in chunks:
        told = of.observe(chunk)
        adds: dict[str, str] = {}
        for key, event in told:
            if isinstance(event.body, CallAborted):
                aborted.add(key.call_id)
            adds[key.call_id] = adds.get(key.call_id, "") + _text_of(event.body)
        said.append({call_id: text for call_id, text in adds.items() if text})
        events += told
    return Untouched(dialect, chunks, said, _completed(events + of.end()), frozenset(aborted))


@functools.cache
def fixtures_of(dialect: str) -> list[str]:
    """The captured streams of a dialect that have a chunk."""
    return [n for n in NAMES if expected_of(n)["dialect"] == dialect and chunks_of(data_of(n))]


def check_damage(name: str, damage: Damage) -> None:
    """No call completes with arguments that the untouched stream does not explain."""
    sent = untouched(name)
    order = damage.order(len(sent.chunks))
    of, events, seen = stream(sent.dialect), list[KeyedEvent](), list[int]()
    try:
        for at in order:
            seen += [] if of.ended else [at]
            events += of.observe(sent.chunks[at])
    except DialectError:
        assert not events
        return
    completed = _completed(events + of.end())
    if has_parts(sent.chunks) and _is_invisible(sent.chunks, order):
        return
    texts = possible_texts(sent.dialect, sent.said, seen)
    for call_id, text in completed.items():
        if call_id in sent.aborted:
            # Nothing is known of what an aborted call would have had, but by numbers that it has.
            assert sent.dialect not in NUMBERED, f"{name}: {damage}: {call_id} completed"
            continue
        allowed = {text for i, text in sent.completed.items() if _same(i, call_id)}
        assert text in allowed | texts.get(call_id, set()), f"{name}: {damage}: {call_id}"
        if sent.dialect in NUMBERED:
            assert text in allowed, f"{name}: {damage}: {call_id} completed with another text"


def _same(one: str, other: str) -> bool:
    return one == other or (one.startswith(NO_ID) and other.startswith(NO_ID))


def _is_invisible(chunks: Sequence[Chunk], order: Sequence[int]) -> bool:
    """True where only leaves of Gemini calls in parts are damaged, or chunks of one kind."""
    shapes = [shape_of(chunk) for chunk in chunks]
    arrived = [shapes[at] for at in order]
    leaf = repr([(None, True, False), (None,)])
    frames = [[s for s in of if s != leaf] for of in (shapes, arrived)]
    return arrived == shapes or frames[0] == frames[1]


def _completed(events: Sequence[KeyedEvent]) -> dict[str, str]:
    outcomes = fold(events)
    return {o.key.call_id: o.arguments.decode() for o in outcomes if isinstance(o, CallCompleted)}


def _text_of(body: object) -> str:
    """What an event adds to a call: a fragment; of a copy the text is the same once more."""
    return body.fragment.decode() if isinstance(body, ArgumentsDelta) else ""
