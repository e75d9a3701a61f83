"""One suite for every ledger: the executor's part, on memory and on Postgres."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from processor.core.outcomes import EffectClass
from processor.ledger.port import (
    Begin,
    CallState,
    Outcome,
    Owned,
    Usage,
    VerdictKind,
    agreed,
    refused,
)
from tests.contract.ledger_harness import (
    CLASSES,
    SUCCEEDED,
    Harness,
    begun,
    claim_for,
    key,
    moves,
    open_harness,
    owned,
    state_of,
)


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.integration)])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    """Each ledger in turn."""
    with open_harness(str(request.param), request) as opened:
        yield opened


@pytest.mark.parametrize("effect_class", CLASSES)
def test_a_call_runs_once_and_a_second_delivery_gets_the_stored_result(
    harness: Harness, effect_class: EffectClass
) -> None:
    """Claim, begin, finish; then `replay` with result, fence and nothing to run."""
    claim = claim_for(harness, effect_class)
    own = begun(harness, claim)
    assert harness.ledger.finish(own, SUCCEEDED) == agreed()
    again = harness.ledger.claim(replace(claim, owner="slot-1/7"))
    assert (again.kind, again.retry, again.state) == ("replay", "never", "succeeded")
    assert again.fence == own.fence
    stored = harness.ledger.fetch_result("acme", claim.key.idempotency_key)
    assert stored is not None
    assert (stored.key, stored.tool, stored.body) == (claim.key, "refund", SUCCEEDED.body)
    assert moves(harness.ledger.history("acme", claim.key.idempotency_key)) == [
        (None, "claimed", None),
        ("claimed", "executing", None),
        ("executing", "succeeded", None),
    ]


def test_a_second_claim_under_a_live_lease_is_busy(harness: Harness) -> None:
    """One owner at a time, even for the same owner's name."""
    claim = claim_for(harness)
    assert harness.ledger.claim(claim).kind == "claimed"
    busy = harness.ledger.claim(claim)
    assert (busy.kind, busy.retry, busy.fence) == ("busy", "same_key", None)


@pytest.mark.parametrize("effect_class", CLASSES)
def test_crash_before_begin_gives_a_new_fence_and_refuses_the_old_owner(
    harness: Harness, effect_class: EffectClass
) -> None:
    """A lost claim is harmless; its owner can neither begin nor settle any more."""
    claim = claim_for(harness, effect_class)
    lost = owned(claim, harness.ledger.claim(claim))
    harness.end_lease(claim.key)
    second = replace(claim, owner="slot-1/1")
    new = owned(second, harness.ledger.claim(second))
    assert new.fence > lost.fence
    assert harness.ledger.begin_effect(lost, Begin(60)) == refused("fenced")
    assert harness.ledger.finish(lost, Outcome("failed")) == refused("fenced")
    assert harness.ledger.release(lost, not_sent=True) is None
    assert harness.ledger.begin_effect(new, Begin(60)).ok


@pytest.mark.parametrize(
    ("effect_class", "expected"),
    [
        ("read_only", "claimed"),
        ("idempotent", "claimed"),
        ("transactional", "claimed"),
        ("reconcilable", "in_doubt"),
        ("at_most_once", "in_doubt"),
    ],
)
def test_crash_after_begin_ends_by_effect_class(
    harness: Harness, effect_class: EffectClass, expected: VerdictKind
) -> None:
    """Safe classes run again; the others are in doubt and are not run again."""
    claim = claim_for(harness, effect_class)
    begun(harness, claim)
    harness.end_lease(claim.key)
    verdict = harness.ledger.claim(claim)
    assert (verdict.kind, verdict.retry) == (expected, "same_key")
    assert state_of(harness) == expected


def test_an_idempotent_call_is_in_doubt_after_the_downstream_window(harness: Harness) -> None:
    """When the other side has forgotten the key, repeating is a second effect."""
    claim = claim_for(harness, "idempotent")
    begun(harness, claim)
    harness.end_redrive_window(claim.key)
    assert harness.ledger.claim(claim).kind == "in_doubt"


def test_an_idempotent_call_is_in_doubt_when_its_starts_are_used_up(harness: Harness) -> None:
    """The last start may have worked."""
    claim = replace(claim_for(harness, "idempotent"), max_begun=1)
    begun(harness, claim)
    harness.end_lease(claim.key)
    assert harness.ledger.claim(claim).kind == "in_doubt"


def test_a_read_only_call_fails_when_its_starts_are_used_up(harness: Harness) -> None:
    """Without an effect there is nothing to doubt: the call failed, and a new key may be used."""
    claim = replace(claim_for(harness, "read_only"), max_begun=1)
    begun(harness, claim)
    harness.end_lease(claim.key)
    verdict = harness.ledger.claim(claim)
    assert (verdict.kind, verdict.state, verdict.retry) == ("replay", "failed", "new_key")
    stored = harness.ledger.fetch_result("acme", claim.key.idempotency_key)
    assert stored is not None
    assert stored.error_class == "attempts_exhausted"


def test_begin_after_the_lease_is_refused(harness: Harness) -> None:
    """A pause longer than the lease costs the right to begin."""
    claim = claim_for(harness)
    own = owned(claim, harness.ledger.claim(claim))
    harness.end_lease(claim.key)
    assert harness.ledger.begin_effect(own, Begin(60)) == refused("lease_lost")
    assert harness.ledger.renew(own, 60) is False


