"""Random histories against a small model: every answer, every state and every count must agree."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from processor.core.errors import Fenced
from processor.core.identity import CallKey
from processor.core.outcomes import EffectClass
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import (
    UNSURE,
    Begin,
    Claim,
    Outcome,
    Owned,
    Resolved,
    Settled,
)
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir
from tests.contract.ledger_harness import (
    CLASSES,
    Harness,
    MemoryHarness,
    PostgresHarness,
    claim_for,
)
from tests.integration.ledger_model import ENDED, Row, World

KEYS = 2
LEASE_S = 3_600.0
WINDOW_S = 100_000.0
MASK = (1 << 40) - 1

CLEAN = """
TRUNCATE tcl.call_guard, tcl.call_active, tcl.call_parked, tcl.call_conflict, tcl.call_approval,
         tcl.call_result, tcl.call_usage, tcl.call_history, tcl.outbox;
UPDATE tcl.prune_mark SET emitted_until = '-infinity';
DELETE FROM tcl.epoch;
INSERT INTO tcl.epoch (timeline, since, lossless) VALUES (tcl.timeline(), '-infinity', true);
"""


class OwnTime(MemoryHarness):
    """The memory ledger, in which one call's time can pass alone."""

    def end_lease(self, key: CallKey) -> None:
        """Set it back."""
        active = self.memory._guards[key.tenant, key.idempotency_key].active
        assert active
        active.lease_until_ms = self.now_ms - 1000

    def pass_deadline(self, key: CallKey) -> None:
        """Set it back."""
        guard = self.memory._guards[key.tenant, key.idempotency_key]
        guard.claim = replace(guard.claim, deadline_ms=self.now_ms - 1000)

    def end_redrive_window(self, key: CallKey) -> None:
        """Set it back."""
        guard = self.memory._guards[key.tenant, key.idempotency_key]
        guard.redrive_until_ms = self.now_ms - 1000


class OwnRows(PostgresHarness):
    """The Postgres ledger, in which one call's window can pass without its lease."""

    def end_redrive_window(self, key: CallKey) -> None:
        """Set it back."""
        self._force("tcl.call_guard SET redrive_until = now() - interval '1 s'", key)


@dataclass
class Owner:
    """A process that was told that a call is its own; it may be slow, and it may never come back."""

    number: int
    fence: int
    began: bool = False
    sent: bool = False


