"""A ledger in this process's memory, for tests and trials: same answers, no durability.

Rules:
    Mirrors the functions of `migrations/` line by line; the contract tests run on both.
    The clock is injected; nothing moves by itself.
"""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from processor.core.canonical import sha256
from processor.core.errors import Misuse
from processor.ledger.batches import OneByOne
from processor.ledger.memory_guard import (
    OWNED,
    PARKED,
    Active,
    Approval,
    Asked,
    Guard,
    begin_refusal,
    check_claim,
    finish_refusal,
    line_of,
    may_have_worked,
    refuse_effect,
    stored_of,
    use_approval,
    verdict,
    view_of,
)
from processor.ledger.memory_outbox import MemoryOutbox
from processor.ledger.memory_usage import MemoryUsage
from processor.ledger.port import (
    CLAIMS_SPARE,
    RESULT_BYTES_MAX,
    TERMINAL,
    UNSURE,
    Answer,
    Begin,
    CallLine,
    CallState,
    CallView,
    Claim,
    EffectTransaction,
    Outcome,
    Owned,
    Resolved,
    Source,
    StoredResult,
    Transition,
    Verdict,
    agreed,
    refused,
)

_Key = tuple[str, str]


class MemoryLedger(OneByOne):
    """`FullLedger` over a dict. `now_ms` is epoch milliseconds. Raises: as the port says."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._lock = threading.RLock()
        self._guards: dict[_Key, Guard] = {}
        self._fences = 0
        self._timeline = 1
        self._epochs: dict[int, tuple[float, bool]] = {1: (float("-inf"), True)}
        self._pruned_until_ms = float("-inf")
        self.outbox = MemoryOutbox(self._lock, now_ms)
        self.usage = MemoryUsage(self._guards, self._lock, now_ms)

    def promote(self) -> None:
        """Begin a new timeline that nobody has declared yet, as a promotion of a standby does."""
        with self._lock:
            self._timeline += 1

    # --- executor

    def claim(self, claim: Claim) -> Verdict:
        """See `Ledger.claim`."""
        check_claim(claim)
        with self._lock:
            now = self._now_ms()
            unsure = claim.effect_class in UNSURE
            if unsure and self._timeline not in self._epochs:
                return verdict("paused", claim)
            key = (claim.key.tenant, claim.key.idempotency_key)
            guard = self._guards.get(key)
            if guard is None:
                if claim.deadline_ms <= now or claim.emitted_at_ms <= self._pruned_until_ms:
                    return verdict("expired", claim)
                return self._first(key, claim, now)
            if (guard.claim.args_hash, guard.claim.tool) != (claim.args_hash, claim.tool):
                self._note_conflict(guard, claim)
                return verdict("conflict", guard.claim, state=guard.state)
            return self._again(guard, claim, now)

    def _first(self, key: _Key, claim: Claim, now: float) -> Verdict:
        lost = any(not ok and claim.emitted_at_ms < since for since, ok in self._epochs.values())
        doubtful = claim.effect_class in UNSURE and lost
        fence = self._next_fence()
        guard = Guard(claim, "in_doubt" if doubtful else "claimed", fence, now, now)
        self._guards[key] = guard
        if doubtful:
            self._note(guard, None, claim.owner, "emitted_before_lossy_failover")
            return verdict("in_doubt", claim, fence, "in_doubt")
        guard.active = Active(fence, claim.owner, now + claim.lease_s * 1000)
        self._note(guard, None, claim.owner, None)
        return verdict("claimed", claim, fence, "claimed")

    def _again(self, guard: Guard, claim: Claim, now: float) -> Verdict:
        stored = guard.claim
        self.outbox.repeat(guard, claim)
        if guard.state in TERMINAL:
            return verdict("replay", stored, guard.fence, guard.state)
        if guard.state == "held" or guard.state == "in_doubt":
            return verdict(guard.state, stored, guard.fence, guard.state)
        if guard.active is not None and guard.active.lease_until_ms > now:
            return verdict("busy", stored, state=guard.state)
        was = guard.state
        late = min(stored.deadline_ms, claim.deadline_ms) <= now
        spent = guard.begun >= stored.max_begun
        if self._doubtful(guard, now + claim.lease_s * 1000, gone=late or spent):
            guard.state = "in_doubt"
            self._note(guard, was, claim.owner, "owner_lost")
            return verdict("in_doubt", stored, guard.fence, "in_doubt")
        if late or spent or guard.claims >= stored.max_begun + CLAIMS_SPARE:
            if late:
                self._expire(guard, claim.owner)
            else:
                word = "attempts_exhausted"
                self._end(guard, Outcome("failed", error_class=word), claim.owner, word)
            return verdict("replay", stored, guard.fence, guard.state)
        guard.fence = self._next_fence()
        guard.state = "claimed"
        guard.claims += 1
        guard.active = Active(guard.fence, claim.owner, now + claim.lease_s * 1000)
        self._note(guard, was, claim.owner, None if was == "ready" else "lease_over")
        return verdict("claimed", stored, guard.fence, "claimed")

    def _doubtful(self, guard: Guard, until_ms: float, *, gone: bool) -> bool:
        """May the lost owner have caused an effect that must not be repeated?"""
        if guard.unsure:
            return guard.state == "executing" or self._lossy_since(guard.fence)
        window_over = guard.redrive_until_ms is None or guard.redrive_until_ms < until_ms
        return (
            guard.claim.effect_class == "idempotent" and guard.begun > 0 and (window_over or gone)
        )

    def begin_effect(self, owned: Owned, begin: Begin) -> Answer:
        """See `Ledger.begin_effect`."""
        with self._lock:
            now = self._now_ms()
            guard = self._owned(owned)
            refusal = begin_refusal(guard, now)
            if guard is None or guard.active is None or refusal is not None:
                return refused(refusal or "lease_lost")
            guard.active.lease_until_ms = now + begin.lease_s * 1000
            if guard.state == "executing":
                return agreed("already_begun")
            if guard.begun > 0 and guard.unsure:
                return refused("begun_before")
            if begin.need_approval and not use_approval(guard, now):
                return refused("approval")
            guard.state = "executing"
            guard.begun += 1
            guard.started_at_ms = guard.started_at_ms or now
            guard.decision_id, guard.policy_rev = begin.decision_id, begin.policy_rev
            if begin.redrive_s is not None and guard.redrive_until_ms is None:
                guard.redrive_until_ms = now + begin.redrive_s * 1000
            self._note(guard, "claimed", guard.active.owner, begin.decision_id)
            return agreed()

    def renew(self, owned: Owned, lease_s: float) -> bool:
        """See `Ledger.renew`."""
        with self._lock:
            now = self._now_ms()
            guard = self._owned(owned)
            if guard is None or guard.active is None or guard.active.lease_until_ms <= now:
                return False
            guard.active.lease_until_ms = now + lease_s * 1000
            return True

    def finish(self, owned: Owned, outcome: Outcome) -> Answer:
        """See `Ledger.finish`."""
        if outcome.body is not None and len(outcome.body) > RESULT_BYTES_MAX:
            raise Misuse(f"a result body has at most {RESULT_BYTES_MAX} bytes: pass its digest")
        with self._lock:
            known = self._guards.get((owned.tenant, owned.idempotency_key))
            guard = self._owned(owned)
            if guard is not None and guard.state == outcome.state:
                return agreed("already")
            why = "fenced" if guard is None else finish_refusal(guard, outcome)
            if guard is None or why is not None:
                reason = why or "fenced"
                if known is not None and known.claim.effect_class == "transactional":
                    refuse_effect(outcome)
                return refused(reason)
            owner = guard.active.owner if guard.active else None
            if guard.state == "claimed" and guard.begun > 0 and may_have_worked(guard):
                guard.state = "in_doubt"
                self._note(guard, "claimed", owner, "begun_before")
                return refused("in_doubt")
            guard.usage.extend(outcome.usage)
            self._end(guard, outcome, owner, outcome.error_class)
            return agreed()

    @contextmanager
    def effect_transaction(self, owned: Owned) -> Generator[EffectTransaction]:
        """See `Ledger.effect_transaction`; there is no database whose effect could be undone."""
        yield _MemoryEffect(self, owned)

    def release(
        self, owned: Owned, *, not_sent: bool, why: str | None = None, delay_s: float = 0.0
    ) -> CallState | None:
        """See `Ledger.release`."""
        with self._lock:
            guard = self._owned(owned)
            if guard is None or guard.state not in OWNED:
                return None
            was = guard.state
            owner = guard.active.owner if guard.active else None
            guard.begun -= was == "executing" and not_sent
            spent = guard.begun >= guard.claim.max_begun
            if guard.begun > 0 and (
                guard.unsure or (guard.claim.effect_class == "idempotent" and spent)
            ):
                guard.state = "in_doubt"
            elif spent:
                self._end(guard, Outcome("failed", error_class="attempts_exhausted"), owner, why)
                return guard.state
            else:
                guard.state = "ready"
            self._note(guard, was, owner, why, delay_s)
            return guard.state

    def hold(self, owned: Owned, decision_id: str | None, policy_rev: str | None) -> bool:
        """See `Ledger.hold`."""
        with self._lock:
            guard = self._owned(owned)
            if guard is None or guard.state != "claimed":
                return False
            guard.state = "held"
            guard.decision_id, guard.policy_rev = decision_id, policy_rev
            self._note(guard, "claimed", None, decision_id)
            return True

    def sweep(self, limit: int = 100) -> int:
        """See `Ledger.sweep`."""
        with self._lock:
            now = self._now_ms()
            owned = [g for g in self._guards.values() if g.active is not None]
            over = [g for g in owned if g.active and g.active.lease_until_ms < now][:limit]
            for guard in over:
                self._sweep_one(guard, now, late=False)
            waiting = [g for g in self._guards.values() if g.state in {"held", "ready"}]
            undeclared = self._timeline not in self._epochs
            late = [
                g for g in waiting if g.claim.deadline_ms <= now and not (g.unsure and undeclared)
            ][:limit]
            for guard in late:
                self._sweep_one(guard, now, late=True)
            return len(over) + len(late)

    def _sweep_one(self, guard: Guard, now: float, *, late: bool) -> None:
        was = guard.state
        spent = guard.begun >= guard.claim.max_begun
        why = "deadline" if late else "lease_over"
        if self._doubtful(guard, now, gone=late or spent):
            guard.state = "in_doubt"
            self._note(guard, was, "sweep", why)
        elif late:
            self._expire(guard, "sweep")
        elif spent:
            self._end(guard, Outcome("failed", error_class="attempts_exhausted"), "sweep", why)
        else:
            guard.state = "ready"
            self._note(guard, was, "sweep", why)

    def redrive(self, topic: str, tools: Sequence[str], limit: int, hold_s: float) -> list[Source]:
        """See `Ledger.redrive`."""
        with self._lock:
            now = self._now_ms()
            due = [
                g
                for g in self._guards.values()
                if g.state == "ready" and g.not_before_ms <= now and g.claim.tool in tools
            ]
            due = sorted(due, key=lambda g: g.not_before_ms)[:limit]
            for guard in due:
                guard.not_before_ms = now + hold_s * 1000
            sources = [g.claim.source for g in due]
            return [s for s in sources if s is not None and s.topic == topic]

    # --- people

    def decide(
        self,
        tenant: str,
        idempotency_key: str,
        args_hash: bytes,
        approver: str,
        *,
        yes: bool,
        ttl_s: float,
    ) -> bool:
        """See `People.decide`."""
        with self._lock:
            now = self._now_ms()
            guard = self._guards.get((tenant, idempotency_key))
            if guard is None or guard.state != "held" or guard.claim.args_hash != args_hash:
                return False
            if guard.claim.deadline_ms <= now:
                return False
            guard.approvals[args_hash] = Approval(approver, yes, now + ttl_s * 1000)
            if yes:
                guard.state = "ready"
                self._note(guard, "held", approver, "approved")
            else:
                self._end(guard, Outcome("denied", error_class="approver"), approver, "approver")
            return True

    def cancel(self, tenant: str, idempotency_key: str, by: str | None) -> CallState | None:
        """See `People.cancel`."""
        with self._lock:
            guard = self._guards.get((tenant, idempotency_key))
            if guard is None:
                return None
            if guard.state in TERMINAL:
                return guard.state
            if guard.state in {"held", "ready"} and guard.begun == 0:
                guard.cancel_requested = True
                self._end(guard, Outcome("cancelled", error_class="cancelled"), by, "cancelled")
            elif not guard.cancel_requested:
                guard.cancel_requested = True
                self._write(guard, guard.state, by, "cancel_requested")
            return guard.state

    def resolve(
        self,
        tenant: str,
        idempotency_key: str,
        seen_fence: int,
        to: Resolved,
        by: str,
        body: bytes | None = None,
        reason: str | None = None,
    ) -> bool:
        """See `People.resolve`."""
        why = "resolved" if reason is None else f"resolved: {reason[:200]}"
        with self._lock:
            guard = self._guards.get((tenant, idempotency_key))
            if guard is None or guard.state != "in_doubt" or guard.fence != seen_fence:
                return False
            guard.fence = self._next_fence()
            if to == "ready":
                guard.state, guard.begun = "ready", 0
                self._note(guard, "in_doubt", by, why)
                return True
            digest = None if body is None else sha256(body)
            self._end(
                guard,
                Outcome(to, body=body, body_sha256=digest, error_class=f"resolved_by:{by}"),
                by,
                why,
            )
            return True

    def declare_timeline(self, *, lossless: bool, since_ms: int) -> bool:
        """See `People.declare_timeline`."""
        with self._lock:
            if self._timeline in self._epochs:
                return False
            self._epochs[self._timeline] = (since_ms, lossless)
            return True

    def prune(self, margin_s: float, limit: int = 1000) -> int:
        """See `People.prune`."""
        with self._lock:
            before = self._now_ms() - margin_s * 1000
            done = [k for k, g in self._guards.items() if g.finished_at_ms is not None]
            gone = [k for k in done if self._guards[k].claim.deadline_ms < before][:limit]
            for key in gone:
                emitted = self._guards.pop(key).claim.emitted_at_ms
                self.outbox.forget(*key)
                self._pruned_until_ms = max(self._pruned_until_ms, min(emitted, before))
            return len(gone)

    # --- reading

    def fetch_result(self, tenant: str, idempotency_key: str) -> StoredResult | None:
        """See `Ledger.fetch_result`."""
        with self._lock:
            guard = self._guards.get((tenant, idempotency_key))
            return None if guard is None else stored_of(guard)

    def show(self, tenant: str, idempotency_key: str) -> CallView | None:
        """See `Reading.show`."""
        with self._lock:
            guard = self._guards.get((tenant, idempotency_key))
            return None if guard is None else view_of(guard)

    def history(self, tenant: str, idempotency_key: str) -> list[Transition]:
        """See `Reading.history`."""
        with self._lock:
            guard = self._guards.get((tenant, idempotency_key))
            return [] if guard is None else list(guard.history)

    def list_calls(
        self,
        *,
        state: CallState | None = None,
        tenant: str | None = None,
        tool: str | None = None,
        older_s: float | None = None,
        newer_s: float | None = None,
        limit: int = 100,
    ) -> list[CallLine]:
        """See `Reading.list_calls`."""
        with self._lock:
            now_ms = self._now_ms()
            lines = sorted(map(line_of, self._guards.values()), key=lambda x: -x.created_at_ms)
        asked = Asked(state, tenant, tool, older_s, newer_s)
        return [line for line in lines if asked.matches(line, now_ms)][:limit]

    # --- inner parts

    def _next_fence(self) -> int:
        self._fences += 1
        return self._timeline << 40 | self._fences

    def _lossy_since(self, fence: int) -> bool:
        if self._timeline not in self._epochs:
            return True
        return any(t > fence >> 40 and not ok for t, (_, ok) in self._epochs.items())

    def _owned(self, owned: Owned) -> Guard | None:
        guard = self._guards.get((owned.tenant, owned.idempotency_key))
        return guard if guard is not None and guard.fence == owned.fence else None

    def _note_conflict(self, guard: Guard, claim: Claim) -> None:
        other = (claim.args_hash, claim.tool)
        guard.conflicts[other] = guard.conflicts.get(other, 0) + 1
        if guard.conflicts[other] == 1:
            self._write(guard, guard.state, claim.owner, "conflict")

    def _end(self, guard: Guard, outcome: Outcome, by: str | None, why: str | None) -> None:
        was = guard.state
        guard.state = outcome.state
        guard.finished_at_ms = self._now_ms()
        guard.outcome = outcome
        self._note(guard, was, by, why)

    def _expire(self, guard: Guard, by: str) -> None:
        was = guard.state
        guard.state = "expired"
        guard.finished_at_ms = self._now_ms()
        guard.outcome = Outcome("failed", error_class="deadline")
        self._note(guard, was, by, "deadline")

    def _note(
        self,
        guard: Guard,
        was: CallState | None,
        by: str | None,
        why: str | None,
        delay_s: float = 0.0,
    ) -> None:
        now = self._now_ms()
        guard.since_ms = now
        if guard.state not in OWNED:
            guard.active = None
        if guard.state in PARKED:
            guard.not_before_ms = now + delay_s * 1000
        self._write(guard, was, by, why)
        self.outbox.note(guard)
        self.usage.charge(guard)

    def _write(self, guard: Guard, was: CallState | None, by: str | None, why: str | None) -> None:
        at_ms = int(self._now_ms())
        guard.history.append(Transition(at_ms, was, guard.state, guard.fence, by, why))


class _MemoryEffect:
    def __init__(self, ledger: MemoryLedger, owned: Owned) -> None:
        self._ledger = ledger
        self._owned = owned

    @property
    def connection(self) -> object:
        return None

    def finish(self, outcome: Outcome) -> Answer:
        return self._ledger.finish(self._owned, outcome)

    def abandon(self) -> None:
        """There is nothing to undo."""
