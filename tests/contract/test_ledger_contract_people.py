"""One suite for every ledger: people, care, failover and bounds, on memory and on Postgres."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from processor.core.errors import Fenced, Misuse
from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.ledger.port import (
    UNSURE,
    Begin,
    CallState,
    Claim,
    Outcome,
    Owned,
    agreed,
    next_key,
    refused,
)
from tests.contract.ledger_harness import (
    CLASSES,
    SUCCEEDED,
    Harness,
    begun,
    claim_for,
    key,
    open_harness,
    owned,
    state_of,
)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Each ledger in turn."""
    with open_harness(str(request.param), request) as opened:
        yield opened


# --- people


def held(harness: Harness, effect_class: EffectClass = "at_most_once") -> Claim:
    """A call that waits for a person."""
    claim = claim_for(harness, effect_class)
    own = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.hold(own, "rule-refund-large", "rev-1")
    return claim


def decide(harness: Harness, claim: Claim, *, yes: bool, args_hash: bytes | None = None) -> bool:
    """A person's word."""
    return harness.ledger.decide(
        "acme", claim.key.idempotency_key, args_hash or claim.args_hash, "dana", yes=yes, ttl_s=600
    )


def test_an_approval_is_for_these_arguments_and_is_used_once(harness: Harness) -> None:
    """Other arguments are refused; after `not_sent` a new approval is needed."""
    claim = held(harness)
    assert harness.ledger.claim(claim).kind == "held"
    assert not decide(harness, claim, yes=True, args_hash=b"\x01" + bytes(32))
    assert decide(harness, claim, yes=True)
    own = owned(claim, harness.ledger.claim(claim))
    needed = Begin(60, "rule-refund-large", "rev-1", need_approval=True)
    assert harness.ledger.begin_effect(own, needed).ok
    assert harness.ledger.release(own, not_sent=True) == "ready"
    second = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.begin_effect(second, needed) == refused("approval")


def test_begin_without_a_needed_approval_is_refused(harness: Harness) -> None:
    """The call stays claimed, and may be held."""
    claim = claim_for(harness)
    own = owned(claim, harness.ledger.claim(claim))
    answer = harness.ledger.begin_effect(own, Begin(60, need_approval=True))
    assert answer == refused("approval")
    assert state_of(harness) == "claimed"


def test_a_denied_call_never_runs(harness: Harness) -> None:
    """Denied is terminal, and no key will help."""
    claim = held(harness)
    assert decide(harness, claim, yes=False)
    verdict = harness.ledger.claim(claim)
    assert (verdict.kind, verdict.state, verdict.retry) == ("replay", "denied", "never")
    assert not decide(harness, claim, yes=True)
    history = harness.ledger.history("acme", claim.key.idempotency_key)
    assert [(t.to_state, t.by) for t in history[-2:]] == [("held", None), ("denied", "dana")]


def test_a_held_call_past_its_deadline_expires_in_the_sweep(harness: Harness) -> None:
    """A late yes is refused, and the call does not wait for ever."""
    claim = held(harness)
    harness.pass_deadline(claim.key)
    assert not decide(harness, claim, yes=True)
    assert harness.ledger.sweep() == 1
    assert state_of(harness) == "expired"


def test_cancel_before_begin_is_refused_at_begin(harness: Harness) -> None:
    """A flag on a claimed call; begin honours it."""
    claim = claim_for(harness)
    own = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.cancel("acme", claim.key.idempotency_key, "app") == "claimed"
    assert harness.ledger.begin_effect(own, Begin(60)) == refused("cancelled")
    assert harness.ledger.finish(own, Outcome("cancelled", error_class="cancelled")).ok
    assert state_of(harness) == "cancelled"