class Histories(RuleBasedStateMachine):
    """Executors, people and time, in any order, on one ledger."""

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self.harness = harness
        self.ledger = harness.ledger
        self.world = World()
        self.rows: list[Row] = []
        self.effects = [0] * KEYS
        self.serials = list(range(KEYS))
        #: When those were emitted that left the play ended, past their deadline and not yet pruned.
        self.left_late: list[int] = []
        self.owners: list[Owner] = []

    @initialize(
        classes=st.lists(st.sampled_from(CLASSES), min_size=KEYS, max_size=KEYS),
        most=st.integers(1, 3),
    )
    def choose(self, classes: list[EffectClass], most: int) -> None:
        """Which classes the calls have."""
        self.rows = [self._row(n, effect, most) for n, effect in enumerate(classes)]

    def _row(self, serial: int, effect: EffectClass, most: int) -> Row:
        starts = 1 if effect in UNSURE else most
        return Row(self.world, effect, starts, self.harness.now_ms - 1_000_000 + serial * 1000)

    @rule(number=st.integers(0, KEYS - 1), effect=st.sampled_from(CLASSES), most=st.integers(1, 3))
    def next_call(self, number: int, effect: EffectClass, most: int) -> None:
        """What has ended is of no more interest: another call takes its place."""
        if self.rows[number].state in ENDED:
            if self.rows[number].late:
                self.left_late.append(self.rows[number].emitted_ms)
            self.serials[number] = max(self.serials) + 1
            self.rows[number] = self._row(self.serials[number], effect, most)
            self.effects[number] = 0
            self.owners = [o for o in self.owners if o.number != number]

    # --- executors

    @rule(number=st.integers(0, KEYS - 1), same=st.sampled_from([True, True, True, False]))
    def claim(self, number: int, same: bool) -> None:
        """Anybody asks for a call, now and then with other arguments."""
        row = self.rows[number]
        known = row.state is not None
        expected = row.claim(same=same or not known)
        claim = self._claim(number)
        if known and not same:
            claim = replace(claim, args_hash=b"\x01" + b"x" * 32)
        verdict = self.ledger.claim(claim)
        assert verdict.kind == expected
        if expected == "claimed":
            assert verdict.fence is not None
            assert verdict.fence > row.fence
            row.fence = verdict.fence
            self.owners.append(Owner(number, verdict.fence))
        elif expected == "in_doubt" and verdict.fence is not None:
            row.fence = verdict.fence

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), need_approval=st.sampled_from([False, False, False, True]))
    def begin(self, data: st.DataObject, need_approval: bool) -> None:
        """An owner passes the point of no return, or learns that it may not."""
        self._begin(self._owner(data), need_approval=need_approval)

    @rule(number=st.integers(0, KEYS - 1), then_lost=st.booleans())
    def start(self, number: int, then_lost: bool) -> None:
        """The usual way: claim and begin; half of the owners then stall longer than their lease."""
        before = len(self.owners)
        self.claim(number, same=True)
        if len(self.owners) > before:
            self._begin(self.owners[-1], need_approval=False)
            if then_lost:
                self.end_lease(number)

    @rule(number=st.integers(0, KEYS - 1), outcome=st.sampled_from(["denied", "failed", None]))
    def take_over(self, number: int, outcome: Settled | None) -> None:
        """A lease runs out and somebody else claims the call; now and then it ends there."""
        self.end_lease(number)
        before = len(self.owners)
        self.claim(number, same=True)
        if len(self.owners) > before and outcome is not None:
            self._finish(self.owners[-1], outcome)

    def _begin(self, owner: Owner, *, need_approval: bool) -> None:
        row = self.rows[owner.number]
        expected = row.begin(owner.fence, need_approval=need_approval)
        redrive_s = WINDOW_S if row.effect == "idempotent" else None
        answer = self.ledger.begin_effect(
            self._owned(owner), Begin(LEASE_S, need_approval=need_approval, redrive_s=redrive_s)
        )
        assert (answer.ok, answer.why) == expected
        owner.began = owner.began or answer.ok

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def send(self, data: st.DataObject) -> None:
        """An owner that began causes the effect, at once or long after its lease."""
        owner = self._owner(data)
        row = self.rows[owner.number]
        if owner.began and not owner.sent and row.effect != "transactional":
            owner.sent = True
            self.effects[owner.number] += 1

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), outcome=st.sampled_from(["succeeded", "failed", "denied", "cancelled"]))
    def finish(self, data: st.DataObject, outcome: Settled) -> None:
        """An owner settles, early, late, or when it is none any more."""
        self._finish(self._owner(data), outcome)

    def _finish(self, owner: Owner, outcome: Settled) -> None:
        row = self.rows[owner.number]
        expected = row.finish(owner.fence, outcome)
        owned = self._owned(owner)
        if row.effect == "transactional" and outcome == "succeeded" and not expected[0]:
            with pytest.raises(Fenced):
                self.ledger.finish(owned, Outcome(outcome))
            return
        answer = self.ledger.finish(owned, Outcome(outcome))
        assert (answer.ok, answer.why) == expected
        if row.effect == "transactional" and outcome == "succeeded" and answer.why is None:
            self.effects[owner.number] += 1

    @precondition(lambda self: self.owners)
    @rule(data=st.data(), claimed_unsent=st.booleans())
    def release(self, data: st.DataObject, claimed_unsent: bool) -> None:
        """An owner gives the call back; that nothing was sent is said only when it is true."""
        owner = self._owner(data)
        row = self.rows[owner.number]
        not_sent = claimed_unsent and not owner.sent
        expected = row.release(owner.fence, not_sent=not_sent)
        assert self.ledger.release(self._owned(owner), not_sent=not_sent) == expected
        if expected is not None:
            # Who has given a call back does not send any more.
            self.owners.remove(owner)

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        """An owner lets a person decide."""
        owner = self._owner(data)
        expected = self.rows[owner.number].hold(owner.fence)
        assert self.ledger.hold(self._owned(owner), "rule-1", "rev-1") == expected

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """An owner lengthens its lease while it lives."""
        owner = self._owner(data)
        row = self.rows[owner.number]
        assert self.ledger.renew(self._owned(owner), LEASE_S) == (
            row.lease and row.fence == owner.fence
        )

    @precondition(lambda self: self.owners)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """An owner is gone for good."""
        self.owners.remove(self._owner(data))

    # --- people

    @rule(number=st.integers(0, KEYS - 1), yes=st.booleans())
    def decide(self, number: int, yes: bool) -> None:
        """An approver speaks."""
        claim = self._claim(number)
        expected = self.rows[number].decide(yes=yes)
        done = self.ledger.decide(
            *self._name(number), claim.args_hash, "approver", yes=yes, ttl_s=LEASE_S
        )
        assert done == expected

    @rule(number=st.integers(0, KEYS - 1))
    def cancel(self, number: int) -> None:
        """An application changes its mind."""
        expected = self.rows[number].cancelled()
        assert self.ledger.cancel(*self._name(number), "application") == expected

    @rule(
        number=st.integers(0, KEYS - 1),
        to=st.sampled_from(["succeeded", "failed", "ready"]),
        right=st.sampled_from([True, True, False]),
    )
    def resolve(self, number: int, to: Resolved, right: bool) -> None:
        """A person who has found out settles a doubt; `ready` needs proof, so it is not always free."""
        row = self.rows[number]
        if to == "ready" and row.state == "in_doubt":
            if self.effects[number]:
                return
            # Proven: nothing happened, and whoever could still send is gone.
            self.owners = [o for o in self.owners if o.number != number]
        expected = row.resolve(to, right_fence=right)
        seen = row.fence if right else row.fence + 1
        assert self.ledger.resolve(*self._name(number), seen, to, "operator") == expected
        if expected:
            view = self.ledger.show(*self._name(number))
            assert view is not None
            assert view.fence > row.fence
            row.fence = view.fence

    @rule()
    def sweep(self) -> None:
        """The care that every executor takes."""
        assert self.ledger.sweep() == sum([row.sweep() for row in self.rows])

    @rule()
    def prune(self) -> None:
        """What has ended and is past its deadline is forgotten, and cannot start again."""
        gone = [r for r in self.rows if r.state in ENDED and r.late]
        assert self.ledger.prune(0.0) == len(gone) + len(self.left_late)
        for emitted_ms in self.left_late:
            self.world.pruned_until_ms = max(self.world.pruned_until_ms, emitted_ms)
        self.left_late = []
        for row in gone:
            self.world.pruned_until_ms = max(self.world.pruned_until_ms, row.emitted_ms)
            number = self.rows.index(row)
            self.rows[number] = Row(self.world, row.effect, row.most, row.emitted_ms)
            self.owners = [o for o in self.owners if o.number != number]

    # --- time

    @rule(number=st.integers(0, KEYS - 1))
    def end_lease(self, number: int) -> None:
        """A lease runs out."""
        row = self.rows[number]
        if row.owned:
            row.lease = False
            self.harness.end_lease(self._claim(number).key)

    @rule(number=st.integers(0, KEYS - 1))
    def pass_deadline(self, number: int) -> None:
        """A deadline passes."""
        row = self.rows[number]
        if row.state is not None:
            row.late = True
            self.harness.pass_deadline(self._claim(number).key)

    @rule(number=st.integers(0, KEYS - 1), then=st.sampled_from(["nothing", "claim", "sweep"]))
    def end_window(self, number: int, then: str) -> None:
        """The system behind the tool forgets the key, while its owner may be long gone."""
        row = self.rows[number]
        if row.effect == "idempotent" and row.begun > 0:
            row.window_over = True
            self.harness.end_redrive_window(self._claim(number).key)
            if then != "nothing":
                self.end_lease(number)
            if then == "claim":
                self.claim(number, same=True)
            elif then == "sweep":
                self.sweep()

    @precondition(lambda self: self.world.failover == "none")
    @rule()
    def promote(self) -> None:
        """The primary is lost and a standby takes over; what was written before carries old fences."""
        self.harness.promote()
        self.world.failover = "undeclared"
        for number, row in enumerate(self.rows):
            row.of_old_primary = True
            view = self.ledger.show(*self._name(number))
            if view is None:
                continue
            for owner in self.owners:
                if owner.number == number and owner.fence == row.fence:
                    owner.fence = view.fence
                elif owner.number == number:
                    owner.fence = view.fence - 1
            row.fence = view.fence

    @precondition(lambda self: self.world.failover == "undeclared")
    @rule(lossless=st.booleans())
    def declare(self, lossless: bool) -> None:
        """A person says what was lost."""
        self.world.failover = "lossless" if lossless else "lossy"
        assert self.ledger.declare_timeline(lossless=lossless, since_ms=self.harness.now_ms)

    # --- what must always hold

    @invariant()
    def the_ledger_agrees(self) -> None:
        """State, fence and counts of every call are those of the model."""
        for number, row in enumerate(self.rows):
            view = self.ledger.show(*self._name(number))
            if view is None:
                assert row.state is None
                continue
            found = (view.state, view.fence, view.claims, view.begun, view.cancel_requested)
            assert found == (row.state, row.fence, row.claims, row.begun, row.cancel)
            assert (view.lease_until_ms is not None) == row.owned

    @invariant()
    def no_effect_happens_twice(self) -> None:
        """What cannot be repeated happened at most once, whoever crashed or slept."""
        for number, row in enumerate(self.rows):
            if row.effect in UNSURE or row.effect == "transactional":
                assert self.effects[number] <= 1

    # --- inner parts

    def _owner(self, data: st.DataObject) -> Owner:
        return data.draw(st.sampled_from(self.owners))

    def _claim(self, number: int) -> Claim:
        row = self.rows[number]
        base = claim_for(self.harness, row.effect)
        return replace(
            base,
            key=CallKey("acme", f"req_{self.serials[number]}", "resp_1", "call_1"),
            lease_s=LEASE_S,
            emitted_at_ms=row.emitted_ms,
            deadline_ms=self.harness.now_ms + 100_000_000,
            max_begun=row.most,
        )

    def _name(self, number: int) -> tuple[str, str]:
        return "acme", f"req_{self.serials[number]}:call_1"

    def _owned(self, owner: Owner) -> Owned:
        return Owned(*self._name(owner.number), owner.fence)


def run_histories(make: Callable[[], Histories], examples: int) -> None:
    """Many histories; Hypothesis prints the shortest one that disagrees."""
    run_state_machine_as_test(
        cast("type[RuleBasedStateMachine]", make),
        settings=settings(
            max_examples=examples,
            stateful_step_count=50,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_memory_ledger_agrees_with_the_model_on_random_histories() -> None:
    """Claims, crashes, stalls, people, sweeps, failovers: no answer differs."""
    run_histories(lambda: Histories(OwnTime()), 300)


@pytest.mark.integration
def test_postgres_agrees_with_the_model_on_random_histories(database: str) -> None:
    """The same histories on the real thing; time passes by rewriting rows, not by waiting."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with (
        PostgresLedger(PostgresSettings(database)) as ledger,
        psycopg.connect(database, autocommit=True) as connection,
    ):

        def fresh() -> Histories:
            connection.execute(CLEAN)
            return Histories(OwnRows(database, ledger))

        run_histories(fresh, 60)
