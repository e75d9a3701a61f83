"""Every schedule of events, commits, checkpoints, crashes and expiries of two calls, up to 8 events.

A schedule that leads to a state already seen at the same record is not followed twice; so all of
them are covered, although only the different ones are run.
"""

import copy
from collections.abc import Iterator
from itertools import combinations

import pytest

from processor.core.assembly import Assembly
from processor.core.events import SEQ_NONE, Body, CallExpired, StreamEvent
from processor.core.identity import CallKey
from processor.core.limits import Limits
from tests import builders as b
from tests.builders import CheckpointStore, Record

LINGER_MS = 2
A, B = b.key("call_A"), b.key("call_B")
Part = list[tuple[int, Body]]


def whole(of: CallKey) -> Part:
    """A call as it should be."""
    return [(0, b.started(of)), (1, b.delta("{}")), (2, b.done("{}")), (3, b.ended())]


PAIRS: dict[str, tuple[Part, Part]] = {
    "whole and whole": (whole(A), whole(B)),
    "whole and its redelivery": (whole(A), whole(A)),
    "whole and expired": (
        whole(A),
        [(0, b.started(B)), (1, b.delta("{")), (SEQ_NONE, b.expired(1)), (2, b.delta("}"))],
    ),
    "expired and an expiry that comes too late": (
        [(0, b.started(A)), (SEQ_NONE, b.expired(0)), (1, b.ended())],
        [(0, b.started(B)), (1, b.delta("x")), (SEQ_NONE, b.expired(0)), (2, b.ended())],
    ),
    "expired by age, with a repeat before": (
        [(0, b.started(A)), (0, b.started(A)), (SEQ_NONE, CallExpired("max_life", 0))],
        whole(B),
    ),
    "gap and missing start": (
        [(0, b.started(A)), (2, b.delta("x")), (3, b.ended())],
        [(1, b.delta("x")), (2, b.ended()), (0, b.started(B))],
    ),
    "aborted and late": (
        [(0, b.started(A)), (1, b.aborted()), (2, b.ended()), (0, b.started(A))],
        [(0, b.aborted()), (0, b.started(B)), (1, b.ended())],
    ),
}


def interleavings(first: Part, second: Part) -> Iterator[list[tuple[CallKey, int, Body]]]:
    """Every order of the two that keeps the order of each."""
    size = len(first) + len(second)
    of_second = A if second == first else B
    for places in combinations(range(size), len(first)):
        one, other = iter(first), iter(second)
        yield [
            (A, *next(one)) if place in places else (of_second, *next(other))
            for place in range(size)
        ]


def as_log(events: list[tuple[CallKey, int, Body]], step_ms: int) -> list[Record]:
    """Records one offset and `step_ms` of log time apart."""
    return [
        Record(of.encode(), StreamEvent(seq, body), offset, 10 + offset * step_ms)
        for offset, (of, seq, body) in enumerate(events)
    ]


class World:
    """A life, and what has been committed so far; copied at each choice."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.life = b.assembly(limits)
        self.store = CheckpointStore()
        self.committed = 0

    def commit(self, position: int, after_ms: int) -> None:
        """Position, low-water and checkpoints move together."""
        self.store.commit(self.life, position, after_ms)
        self.committed = position

    def crash(self, log: list[Record], position: int) -> None:
        """A new life from what was committed, up to where the old one was."""
        low = self.store.low
        self.life = b.assembly(
            self.limits, log_time_ms=low.log_time_ms, checkpoints=self.store.checkpoints()
        )
        self.life.resume(low.offset)
        b.feed(self.life, log[low.offset : position])
        self.life.resume(position)

    def name(self) -> str:
        """Two worlds of one name go on in the same way."""
        stored = [
            (i.key, i.as_of, i.call and b.call_state(i.call)) for i in self.store.checkpoints()
        ]
        return repr((b.tracked_state(self.life), self.store.low, stored, self.committed))


def choices(world: World, log: list[Record], position: int) -> list[World]:
    """Go on, commit with or without checkpoints, crash, or crash right after a commit."""
    made = [world]
    for after_ms in (0, 1_000_000):
        other = copy.deepcopy(world)
        other.commit(position, after_ms)
        made.append(other)
    for one in list(made):
        crashed = copy.deepcopy(one)
        crashed.crash(log, position)
        made.append(crashed)
    return made


def assert_every_schedule(log: list[Record], limits: Limits) -> int:
    """Follow them all; returns how many different worlds there were."""
    steady = b.assembly(limits)
    worlds = {"": World(limits)}
    count = 0
    for position, record in enumerate(log):
        found: dict[str, World] = {}
        for world in worlds.values():
            for choice in choices(world, log, position):
                found.setdefault(choice.name(), choice)
        count += len(found)
        worlds = found
        said = feed_one(steady, record)
        for world in worlds.values():
            assert feed_one(world.life, record) == said
            assert b.deciding_state(world.life) == b.deciding_state(steady)
    return count


def feed_one(fold: Assembly, record: Record) -> object:
    """What the fold says to one record."""
    return fold.apply(record.key, record.event, record.offset, record.timestamp_ms)


@pytest.mark.parametrize(("step_ms", "open_calls_max"), [(0, 1), (1, 2), (LINGER_MS, 1)])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
def test_no_schedule_of_commits_checkpoints_and_crashes_changes_what_is_said(
    pair: tuple[Part, Part], step_ms: int, open_calls_max: int
) -> None:
    """Every interleaving, and at every record every choice."""
    limits = Limits(open_calls_max=open_calls_max, linger_ms=LINGER_MS)
    for events in interleavings(*pair):
        assert assert_every_schedule(as_log(events, step_ms), limits) > len(events)