def test_cancel_after_begin_is_only_a_flag(harness: Harness) -> None:
    """Nobody claims to have stopped a running effect."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    assert harness.ledger.cancel("acme", claim.key.idempotency_key, "app") == "executing"
    assert harness.ledger.begin_effect(own, Begin(60)) == agreed("already_begun")
    assert harness.ledger.finish(own, SUCCEEDED).ok
    assert harness.ledger.cancel("acme", claim.key.idempotency_key, "app") == "succeeded"


def test_cancel_of_a_held_call_is_terminal(harness: Harness) -> None:
    """Nobody owns it and nothing began."""
    claim = held(harness)
    assert harness.ledger.cancel("acme", claim.key.idempotency_key, "app") == "cancelled"
    assert harness.ledger.claim(claim).state == "cancelled"
    assert harness.ledger.cancel("acme", "req_9:call_9", "app") is None


def test_denial_on_a_second_attempt_of_an_idempotent_call_is_in_doubt(harness: Harness) -> None:
    """The first attempt may have worked, so the call was not simply denied."""
    claim = claim_for(harness, "idempotent")
    begun(harness, claim)
    harness.end_lease(claim.key)
    second = owned(claim, harness.ledger.claim(claim))
    answer = harness.ledger.finish(second, Outcome("denied", error_class="not_authorized"))
    assert answer == refused("in_doubt")
    assert state_of(harness) == "in_doubt"


def test_resolve_settles_only_what_was_looked_at(harness: Harness) -> None:
    """A wrong fence is refused; the fence rises, so the lost owner cannot settle afterwards."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    assert harness.ledger.release(own, not_sent=False) == "in_doubt"
    idem = claim.key.idempotency_key
    assert not harness.ledger.resolve("acme", idem, own.fence + 1, "succeeded", "dana")
    assert harness.ledger.resolve("acme", idem, own.fence, "succeeded", "dana", b'{"found":true}')
    assert harness.ledger.finish(own, Outcome("failed")) == refused("fenced")
    stored = harness.ledger.fetch_result("acme", idem)
    assert stored is not None
    assert (stored.state, stored.body, stored.error_class) == (
        "succeeded",
        b'{"found":true}',
        "resolved_by:dana",
    )
    assert not harness.ledger.resolve("acme", idem, stored.fence, "failed", "dana")


def test_resolve_ready_lets_the_call_run_again(harness: Harness) -> None:
    """Proven that nothing happened: one more start, under a higher fence."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    harness.ledger.release(own, not_sent=False)
    assert harness.ledger.resolve("acme", claim.key.idempotency_key, own.fence, "ready", "dana")
    assert harness.ledger.finish(own, SUCCEEDED) == refused("fenced")
    second = begun(harness, claim)
    assert second.fence > own.fence
    assert harness.ledger.finish(second, SUCCEEDED).ok


# --- care


@pytest.mark.parametrize(
    ("effect_class", "expected"),
    [
        ("read_only", "ready"),
        ("idempotent", "ready"),
        ("transactional", "ready"),
        ("reconcilable", "in_doubt"),
        ("at_most_once", "in_doubt"),
    ],
)
def test_sweep_moves_a_lost_start_by_class(
    harness: Harness, effect_class: EffectClass, expected: CallState
) -> None:
    """A lease on a call that nobody redelivers does not stay for ever."""
    claim = claim_for(harness, effect_class)
    begun(harness, claim)
    assert harness.ledger.sweep() == 0
    harness.end_lease(claim.key)
    assert harness.ledger.sweep() == 1
    assert state_of(harness) == expected
    assert harness.ledger.sweep() == 0
    last = harness.ledger.history("acme", claim.key.idempotency_key)[-1]
    assert (last.by, last.why) == ("sweep", "lease_over")


def test_the_sweep_ends_a_lost_start_that_was_the_last(harness: Harness) -> None:
    """Starts used up: what may have worked is in doubt, what only reads has failed."""
    claim = replace(claim_for(harness, "idempotent"), max_begun=1)
    begun(harness, claim)
    harness.end_lease(claim.key)
    assert harness.ledger.sweep() == 1
    assert state_of(harness) == "in_doubt"
    read = replace(claim_for(harness, "read_only"), key=key(1002), max_begun=1)
    begun(harness, read)
    harness.end_lease(read.key)
    assert harness.ledger.sweep() == 1
    stored = harness.ledger.fetch_result("acme", read.key.idempotency_key)
    assert stored is not None
    assert (stored.state, stored.error_class) == ("failed", "attempts_exhausted")


@pytest.mark.parametrize(
    ("effect_class", "expected"), [("idempotent", "in_doubt"), ("read_only", "expired")]
)
def test_a_ready_call_that_began_once_does_not_wait_past_its_deadline(
    harness: Harness, effect_class: EffectClass, expected: CallState
) -> None:
    """Nobody may claim it any more, so the sweep says what a claim would have said."""
    claim = claim_for(harness, effect_class)
    own = begun(harness, claim)
    assert harness.ledger.release(own, not_sent=False) == "ready"
    harness.pass_deadline(claim.key)
    assert harness.ledger.sweep() == 1
    assert state_of(harness) == expected


def test_the_sweep_leaves_an_unsure_call_alone_until_a_promotion_is_declared(
    harness: Harness,
) -> None:
    """Past its deadline and held: expired only when nothing of it can have been lost."""
    claim = claim_for(harness)
    assert harness.ledger.hold(owned(claim, harness.ledger.claim(claim)), None, None)
    harness.promote()
    harness.pass_deadline(claim.key)
    assert harness.ledger.sweep() == 0
    assert harness.ledger.declare_timeline(lossless=False, since_ms=harness.now_ms)
    assert harness.ledger.sweep() == 1
    assert state_of(harness) == "in_doubt"


def test_redrive_hands_a_ready_call_out_once_with_its_source(harness: Harness) -> None:
    """Only tools that were asked for, only this topic, not twice at once, not before its delay."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    assert harness.ledger.release(own, not_sent=True) == "ready"
    topic = "toolcalls.completed.v1"
    assert harness.ledger.redrive(topic, ["transfer"], 10, 60) == []
    assert harness.ledger.redrive(topic, ["refund"], 10, 60) == [claim.source]
    assert harness.ledger.redrive(topic, ["refund"], 10, 60) == []
    again = begun(harness, claim)
    assert harness.ledger.release(again, not_sent=True, delay_s=600) == "ready"
    assert harness.ledger.redrive(topic, ["refund"], 10, 60) == []


