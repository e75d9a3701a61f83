"""What a ledger is: the questions an executor asks, and the answers it gets.

Rules:
    `claimed` and `executing` are two states: everything that may still say no is checked between
    them, in `begin_effect`, which is the point of no return.
    A fence names one ownership. Only the holder of the newest fence begins and settles.
    A call whose effect is unknown is never repeated by guesswork: it is `in_doubt`.
    Every answer says which key to use next.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, Protocol

from processor.core._record import field, record
from processor.core.canonical import sha256
from processor.core.errors import ProcessorError
from processor.core.identity import CallKey
from processor.core.outcomes import CallCompleted, EffectClass
from processor.core.results import Retry

CallState = Literal[
    "held",
    "ready",
    "claimed",
    "executing",
    "in_doubt",
    "succeeded",
    "failed",
    "denied",
    "cancelled",
    "expired",
]
TERMINAL: Final[frozenset[CallState]] = frozenset(
    {"succeeded", "failed", "denied", "cancelled", "expired"}
)
#: Classes whose effect can neither be undone nor be repeated without asking somebody.
UNSURE: Final[frozenset[EffectClass]] = frozenset({"at_most_once", "reconcilable"})

VerdictKind = Literal[
    "claimed", "replay", "busy", "conflict", "held", "in_doubt", "expired", "paused", "retry"
]
Settled = Literal["succeeded", "failed", "denied", "cancelled"]
Resolved = Literal["succeeded", "failed", "ready"]
Origin = Literal["reported", "estimated", "absent"]

#: A larger result is kept as its digest, or by reference.
RESULT_BYTES_MAX: Final = 65_536
#: Claims of one call that never led to a start, beyond its allowed starts, before it fails.
CLAIMS_SPARE: Final = 10

HASH_CANONICAL: Final = b"\x01"
HASH_RAW: Final = b"\x02"

_NEVER: Final = frozenset({"succeeded", "denied", "cancelled", "expired", "conflict"})


def next_key(word: str) -> Retry:
    """Which key a caller uses after this state or verdict.

    Reusing the key of a definite failure replays that failure for ever; changing the key while the
    outcome is unknown causes a second effect.
    """
    if word == "failed":
        return "new_key"
    return "never" if word in _NEVER else "same_key"


def arguments_hash(call: CallCompleted) -> bytes:
    """One byte of algorithm and a SHA-256: 0x01 over the canonical form, else 0x02 over the text."""
    if call.canonical_sha256 is not None:
        return HASH_CANONICAL + call.canonical_sha256
    return HASH_RAW + sha256(call.arguments)


@record
class Source:
    """Where the completed call can be read again."""

    topic: str
    partition: int
    offset: int


@record
class Claim:
    """The question for ownership of one call. Times are epoch milliseconds, from the record.

    `owner` is shown to people and must be unique to this one question (see `Ledger.claim`). Nothing
    starts at or after `deadline_ms`. `max_begun` bounds the starts of the effect.
    """

    key: CallKey
    tool: str
    effect_class: EffectClass
    args_hash: bytes
    owner: str
    lease_s: float
    emitted_at_ms: int
    deadline_ms: int
    max_begun: int = 1
    source: Source | None = None


@record
class Verdict:
    """The answer to a claim. `effect_class` is the one stored with the call: follow that one."""

    kind: VerdictKind
    retry: Retry
    effect_class: EffectClass
    fence: int | None = None
    state: CallState | None = None


@record
class Owned:
    """A call that was claimed: its identity in the ledger and the fence of this ownership."""

    tenant: str
    idempotency_key: str
    fence: int


@record
class Begin:
    """What is written at the point of no return. `redrive_s` is the downstream's memory of keys."""

    lease_s: float
    decision_id: str | None = None
    policy_rev: str | None = None
    need_approval: bool = False
    redrive_s: float | None = None


@record
class Usage:
    """One counter of one attempt. `quantity` None means that nobody reported it, not zero."""

    component: str
    unit: str
    origin: Origin
    quantity: str | None = None


@record
class Outcome:
    """How a call ended. `body` is at most 64 KiB; a larger one leaves only `body_sha256`."""

    state: Settled
    body: bytes | None = None
    body_ref: str | None = None
    body_sha256: bytes | None = None
    error_class: str | None = None
    usage: Sequence[Usage] = field(default_factory=tuple[Usage, ...])


@record
class Answer:
    """Yes or no, and why not. `already_begun` and `already` are a yes to a repeated question."""

    ok: bool
    why: str | None = None


def agreed(why: str | None = None) -> Answer:
    """A yes."""
    return Answer(ok=True, why=why)


def refused(why: str) -> Answer:
    """A no."""
    return Answer(ok=False, why=why)


@record
class StoredResult:
    """What the ledger knows of a call for the one who asked for it."""

    key: CallKey
    tool: str
    state: CallState
    fence: int
    retry: Retry
    body: bytes | None
    body_ref: str | None
    body_sha256: bytes | None
    error_class: str | None


@record
class Transition:
    """One line of a call's history; no content."""

    at_ms: int
    from_state: CallState | None
    to_state: CallState
    fence: int
    by: str | None
    why: str | None


