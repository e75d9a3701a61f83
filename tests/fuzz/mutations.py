"""Changes of a stream that know what JSON is, for a fuzzer that knows bytes alone.

Rules:
    Pure: the same bytes and the same generator give the same result. What cannot be read as a
    stream comes back as None, and is the byte mutator's.
"""

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Final, cast

from tests.fuzz.chunks import FRAMINGS, chunks_of, framed
from tests.unit.dialects.wires import Chunk

CHUNKS_MAX: Final = 64
CHANGES_MAX: Final = 4

_CONTAINERS: Final[list[object]] = json.loads('[[], {}, [{}], [[]], {"a": {}}, {"error": {}}]')
#: Values at the edges of what a field may hold.
ODD_VALUES: Final[tuple[object, ...]] = (
    None, True, False, 0, -1, 1, 999, 1_000, 2**31 - 1, 2**31, 2**53, 2**63, 10**400, 0.5, -0.0,
    1e308, "", " ", "null", "None", "~", "a/b%", "call:1", "\0", "\x7f", "\ud83d", "\ude00", "é😀",
    "x" * 129, "x" * 257, "{", "}", "{}", "[]", '{"a":1}', '{"a":1}{"a":1}', "NaN", "$.a", "$['a']",
    "$[0]", "$.a[1].b", "stop", "tool_calls", "tool_use", "length", "completed", "in_progress",
    "STOP", "function", "custom", "error", *_CONTAINERS,
)  # fmt: skip


def mutated(data: bytes, others: Sequence[Chunk], rng: random.Random) -> bytes | None:
    """A stream that differs from `data` in a few places; `others` are chunks to take from."""
    chunks = chunks_of(data)[:CHUNKS_MAX]
    if not chunks:
        return None
    for _ in range(rng.randint(1, CHANGES_MAX)):
        rng.choice(_CHANGES)(chunks, others, rng)
        if not chunks:
            chunks.append(copy.deepcopy(rng.choice(others)))
    return framed(chunks, rng.choice(FRAMINGS))


def _drop(chunks: list[Chunk], _: Sequence[Chunk], rng: random.Random) -> None:
    del chunks[rng.randrange(len(chunks))]


def _repeat(chunks: list[Chunk], _: Sequence[Chunk], rng: random.Random) -> None:
    chunks.insert(rng.randint(0, len(chunks)), copy.deepcopy(rng.choice(chunks)))


def _swap(chunks: list[Chunk], _: Sequence[Chunk], rng: random.Random) -> None:
    one, other = rng.randrange(len(chunks)), rng.randrange(len(chunks))
    chunks[one], chunks[other] = chunks[other], chunks[one]


def _splice(chunks: list[Chunk], others: Sequence[Chunk], rng: random.Random) -> None:
    chunks.insert(rng.randint(0, len(chunks)), copy.deepcopy(rng.choice(others)))


def _set(chunks: list[Chunk], others: Sequence[Chunk], rng: random.Random) -> None:
    """One member or element becomes an odd value, or what some other place has."""
    found = _places(rng.choice(chunks))
    if not found:
        return
    holder, place = rng.choice(found)
    donors = _places(rng.choice([*chunks, *others]))
    if donors and rng.random() < 0.5:
        of, at = rng.choice(donors)
        holder[place] = copy.deepcopy(of[at])
    else:
        holder[place] = copy.deepcopy(rng.choice(ODD_VALUES))


def _remove(chunks: list[Chunk], _: Sequence[Chunk], rng: random.Random) -> None:
    found = _places(rng.choice(chunks))
    if found:
        holder, place = rng.choice(found)
        del holder[place]


def _graft(chunks: list[Chunk], others: Sequence[Chunk], rng: random.Random) -> None:
    """A member of some other object is put beside what an object has."""
    donors = [(of, at) for of, at in _places(rng.choice([*chunks, *others])) if type(at) is str]
    objects = [of for of, at in _places(rng.choice(chunks)) if type(at) is str]
    if donors and objects:
        of, at = rng.choice(donors)
        rng.choice(objects)[at] = copy.deepcopy(of[at])


def _count(chunks: list[Chunk], _: Sequence[Chunk], rng: random.Random) -> None:
    """An integer goes up or down by one."""
    places = _places(rng.choice(chunks))
    found = [(of, at, value) for of, at in places if type(value := of[at]) is int]
    if found:
        holder, place, number = rng.choice(found)
        holder[place] = number + rng.choice((-1, 1))


def _cut_text(chunks: list[Chunk], _: Sequence[Chunk], rng: random.Random) -> None:
    """A chunk becomes two that have the two halves of one of its texts."""
    at = rng.randrange(len(chunks))
    copied = copy.deepcopy(chunks[at])
    pairs = zip(_places(chunks[at]), _places(copied), strict=True)
    texts = [(one, other) for one, other in pairs if isinstance(one[0][one[1]], str)]
    if texts:
        (holder, place), (copied_holder, copied_place) = rng.choice(texts)
        text = cast("str", holder[place])
        cut = rng.randint(0, len(text))
        holder[place], copied_holder[copied_place] = text[:cut], text[cut:]
        chunks.insert(at + 1, copied)


_CHANGES: Final[tuple[Callable[[list[Chunk], Sequence[Chunk], random.Random], None], ...]] = (
    _drop, _repeat, _swap, _splice, _set, _set, _set, _remove, _graft, _graft, _count, _cut_text,
)  # fmt: skip


# A holder is an object with names or a list with positions, so that a place of it can be set.
_Holder = dict[object, object]


def _places(value: object) -> list[tuple[_Holder, object]]:
    """Every member and element inside of `value`, as the holder and the place in it."""
    found: list[tuple[_Holder, object]] = []
    left = [value]
    while left:
        holder = left.pop()
        if isinstance(holder, dict):
            places: Sequence[object] = list(cast("_Holder", holder))
        elif isinstance(holder, list):
            places = range(len(cast("list[object]", holder)))
        else:
            continue
        of = cast("_Holder", holder)
        found += [(of, place) for place in places]
        left += [of[place] for place in places]
    return found