def test_finish_after_the_lease_settles_when_nobody_else_has(harness: Harness) -> None:
    """Once begun, the owner knows best what happened; a late finish of its fence counts."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    harness.end_lease(claim.key)
    assert harness.ledger.claim(replace(claim, owner="slot-1/1")).kind == "in_doubt"
    assert harness.ledger.finish(own, SUCCEEDED) == agreed()
    assert state_of(harness) == "succeeded"


def test_renew_lengthens_a_live_lease(harness: Harness) -> None:
    """Only while it lives."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    before = harness.ledger.show("acme", claim.key.idempotency_key)
    assert harness.ledger.renew(own, 120)
    after = harness.ledger.show("acme", claim.key.idempotency_key)
    assert before is not None
    assert after is not None
    assert before.lease_until_ms is not None
    assert after.lease_until_ms is not None
    assert after.lease_until_ms > before.lease_until_ms + 30_000


def test_an_executor_that_dies_before_begin_for_ever_ends_as_failed(harness: Harness) -> None:
    """After the allowed starts and ten more claims it is over."""
    claim = claim_for(harness)
    kinds: list[VerdictKind] = []
    for _ in range(12):
        kinds.append(harness.ledger.claim(replace(claim, deadline_ms=claim.deadline_ms)).kind)
        if kinds[-1] == "claimed":
            harness.end_lease(claim.key)
    assert kinds == ["claimed"] * 11 + ["replay"]
    assert state_of(harness) == "failed"


@pytest.mark.parametrize("change", ["args_hash", "tool"])
def test_same_key_with_other_arguments_or_tool_is_a_conflict(harness: Harness, change: str) -> None:
    """Recorded, counted, never executed, before and after the end of the call."""
    claim = claim_for(harness)
    other = (
        replace(claim, args_hash=b"\x01" + bytes(32))
        if change == "args_hash"
        else replace(claim, tool="transfer")
    )
    own = begun(harness, claim)
    first = harness.ledger.claim(other)
    assert (first.kind, first.retry) == ("conflict", "never")
    assert harness.ledger.finish(own, SUCCEEDED).ok
    assert harness.ledger.claim(other).kind == "conflict"
    view = harness.ledger.show("acme", claim.key.idempotency_key)
    assert view is not None
    assert (view.conflicts, view.tool, view.args_hash) == (2, "refund", claim.args_hash)
    history = harness.ledger.history("acme", claim.key.idempotency_key)
    assert [t.why for t in history].count("conflict") == 1


def test_the_same_key_under_another_tenant_is_another_call(harness: Harness) -> None:
    """The tenant is part of the identity."""
    claim = claim_for(harness)
    assert harness.ledger.claim(claim).kind == "claimed"
    assert harness.ledger.claim(replace(claim, key=key(tenant="globex"))).kind == "claimed"


def test_begin_twice_by_one_owner_is_one_start(harness: Harness) -> None:
    """A begin whose answer was lost is asked again and costs nothing."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    assert harness.ledger.begin_effect(own, Begin(60)) == agreed("already_begun")
    view = harness.ledger.show("acme", claim.key.idempotency_key)
    assert view is not None
    assert view.begun == 1


def test_finish_twice_by_one_owner_is_one_result(harness: Harness) -> None:
    """A finish whose answer was lost is asked again; usage is not doubled."""
    claim = claim_for(harness)
    own = begun(harness, claim)
    outcome = replace(SUCCEEDED, usage=(Usage("calls", "call", "reported", "0"),))
    assert harness.ledger.finish(own, outcome) == agreed()
    assert harness.ledger.finish(own, outcome) == agreed("already")


def test_finish_without_begin_cannot_succeed(harness: Harness) -> None:
    """Success needs a start that was recorded before it."""
    claim = claim_for(harness)
    own = owned(claim, harness.ledger.claim(claim))
    assert harness.ledger.finish(own, SUCCEEDED) == refused("state:claimed")
    assert harness.ledger.finish(own, Outcome("denied", error_class="not_authorized")).ok
    assert state_of(harness) == "denied"


def test_an_unknown_call_is_fenced(harness: Harness) -> None:
    """Nothing can be begun or settled that was never claimed."""
    nobody = Owned("acme", "req_9:call_9", 7)
    assert harness.ledger.begin_effect(nobody, Begin(60)) == refused("fenced")
    assert harness.ledger.finish(nobody, SUCCEEDED) == refused("fenced")
    assert harness.ledger.release(nobody, not_sent=True) is None
    assert harness.ledger.hold(nobody, None, None) is False
    assert harness.ledger.fetch_result("acme", "req_9:call_9") is None
    assert harness.ledger.show("acme", "req_9:call_9") is None


@pytest.mark.parametrize("effect_class", CLASSES)
def test_a_request_that_was_never_sent_is_given_back(
    harness: Harness, effect_class: EffectClass
) -> None:
    """A start proven unsent does not count, whatever the class."""
    claim = claim_for(harness, effect_class)
    own = begun(harness, claim)
    assert harness.ledger.release(own, not_sent=True, why="not_sent") == "ready"
    view = harness.ledger.show("acme", claim.key.idempotency_key)
    assert view is not None
    assert (view.state, view.begun) == ("ready", 0)
    assert harness.ledger.claim(claim).kind == "claimed"


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
def test_a_start_with_unknown_outcome_is_released_by_class(
    harness: Harness, effect_class: EffectClass, expected: CallState
) -> None:
    """Without proof that nothing was sent, only safe classes go back."""
    claim = claim_for(harness, effect_class)
    own = begun(harness, claim)
    assert harness.ledger.release(own, not_sent=False, why="timeout") == expected
    assert harness.ledger.release(own, not_sent=False) is None


def test_the_class_stored_first_decides(harness: Harness) -> None:
    """A later change of the catalogue does not change calls that were claimed already."""
    claim = claim_for(harness, "at_most_once")
    begun(harness, claim)
    harness.end_lease(claim.key)
    later = harness.ledger.claim(replace(claim, effect_class="read_only"))
    assert (later.kind, later.effect_class) == ("in_doubt", "at_most_once")
