"""Every interleaving of two small calls, and every single fault of one: nothing is ever mixed up."""

from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import comb

import pytest

from processor.core.events import StreamEvent
from processor.core.outcomes import CallCompleted, CallRejected, EffectClass
from tests import builders as b
from tests.builders import Record

A, B = b.key("call_A"), b.key("call_B")
FRAGMENTS_A = ['{"order', '_id":"ORDER-1001"}']
FRAGMENTS_B = ['{"city":"Pa', 'ris"}']
TEXTS = {A: b'{"order_id":"ORDER-1001"}', B: b'{"city":"Paris"}'}


def interleavings(first: list[StreamEvent], second: list[StreamEvent]) -> Iterator[list[Record]]:
    """All logs that keep the order within each of the two calls."""
    size = len(first) + len(second)
    for places in combinations(range(size), len(first)):
        of_first, of_second = iter(first), iter(second)
        yield [
            Record(A.encode(), next(of_first), offset, 1_000)
            if offset in places
            else Record(B.encode(), next(of_second), offset, 1_000)
            for offset in range(size)
        ]


@pytest.mark.parametrize("effect_class", ["at_most_once", "read_only"])
@pytest.mark.parametrize("copies", [False, True], ids=["no copy", "copy"])
def test_all_interleavings_of_two_calls_give_the_same_two_calls(
    effect_class: EffectClass, *, copies: bool
) -> None:
    """Start, two fragments, own end and response's end each: 252 logs, one answer."""
    rules = b.one_rule(effect_class)
    first = b.call_events(FRAGMENTS_A, of=A, copies=[TEXTS[A] if copies else None])
    second = b.call_events(FRAGMENTS_B, of=B, copies=[TEXTS[B] if copies else None])
    count = 0
    for log in interleavings(first, second):
        fold = b.assembly(rules=rules)
        outcomes = b.feed(fold, log)
        assert len(outcomes) == 2
        assert {outcome.key: given_out(outcome) for outcome in outcomes} == TEXTS
        assert fold.open_count == 0
        count += 1
    assert count == comb(10, 5)


def given_out(outcome: CallCompleted | CallRejected) -> bytes | None:
    """The arguments of a completed call."""
    return outcome.arguments if isinstance(outcome, CallCompleted) else None


def test_all_interleavings_with_a_call_that_is_cut_short_harm_the_other_one_never() -> None:
    """Call A ends truncated, without an own end, or has a gap; call B is what it was."""
    whole = b.call_events(FRAGMENTS_B, of=B)
    start, one, two, done, end = b.call_events(FRAGMENTS_A, of=A)
    truncated = [start, one, StreamEvent(2, b.ended("truncated"))]
    unfinished = [start, one, two, StreamEvent(3, b.ended())]
    gap = [start, two, done, end]
    for events, reason in (
        (truncated, "truncated"),
        (unfinished, "stream_ended"),
        (gap, "sequence_gap"),
    ):
        for log in interleavings(events, whole):
            outcomes = {outcome.key: outcome for outcome in b.feed(b.assembly(), log)}
            rejected, completed = outcomes[A], outcomes[B]
            assert isinstance(rejected, CallRejected)
            assert rejected.reason == reason
            assert given_out(completed) == TEXTS[B]


ONE_CALL = b.call_events(FRAGMENTS_A, of=A, copies=[None, TEXTS[A]])


def test_all_permutations_of_one_call_complete_it_only_in_its_order() -> None:
    """720 orders of six events; any other order loses the start or opens a gap."""
    for order in permutations(range(len(ONE_CALL))):
        outcomes = b.feed(b.assembly(), b.log([ONE_CALL[n] for n in order], of=A))
        completed = [given_out(o) for o in outcomes if isinstance(o, CallCompleted)]
        assert completed == ([TEXTS[A]] if list(order) == sorted(order) else [])


def test_all_subsets_of_one_call_complete_it_only_when_whole() -> None:
    """64 ways to lose events; what is complete without its last ones stays open."""
    for kept in product([True, False], repeat=len(ONE_CALL)):
        events = [event for event, keep in zip(ONE_CALL, kept, strict=True) if keep]
        outcomes = b.feed(b.assembly(), b.log(events, of=A))
        completed = [given_out(o) for o in outcomes if isinstance(o, CallCompleted)]
        assert completed == ([TEXTS[A]] if all(kept) else [])


def test_all_single_repetitions_and_all_pairs_of_them_leave_one_call() -> None:
    """An event again at any later place, twice over: one completed call with the same arguments."""
    places = [(n, at) for n in range(len(ONE_CALL)) for at in range(n + 1, len(ONE_CALL) + 1)]
    for (n, at), (m, then) in product(places, repeat=2):
        log = list(ONE_CALL)
        for repeated, place in sorted([(n, at), (m, then)], key=lambda pair: -pair[1]):
            log.insert(place, ONE_CALL[repeated])
        completed = b.only_completed(b.feed(b.assembly(), b.log(log, of=A)))
        assert completed.arguments == TEXTS[A]


def test_all_single_swaps_of_one_call_never_complete_it() -> None:
    """Two events in each other's place, neighbours or not."""
    for n, m in combinations(range(len(ONE_CALL)), 2):
        log = list(ONE_CALL)
        log[n], log[m] = log[m], log[n]
        outcomes = b.feed(b.assembly(), b.log(log, of=A))
        assert all(isinstance(outcome, CallRejected) for outcome in outcomes)
        assert outcomes


def test_all_single_changes_of_a_repeated_fragment_are_conflicts() -> None:
    """A repeat with any one byte changed rejects the call, wherever it comes before the end."""
    for n in (1, 2):
        fragment = FRAGMENTS_A[n - 1].encode()
        for at, place in product(range(n + 1, len(ONE_CALL)), range(len(fragment))):
            changed = bytearray(fragment)
            changed[place] ^= 1
            log = [*ONE_CALL[:at], StreamEvent(n, b.delta(bytes(changed))), *ONE_CALL[at:]]
            rejected = b.only_rejected(b.feed(b.assembly(), b.log(log, of=A)))
            assert rejected.reason == "sequence_conflict"


def test_all_texts_cut_at_all_places_are_the_same_call() -> None:
    """One and two cuts at every byte."""
    text = TEXTS[B]
    for first, second in combinations(range(len(text) + 1), 2):
        fragments = [text[:first], text[first:second], text[second:]]
        assert b.only_completed(b.run(b.call_events(fragments))).arguments == text
