"""Batches mean the same as their questions asked one by one, on every ledger."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from processor.core.errors import Misuse
from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.ledger.port import Begin, Claim, Outcome, Owned, Usage, Verdict
from tests.contract.ledger_harness import (
    CLASSES,
    SUCCEEDED,
    Harness,
    claim_for,
    key,
    open_harness,
)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Each ledger in turn."""
    with open_harness(request.param, request) as opened:
        yield opened


def claims(harness: Harness, count: int, effect_class: EffectClass = "at_most_once") -> list[Claim]:
    """Claims of different keys, the last key first."""
    base = claim_for(harness, effect_class)
    return [
        replace(base, key=key(2000 - n), owner=f"slot-0/{n}", source=None) for n in range(count)
    ]


def owned_all(asked: list[Claim], verdicts: list[Verdict | Misuse]) -> list[Owned]:
    """What claimed verdicts entitle to."""
    found: list[Owned] = []
    for claim, verdict in zip(asked, verdicts, strict=True):
        assert isinstance(verdict, Verdict)
        assert verdict.kind == "claimed"
        assert verdict.fence is not None
        found.append(Owned(claim.key.tenant, claim.key.idempotency_key, verdict.fence))
    return found


@pytest.mark.parametrize("effect_class", CLASSES)
def test_a_batch_claims_begins_and_settles_each_call(
    harness: Harness, effect_class: EffectClass
) -> None:
    """Answers stand in the order asked, each key has its own fence and its own result."""
    asked = claims(harness, 5, effect_class)
    own = owned_all(asked, harness.ledger.claim_many(asked))
    assert len({o.fence for o in own}) == 5
    begun = harness.ledger.begin_many([(o, Begin(60, redrive_s=1800)) for o in own])
    assert [not isinstance(a, Misuse) and a.ok for a in begun] == [True] * 5
    usage = (Usage("tokens", "token", "reported", "7"),)
    ends = [(o, Outcome("succeeded", body=str(n).encode(), usage=usage)) for n, o in enumerate(own)]
    ended = harness.ledger.finish_many(ends)
    assert [not isinstance(a, Misuse) and a.ok for a in ended] == [True] * 5
    for number, o in enumerate(own):
        stored = harness.ledger.fetch_result(o.tenant, o.idempotency_key)
        assert stored is not None
        assert (stored.state, stored.body) == ("succeeded", str(number).encode())
    again = harness.ledger.claim_many(asked)
    assert [isinstance(v, Verdict) and v.kind for v in again] == ["replay"] * 5


def test_a_key_twice_in_one_batch_has_one_owner(harness: Harness) -> None:
    """The first question of the key wins; the other one is told that it is busy."""
    first, second = claims(harness, 2)
    verdicts = harness.ledger.claim_many([first, second, replace(first, owner="slot-0/other")])
    assert [isinstance(v, Verdict) and v.kind for v in verdicts] == ["claimed", "claimed", "busy"]


def test_one_refused_claim_leaves_its_neighbours_alone(harness: Harness) -> None:
    """A colon in the request id is an error in its place, and no row of it remains."""
    good, other = claims(harness, 2)
    bad = replace(good, key=CallKey("acme", "req:1", "resp_1", "call_1"))
    short = replace(other, key=key(3000), args_hash=b"\x01")
    verdicts = harness.ledger.claim_many([good, bad, short, other])
    assert [type(v) for v in verdicts] == [Verdict, Misuse, Misuse, Verdict]
    assert harness.ledger.show("acme", key(3000).idempotency_key) is None
    assert len(harness.ledger.list_calls()) == 2


def test_refusals_and_answers_stand_side_by_side(harness: Harness) -> None:
    """A lost owner in a batch is fenced; a body too large is refused; the rest is settled."""
    asked = claims(harness, 4)
    own = owned_all(asked, harness.ledger.claim_many(asked))
    lost = replace(own[1], fence=own[1].fence + 1)
    begun = harness.ledger.begin_many([(o, Begin(60)) for o in (own[0], lost, own[2], own[3])])
    assert [(a.ok, a.why) for a in begun if not isinstance(a, Misuse)] == [
        (True, None),
        (False, "fenced"),
        (True, None),
        (True, None),
    ]
    ended = harness.ledger.finish_many(
        [
            (own[0], SUCCEEDED),
            (lost, SUCCEEDED),
            (own[2], Outcome("succeeded", body=b"x" * 65_537)),
            (own[3], SUCCEEDED),
        ]
    )
    assert isinstance(ended[2], Misuse)
    assert [(a.ok, a.why) for a in ended if not isinstance(a, Misuse)] == [
        (True, None),
        (False, "fenced"),
        (True, None),
    ]
    view = harness.ledger.show("acme", own[2].idempotency_key)
    assert view is not None
    assert view.state == "executing"


def test_a_fenced_transactional_finish_in_a_batch_is_an_answer(harness: Harness) -> None:
    """It undoes nothing of its neighbours."""
    asked = claims(harness, 2, "transactional")
    own = owned_all(asked, harness.ledger.claim_many(asked))
    harness.ledger.begin_many([(o, Begin(60)) for o in own])
    lost = replace(own[0], fence=own[0].fence + 1)
    ended = harness.ledger.finish_many([(lost, SUCCEEDED), (own[1], SUCCEEDED)])
    assert [(a.ok, a.why) for a in ended if not isinstance(a, Misuse)] == [
        (False, "fenced"),
        (True, None),
    ]


def test_repeating_a_batch_is_harmless(harness: Harness) -> None:
    """What an answer that was lost leads to: already begun, already settled."""
    asked = claims(harness, 3)
    own = owned_all(asked, harness.ledger.claim_many(asked))
    begins = [(o, Begin(60)) for o in own]
    ends = [(o, SUCCEEDED) for o in own]
    harness.ledger.begin_many(begins)
    again = harness.ledger.begin_many(begins)
    assert [not isinstance(a, Misuse) and a.why for a in again] == ["already_begun"] * 3
    harness.ledger.finish_many(ends)
    again = harness.ledger.finish_many(ends)
    assert [not isinstance(a, Misuse) and a.why for a in again] == ["already"] * 3


def test_an_empty_batch_has_no_answers(harness: Harness) -> None:
    """Nobody has to look before asking."""
    assert harness.ledger.claim_many([]) == []
    assert harness.ledger.begin_many([]) == []
    assert harness.ledger.finish_many([]) == []
