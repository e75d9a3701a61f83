"""The row of one call in the memory ledger, and the questions that need nothing but the row."""

from dataclasses import dataclass, field
from typing import Final

from processor.core._record import record
from processor.core.errors import Fenced, Misuse
from processor.ledger.port import (
    UNSURE,
    CallLine,
    CallState,
    CallView,
    Claim,
    Outcome,
    StoredResult,
    Transition,
    Usage,
    Verdict,
    VerdictKind,
    next_key,
)

_KEY_BYTES_MAX: Final = 512
_HASH_BYTES: Final = 33
PARKED: Final[frozenset[CallState]] = frozenset({"held", "ready", "in_doubt"})
OWNED: Final[frozenset[CallState]] = frozenset({"claimed", "executing"})


@dataclass(slots=True)
class Active:
    """The live ownership of a call."""

    fence: int
    owner: str
    lease_until_ms: float


@dataclass(slots=True)
class Approval:
    """What an approver said of one arguments hash."""

    approver: str
    yes: bool
    expires_at_ms: float
    used_fence: int | None = None


@dataclass(slots=True)
class Guard:
    """Everything the ledger holds of one call."""

    claim: Claim
    state: CallState
    fence: int
    created_at_ms: float
    since_ms: float
    claims: int = 1
    begun: int = 0
    redrive_until_ms: float | None = None
    cancel_requested: bool = False
    decision_id: str | None = None
    policy_rev: str | None = None
    started_at_ms: float | None = None
    finished_at_ms: float | None = None
    not_before_ms: float = 0.0
    active: Active | None = None
    outcome: Outcome | None = None
    usage: list[Usage] = field(default_factory=list[Usage])
    approvals: dict[bytes, Approval] = field(default_factory=dict[bytes, Approval])
    conflicts: dict[tuple[bytes, str], int] = field(default_factory=dict[tuple[bytes, str], int])
    history: list[Transition] = field(default_factory=list[Transition])

    @property
    def unsure(self) -> bool:
        """True when the effect can neither be undone nor be blindly repeated."""
        return self.claim.effect_class in UNSURE


def check_claim(claim: Claim) -> None:
    """Refuse what the table's constraints refuse. Raises: `Misuse`."""
    if len(claim.args_hash) != _HASH_BYTES:
        raise Misuse(f"args_hash has {len(claim.args_hash)} bytes instead of {_HASH_BYTES}")
    if ":" in claim.key.request_id:
        raise Misuse("request_id contains a colon")
    if len(claim.key.idempotency_key.encode()) > _KEY_BYTES_MAX:
        raise Misuse(f"the idempotency key has more than {_KEY_BYTES_MAX} bytes")


def verdict(
    kind: VerdictKind, claim: Claim, fence: int | None = None, state: CallState | None = None
) -> Verdict:
    """The verdict with the key to use next."""
    retry = next_key(state if kind == "replay" and state else kind)
    return Verdict(kind, retry, claim.effect_class, fence, state)


def begin_refusal(guard: Guard | None, now: float) -> str | None:
    """Why `begin_effect` says no before it looks at approvals; None when it may go on."""
    if guard is None:
        return "fenced"
    if guard.state not in OWNED:
        return f"state:{guard.state}"
    if guard.state == "claimed" and guard.cancel_requested:
        return "cancelled"
    if guard.state == "claimed" and guard.claim.deadline_ms <= now:
        return "deadline"
    if guard.active is None or guard.active.lease_until_ms <= now:
        return "lease_lost"
    return None


def use_approval(guard: Guard, now: float) -> bool:
    """Spend the approval of these very arguments; False when there is none that counts."""
    approval = guard.approvals.get(guard.claim.args_hash)
    if approval is None or not approval.yes or approval.used_fence is not None:
        return False
    if approval.expires_at_ms <= now:
        return False
    approval.used_fence = guard.fence
    return True


def finish_refusal(guard: Guard, outcome: Outcome) -> str | None:
    """Why this state cannot end in that outcome; None when it can."""
    begun = guard.state in {"executing", "in_doubt"} and outcome.state in {"succeeded", "failed"}
    unbegun = guard.state == "claimed" and outcome.state in {"denied", "cancelled", "failed"}
    return None if begun or unbegun else f"state:{guard.state}"


def may_have_worked(guard: Guard) -> bool:
    """True when an earlier start of this class may have left an effect."""
    return guard.claim.effect_class not in {"read_only", "transactional"}


def refuse_effect(outcome: Outcome) -> None:
    """Undo the effect of a `transactional` call. Raises: `Fenced`."""
    if outcome.state == "succeeded":
        raise Fenced("another owner has taken the call over: the effect is rolled back")


def _whole(ms: float | None) -> int | None:
    return None if ms is None else int(ms)


def stored_of(guard: Guard) -> StoredResult:
    """The row for the one who asked for the call."""
    outcome = guard.outcome
    return StoredResult(
        key=guard.claim.key,
        tool=guard.claim.tool,
        state=guard.state,
        fence=guard.fence,
        retry=next_key(guard.state),
        body=outcome.body if outcome else None,
        body_ref=outcome.body_ref if outcome else None,
        body_sha256=outcome.body_sha256 if outcome else None,
        error_class=outcome.error_class if outcome else None,
    )


def view_of(guard: Guard) -> CallView:
    """The row as people see it."""
    claim, outcome, active = guard.claim, guard.outcome, guard.active
    return CallView(
        key=claim.key,
        tool=claim.tool,
        effect_class=claim.effect_class,
        args_hash=claim.args_hash,
        state=guard.state,
        fence=guard.fence,
        claims=guard.claims,
        begun=guard.begun,
        max_begun=claim.max_begun,
        emitted_at_ms=claim.emitted_at_ms,
        deadline_ms=claim.deadline_ms,
        created_at_ms=int(guard.created_at_ms),
        started_at_ms=_whole(guard.started_at_ms),
        finished_at_ms=_whole(guard.finished_at_ms),
        cancel_requested=guard.cancel_requested,
        decision_id=guard.decision_id,
        policy_rev=guard.policy_rev,
        source=claim.source,
        owner=active.owner if active else None,
        lease_until_ms=int(active.lease_until_ms) if active else None,
        error_class=outcome.error_class if outcome else None,
        result_bytes=len(outcome.body) if outcome and outcome.body is not None else None,
        conflicts=sum(guard.conflicts.values()),
        retry=next_key(guard.state),
    )


def line_of(guard: Guard) -> CallLine:
    """The row as one line of a list."""
    key = guard.claim.key
    return CallLine(
        tenant=key.tenant,
        idempotency_key=key.idempotency_key,
        response_id=key.response_id,
        tool=guard.claim.tool,
        state=guard.state,
        effect_class=guard.claim.effect_class,
        fence=guard.fence,
        created_at_ms=int(guard.created_at_ms),
        since_ms=int(guard.since_ms),
        retry=next_key(guard.state),
    )


@record
class Asked:
    """Which lines a list has; None asks for nothing. Ages are seconds in the state."""

    state: CallState | None
    tenant: str | None
    tool: str | None
    older_s: float | None
    newer_s: float | None

    def matches(self, line: CallLine, now_ms: float) -> bool:
        """True when the line has all that was asked for."""
        age_s = (now_ms - line.since_ms) / 1000
        return (
            self.state in {None, line.state}
            and self.tenant in {None, line.tenant}
            and self.tool in {None, line.tool}
            and (self.older_s is None or age_s >= self.older_s)
            and (self.newer_s is None or age_s <= self.newer_s)
        )