@record
class CallView:
    """Everything about a call but its content, for people."""

    key: CallKey
    tool: str
    effect_class: EffectClass
    args_hash: bytes
    state: CallState
    fence: int
    claims: int
    begun: int
    max_begun: int
    emitted_at_ms: int
    deadline_ms: int
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    cancel_requested: bool
    decision_id: str | None
    policy_rev: str | None
    source: Source | None
    owner: str | None
    lease_until_ms: int | None
    error_class: str | None
    result_bytes: int | None
    conflicts: int
    retry: Retry


@record
class CallLine:
    """One call in a list."""

    tenant: str
    idempotency_key: str
    response_id: str
    tool: str
    state: CallState
    effect_class: EffectClass
    fence: int
    created_at_ms: int
    since_ms: int
    retry: Retry


class EffectUndone(ProcessorError):
    """The database refused a tool's own transaction; nothing of it remains. `sqlstate` says why."""

    code = "effect_undone"

    def __init__(self, sqlstate: str) -> None:
        super().__init__(f"the transaction of the tool was refused (SQLSTATE {sqlstate})")
        self.sqlstate = sqlstate


class EffectTransaction(Protocol):
    """A transaction of the ledger's database that a `transactional` tool writes its effect into."""

    @property
    def connection(self) -> object:
        """The driver's connection (psycopg's for Postgres); None where there is no database."""
        ...

    def finish(self, outcome: Outcome) -> Answer:
        """Settle inside of the transaction. Raises: `Fenced`, which must undo the effect."""
        ...

    def abandon(self) -> None:
        """Undo the effect now and close the connection, while the tool may still use it."""
        ...


class Ledger(Protocol):
    """Admits each effect at most once. Safe to use from several threads.

    Raises, from every method: `Transient` when nothing happened, `Indeterminate` when a change may
    have been committed and asking again did not answer, `Misuse` for a refused value.
    """

    def claim(self, claim: Claim) -> Verdict:
        """Ask for ownership. An uncertain commit is answered by asking for this very `owner`."""
        ...

    def begin_effect(self, owned: Owned, begin: Begin) -> Answer:
        """Pass the point of no return.

        Refusals: fenced, cancelled, state:X, deadline, lease_lost, begun_before, approval.
        """
        ...

    def finish(self, owned: Owned, outcome: Outcome) -> Answer:
        """Settle: result, usage, outbox row and state in one transaction. Repeating is harmless."""
        ...

    def effect_transaction(self, owned: Owned) -> AbstractContextManager[EffectTransaction]:
        """For the class `transactional`: effect and settlement commit together or not at all.

        Leaving by an exception, or without a successful `finish`, undoes the effect.

        Raises: `Fenced`, `Indeterminate` when the commit's answer was lost, and `EffectUndone` for
            every other refusal of the tool's own transaction.
        """
        ...

    def renew(self, owned: Owned, lease_s: float) -> bool:
        """Lengthen a live lease from now on; False when it is not ours or over."""
        ...

    def release(
        self, owned: Owned, *, not_sent: bool, why: str | None = None, delay_s: float = 0.0
    ) -> CallState | None:
        """Give a call back; the class decides where it goes. None when the fence is not ours."""
        ...

    def hold(self, owned: Owned, decision_id: str | None, policy_rev: str | None) -> bool:
        """Let a person decide. False when the call is not claimed under this fence."""
        ...

    def sweep(self, limit: int = 100) -> int:
        """Move calls whose lease or deadline is over; returns how many."""
        ...

    def redrive(self, topic: str, tools: Sequence[str], limit: int, hold_s: float) -> list[Source]:
        """Ready calls to read again from `topic`; a hint, handed out once per `hold_s`."""
        ...

    def fetch_result(self, tenant: str, idempotency_key: str) -> StoredResult | None:
        """The stored answer, or None for an unknown key."""
        ...


class People(Protocol):
    """What approvers, operators and applications may do. Each has a database role of its own."""

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
        """Approve or deny a held call by the hash of the arguments that were shown."""
        ...

    def cancel(self, tenant: str, idempotency_key: str, by: str | None) -> CallState | None:
        """Ask for an end. Terminal at once only when nothing began; None for an unknown key."""
        ...

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
        """Settle a call in doubt. `ready` says proven: nothing happened and the owner is gone.

        `reason` is a person's sentence for the history, at most 200 characters are kept.
        """
        ...

    def declare_timeline(self, *, lossless: bool, since_ms: int) -> bool:
        """After a promotion or a restore: are the old primary's last commits all here?"""
        ...

    def prune(self, margin_s: float, limit: int = 1000) -> int:
        """Delete one batch of terminal calls past deadline and margin; repeat until 0."""
        ...


class Reading(Protocol):
    """What people look at; no content in any answer."""

    def show(self, tenant: str, idempotency_key: str) -> CallView | None:
        """One call, or None."""
        ...

    def history(self, tenant: str, idempotency_key: str) -> list[Transition]:
        """The transitions of one call, oldest first."""
        ...

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
        """Calls, newest first; `older_s` and `newer_s` bound how long they are in their state."""
        ...


class FullLedger(Ledger, People, Reading, Protocol):
    """All duties at once, as an implementation offers them."""