def test_past_its_deadline_an_unknown_call_expires_without_a_row(harness: Harness) -> None:
    """So a replay of an old topic never starts anything, pruned or not."""
    claim = replace(claim_for(harness), deadline_ms=harness.now_ms - 1)
    verdict = harness.ledger.claim(claim)
    assert (verdict.kind, verdict.retry) == ("expired", "never")
    assert harness.ledger.show("acme", claim.key.idempotency_key) is None


def test_past_its_deadline_a_ready_call_expires(harness: Harness) -> None:
    """Nothing was begun, so it is simply too late."""
    claim = claim_for(harness)
    own = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.release(own, not_sent=True) == "ready"
    harness.pass_deadline(claim.key)
    verdict = harness.ledger.claim(claim)
    assert (verdict.kind, verdict.state) == ("replay", "expired")


def test_begin_past_the_deadline_is_refused(harness: Harness) -> None:
    """Checked at the point of no return."""
    claim = replace(claim_for(harness), lease_s=7200)
    own = owned(claim, harness.ledger.claim(claim))
    harness.pass_deadline(claim.key)
    assert harness.ledger.begin_effect(own, Begin(60)) == refused("deadline")


def test_a_pruned_call_expires_even_under_a_longer_deadline(harness: Harness) -> None:
    """Pruning never lets an old effect start again, whatever the caller's settings say now."""
    claim = claim_for(harness)
    old = replace(claim, emitted_at_ms=claim.emitted_at_ms - 900_000_000)
    assert harness.ledger.finish(begun(harness, old), SUCCEEDED).ok
    assert harness.ledger.prune(margin_s=0) == 0
    harness.pass_deadline(old.key)
    assert harness.ledger.prune(margin_s=0) == 1
    assert harness.ledger.fetch_result("acme", old.key.idempotency_key) is None
    later = replace(old, deadline_ms=harness.now_ms + 90_000_000_000)
    assert harness.ledger.claim(later).kind == "expired"


def test_a_call_in_doubt_is_never_pruned(harness: Harness) -> None:
    """A person has still to look at it."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    harness.ledger.release(own, not_sent=False)
    harness.pass_deadline(claim.key)
    assert harness.ledger.prune(margin_s=0) == 0
    assert state_of(harness) == "in_doubt"


# --- failover


@pytest.mark.parametrize("effect_class", CLASSES)
def test_an_undeclared_primary_pauses_the_unsure_classes(
    harness: Harness, effect_class: EffectClass
) -> None:
    """Until somebody says what was lost, what cannot be repeated does not start."""
    harness.promote()
    expected = "paused" if effect_class in UNSURE else "claimed"
    verdict = harness.ledger.claim(claim_for(harness, effect_class))
    assert (verdict.kind, verdict.retry) == (expected, "same_key")


def test_a_declared_lossless_promotion_lets_everything_run(harness: Harness) -> None:
    """Nothing was lost, so nothing is in doubt."""
    harness.promote()
    assert harness.ledger.declare_timeline(lossless=True, since_ms=harness.now_ms)
    assert not harness.ledger.declare_timeline(lossless=False, since_ms=harness.now_ms)
    assert harness.ledger.claim(claim_for(harness)).kind == "claimed"


def test_a_declared_lossy_promotion_doubts_what_was_emitted_before(harness: Harness) -> None:
    """An unseen call from before may have run on the lost tail; a later one cannot have."""
    harness.promote()
    since_ms = harness.now_ms - 500
    assert harness.ledger.declare_timeline(lossless=False, since_ms=since_ms)
    before = claim_for(harness)
    assert harness.ledger.claim(before).kind == "in_doubt"
    later = replace(before, key=key(1002), emitted_at_ms=since_ms + 100)
    assert harness.ledger.claim(later).kind == "claimed"


def test_a_claim_of_before_a_lossy_promotion_is_in_doubt(harness: Harness) -> None:
    """Its begin may have been on the lost tail."""
    claim = claim_for(harness)
    harness.ledger.claim(claim)
    harness.end_lease(claim.key)
    harness.promote()
    assert harness.ledger.declare_timeline(lossless=False, since_ms=harness.now_ms)
    assert harness.ledger.claim(claim).kind == "in_doubt"


# --- transactional, bounds and lists


def test_a_fenced_transactional_finish_raises(harness: Harness) -> None:
    """Raising is what rolls the effect back."""
    claim = claim_for(harness, "transactional")
    lost = begun(harness, claim)
    harness.end_lease(claim.key)
    begun(harness, replace(claim, owner="slot-1/1"))
    with pytest.raises(Fenced):
        harness.ledger.finish(lost, SUCCEEDED)
    with pytest.raises(Fenced), harness.ledger.effect_transaction(lost) as effect:
        effect.finish(SUCCEEDED)


def test_a_swept_transactional_finish_raises(harness: Harness) -> None:
    """Its effect must not commit while the call goes to somebody else."""
    claim = claim_for(harness, "transactional")
    own = begun(harness, claim)
    harness.end_lease(claim.key)
    assert harness.ledger.sweep() == 1
    with pytest.raises(Fenced):
        harness.ledger.finish(own, SUCCEEDED)


def test_values_that_the_table_cannot_hold_are_misuse(harness: Harness) -> None:
    """A colon in the request id, an over-long key, a short hash, a large body."""
    claim = claim_for(harness)
    for bad in (
        replace(claim, key=CallKey("acme", "req:1", "resp_1", "call_1")),
        replace(claim, key=CallKey("acme", "req_1", "resp_1", "c" * 512)),
        replace(claim, args_hash=b"\x01short"),
    ):
        with pytest.raises(Misuse):
            harness.ledger.claim(bad)
    own = begun(harness, claim)
    with pytest.raises(Misuse):
        harness.ledger.finish(own, Outcome("succeeded", body=bytes(65_537)))
    assert harness.ledger.finish(own, Outcome("succeeded", body=bytes(65_536))).ok


def test_lists_show_each_call_under_its_state_only(harness: Harness) -> None:
    """Waiting, running and ended calls, by state and tenant, with the key to use next."""
    by_state: dict[CallState, Callable[[Owned], object]] = {
        "claimed": lambda _: None,
        "ready": lambda own: harness.ledger.release(own, not_sent=True),
        "held": lambda own: harness.ledger.hold(own, None, None),
        "denied": lambda own: harness.ledger.finish(own, Outcome("denied")),
    }
    for number, (state, move) in enumerate(by_state.items()):
        claim = replace(claim_for(harness), key=key(number))
        move(owned(claim, harness.ledger.claim(claim)))
        lines = harness.ledger.list_calls(state=state, tenant="acme")
        assert [(x.idempotency_key, x.state) for x in lines] == [(claim.key.idempotency_key, state)]
        assert lines[0].retry == next_key(state)
        assert harness.ledger.list_calls(state=state, tenant="globex") == []
    assert len(harness.ledger.list_calls()) == len(by_state)
    assert len(harness.ledger.list_calls(limit=2)) == 2
    tool = claim_for(harness).tool
    assert len(harness.ledger.list_calls(tool=tool)) == len(by_state)
    assert harness.ledger.list_calls(tool="no_such_tool") == []
    assert harness.ledger.list_calls(state="held", older_s=3_600) == []
    assert len(harness.ledger.list_calls(state="held", newer_s=3_600)) == 1
    assert len(harness.ledger.list_calls(tool=tool, older_s=0, newer_s=3_600, limit=3)) == 3
