"""One call from delivery to settlement: check, claim, authorise, begin, run, finish.

Rules:
    Nothing of a call runs before `begin_effect` said yes, and nothing is retried by us afterwards.
    The arguments that were checked are the object that the tool gets; they are parsed once.
    What a tool's ending means is decided by what it raised and by the effect class in the ledger:
    returned = succeeded; `ToolFailed` = failed; `NotSent` = given back; anything else = unknown.
    What is given back waits longer with every try.
    The class of the first claim stays; a call that was released before its response ended runs only
    under a class for which that is harmless.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar

from processor.core._record import record
from processor.core.errors import Fenced, Indeterminate, ProcessorError, Transient
from processor.core.gate import EARLY_CLASSES
from processor.core.outcomes import CallCompleted, EffectClass
from processor.core.strict_json import Fault
from processor.executor.backoff import Backoff
from processor.executor.context import ToolContext
from processor.executor.crash_points import CrashPoint, never_crash
from processor.executor.endings import GivenBack, late_meaning, meaning
from processor.executor.invoke import (
    Ending,
    EventLoop,
    Late,
    Raised,
    Returned,
    TimedOut,
    call_in_thread,
)
from processor.executor.ports import (
    Authoriser,
    AuthoriseRequest,
    Clock,
    Decision,
    Disposition,
    Observer,
)
from processor.executor.results import UNREADABLE, outcome_of
from processor.executor.served import ServedTool, keywords_of, prepare
from processor.ledger.port import (
    UNSURE,
    Answer,
    Begin,
    Claim,
    EffectUndone,
    Ledger,
    Outcome,
    Owned,
    Source,
    VerdictKind,
    arguments_hash,
)

T = TypeVar("T")

#: Of the lease, the part that may have passed when the effect starts.
_LEASE_USED_MAX: Final = 0.8
_RETRY_WAIT_S_MAX: Final = 5.0
#: What a remote tool gets beyond its limit, to end by itself.
_REMOTE_GRACE_S: Final = 0.5

_DISPOSITION_OF: Final[dict[VerdictKind, Disposition]] = {
    "replay": "settled",
    "conflict": "settled",
    "expired": "settled",
    "busy": "parked",
    "held": "parked",
    "in_doubt": "parked",
    "paused": "again",
    "retry": "again",
}


@record
class RunnerSettings:
    """Bounds of one call. Seconds.

    A call starts only until `call_deadline_s` after its response or call ended, by the record.
    `lease_margin_s` is added to a tool's time limit for the lease; `settle_patience_s` is how long a
    ledger that does not answer is asked again to take a result. A call that was given back waits about
    `retry_delay_s`, then twice that, up to `retry_delay_s_max`, unless its tool says for how long.
    """

    claim_lease_s: float = 30.0
    lease_margin_s: float = 10.0
    call_deadline_s: float = 86_400.0
    settle_patience_s: float = 30.0
    retry_delay_s: float = 1.0
    retry_delay_s_max: float = 300.0
    unknown_tools: Literal["skip", "fail"] = "skip"


@record
class Ran:
    """What became of a delivery, and the word of the ledger for it."""

    disposition: Disposition
    word: str


@record
class _Attempt:
    call: CallCompleted
    served: ServedTool
    prepared: object
    headers: dict[str, str]
    delivered_at_s: float
    owned: Owned
    effect_class: EffectClass


class CallRunner:
    """Runs calls; safe to use from several threads. `owner` names this process and this start of it.

    `starts_of` says how often the effect of (tenant, key) was begun; without it every start of a remote
    tool is taken for the first.

    Raises, from `run`: `Misuse` and `InvariantViolated` of the ledger, which end the process.
    """

    def __init__(
        self,
        ledger: Ledger,
        tools: Mapping[str, ServedTool],
        *,
        owner: str,
        settings: RunnerSettings,
        clock: Clock,
        authoriser: Authoriser,
        observer: Observer,
        crash_point: CrashPoint = never_crash,
        starts_of: Callable[[str, str], int] | None = None,
    ) -> None:
        self._ledger = ledger
        self._starts_of = starts_of
        self._tools = tools
        self._owner = owner
        self._settings = settings
        self._clock = clock
        self._authoriser = authoriser
        self._observer = observer
        self._crash_point = crash_point
        self._questions = 0
        self._questions_lock = threading.Lock()
        self._backoff = Backoff(first_s=settings.retry_delay_s, most_s=settings.retry_delay_s_max)
        self._loop = EventLoop() if any(_needs_loop(t) for t in tools.values()) else None

    def close(self) -> None:
        """Stop the loop of async tools."""
        if self._loop is not None:
            self._loop.close()

    def run(self, call: CallCompleted, source: Source | None, headers: dict[str, str]) -> Ran:
        """Bring one delivered call as far as it goes now.

        Returns: `settled` when the ledger has a terminal answer, `parked` when the ledger knows that
        the call waits, `again` when the ledger could not be asked, `skipped` when another executor
        serves the tool.
        """
        started_s = self._clock.monotonic_s()
        served = self._tools.get(call.tool)
        if served is None:
            if self._settings.unknown_tools == "skip":
                return Ran("skipped", "unknown_tool")
            return self._refuse_unknown(call, source)
        # Judged before the claim, told after it: a repetition gets the stored answer.
        prepared = prepare(served, call)
        claim = self._claim_for(call, source, served)
        try:
            verdict = self._ledger.claim(claim)
        except (Transient, Indeterminate) as e:
            self._observer.delayed(call.key, call.tool, e.code)
            return Ran("again", e.code)
        self._observer.verdict(call.key, call.tool, verdict.kind)
        if verdict.kind != "claimed" or verdict.fence is None:
            return Ran(_DISPOSITION_OF[verdict.kind], verdict.kind)
        self._crash_point("after_claim")
        owned = Owned(call.key.tenant, call.key.idempotency_key, verdict.fence)
        return self._guarded(
            _Attempt(call, served, prepared, headers, started_s, owned, verdict.effect_class)
        )

    def _refuse_unknown(self, call: CallCompleted, source: Source | None) -> Ran:
        try:
            verdict = self._ledger.claim(self._claim_for(call, source, None))
            self._observer.verdict(call.key, call.tool, verdict.kind)
            if verdict.kind != "claimed" or verdict.fence is None:
                return Ran(_DISPOSITION_OF.get(verdict.kind, "parked"), verdict.kind)
            owned = Owned(call.key.tenant, call.key.idempotency_key, verdict.fence)
            self._ledger.finish(owned, Outcome("failed", error_class="unknown_tool"))
        except (Transient, Indeterminate) as e:
            self._observer.delayed(call.key, call.tool, e.code)
            return Ran("again", e.code)
        self._observer.ended(call.key, call.tool, "failed", "unknown_tool", 0.0)
        return Ran("settled", "failed")

    def _claim_for(
        self, call: CallCompleted, source: Source | None, served: ServedTool | None
    ) -> Claim:
        with self._questions_lock:
            self._questions += 1
            question = self._questions
        effect_class = (served.effect_class if served else None) or call.effect_class
        life_s = self._settings.call_deadline_s
        if served is not None and effect_class == "idempotent":
            # Nothing may start after the system behind the tool has forgotten the key.
            life_s = min(life_s, served.redrive_window_s)
        once = served is None or effect_class in UNSURE
        return Claim(
            key=call.key,
            tool=call.tool,
            effect_class=effect_class,
            args_hash=arguments_hash(call),
            owner=f"{self._owner}/{question}",
            lease_s=self._settings.claim_lease_s,
            emitted_at_ms=call.evidence.ended_at_ms,
            deadline_ms=call.evidence.ended_at_ms + int(life_s * 1000),
            max_begun=1 if once or served is None else served.max_attempts,
            source=source,
        )

    def _guarded(self, attempt: _Attempt) -> Ran:
        """From here on the call is ours; a ledger that falls silent leaves it to its lease."""
        try:
            return self._decide(attempt)
        except (Transient, Indeterminate) as e:
            self._observer.delayed(attempt.call.key, attempt.call.tool, e.code)
            return Ran("again", e.code)

    def _decide(self, attempt: _Attempt) -> Ran:
        call = attempt.call
        if isinstance(attempt.prepared, Fault):
            fault = attempt.prepared
            return self._settle(attempt, Outcome("failed", error_class=fault.reason))
        if call.release == "call_end" and attempt.effect_class not in EARLY_CLASSES:
            return self._settle(attempt, Outcome("failed", error_class="released_too_early"))
        request = AuthoriseRequest(
            call.key,
            call.tool,
            attempt.effect_class,
            attempt.prepared,
            attempt.headers,
        )
        try:
            decision = self._authoriser.decide(request)
        except Exception as e:  # noqa: BLE001 - an authoriser that fails must not let a call run
            return self._give_back(attempt, f"authoriser:{type(e).__name__}", None)
        if decision.effect == "deny":
            return self._settle(attempt, Outcome("denied", error_class="not_authorized"))
        return self._begin(attempt, decision)

    def _begin(self, attempt: _Attempt, decision: Decision) -> Ran:
        served = attempt.served
        lease_s = served.timeout_s + self._settings.lease_margin_s
        begin = Begin(
            lease_s=lease_s,
            decision_id=decision.decision_id,
            policy_rev=decision.policy_rev,
            need_approval=decision.effect == "hold",
            redrive_s=served.redrive_window_s if attempt.effect_class == "idempotent" else None,
        )
        asked_s = self._clock.monotonic_s()
        try:
            answer = self._ledger.begin_effect(attempt.owned, begin)
        except Indeterminate:
            # Whether or not the start is recorded: nothing was sent, and that may be said.
            return self._give_back(attempt, "begin_unknown", None)
        if not answer.ok:
            return self._refused(attempt, decision, answer.why or "refused")
        self._crash_point("after_begin")
        if self._clock.monotonic_s() - asked_s > lease_s * _LEASE_USED_MAX:
            return self._give_back(attempt, "lease_used_up", None)
        return self._effect(attempt)

    def _refused(self, attempt: _Attempt, decision: Decision, why: str) -> Ran:
        if why == "approval":
            held = self._ledger.hold(attempt.owned, decision.decision_id, decision.policy_rev)
            return self._ended(
                attempt, "parked", "held" if held else "fenced", decision.decision_id
            )
        if why == "cancelled":
            return self._settle(attempt, Outcome("cancelled", error_class="cancelled"))
        if why == "deadline":
            # The next claim, or the sweep, writes the end of it.
            return self._give_back(attempt, why, None)
        return self._ended(attempt, "parked", why, None)

    def _effect(self, attempt: _Attempt) -> Ran:
        if attempt.effect_class == "transactional":
            return self._transactional(attempt)
        ending = self._call(
            attempt,
            self._context(attempt, None),
            late=lambda ending: self._settle_late(attempt, ending),
        )
        self._crash_point("after_effect")
        return self._conclude(attempt, ending)

    def _call(self, attempt: _Attempt, context: ToolContext, late: Late) -> Ending:
        served = attempt.served
        function = served.declaration.function
        keywords = keywords_of(served, attempt.prepared, attempt.call.arguments, context)
        if served.declaration.loop is not None:
            # Its own limit ends first, and says whether anything was sent.
            limit_s = served.timeout_s + min(_REMOTE_GRACE_S, self._settings.lease_margin_s / 2)
            return served.declaration.loop.call(function, keywords, timeout_s=limit_s)
        if served.is_async and self._loop is not None:
            return self._loop.call(function, keywords, timeout_s=served.timeout_s)
        return call_in_thread(
            function,
            keywords,
            timeout_s=served.timeout_s,
            late=late,
        )

    def _transactional(self, attempt: _Attempt) -> Ran:
        """Effect and settlement in one transaction; a lost owner's effect is rolled back."""
        try:
            ending, answer = self._in_transaction(attempt)
        except Fenced:
            return self._ended(attempt, "parked", "fenced", None)
        except Indeterminate:
            # The commit's answer was lost: the ledger knows whether it happened.
            return self._reread(attempt)
        except (EffectUndone, Transient) as e:
            # Transient: there was no connection for the transaction, so the tool did not run.
            why, ran = (
                (f"undone:{e.sqlstate}", True) if isinstance(e, EffectUndone) else (e.code, False)
            )
            return self._give_back(attempt, why, None, not_sent=not ran)
        if not isinstance(ending, Returned):
            return self._conclude(attempt, ending)
        if answer is None:
            # Undone with its transaction: it must not be settled by reading the value once more.
            return self._give_back(attempt, UNREADABLE, None, not_sent=False)
        return self._answered(attempt, answer, "succeeded", None)

    def _in_transaction(self, attempt: _Attempt) -> tuple[Ending, Answer | None]:
        with self._ledger.effect_transaction(attempt.owned) as effect:
            # Its connection is closed at the limit, so there is nothing that could be settled late.
            ending = self._call(
                attempt, self._context(attempt, effect.connection), late=lambda ending: None
            )
            self._crash_point("after_effect")
            if isinstance(ending, TimedOut):
                effect.abandon()
            if not isinstance(ending, Returned):
                return ending, None
            outcome = outcome_of("succeeded", ending.value)
            return ending, None if outcome is None else effect.finish(outcome)

    def _reread(self, attempt: _Attempt) -> Ran:
        owned = attempt.owned
        stored = self._patiently(
            lambda: self._ledger.fetch_result(owned.tenant, owned.idempotency_key)
        )
        if stored is not None and stored.state == "succeeded" and stored.fence == owned.fence:
            return self._ended(attempt, "settled", "succeeded", None)
        return self._give_back(attempt, "commit_unknown", None, not_sent=False)

    def _conclude(self, attempt: _Attempt, ending: Ending) -> Ran:
        found = meaning(ending, attempt.served.declaration.function)
        if isinstance(found, Outcome):
            if found.state != "failed" or not self._proves_nothing(attempt):
                return self._settle(attempt, found)
            found = GivenBack(found.error_class or "refused", None, not_sent=False)
        return self._give_back(attempt, found.why, found.delay_s, not_sent=found.not_sent)

    def _proves_nothing(self, attempt: _Attempt) -> bool:
        """A remote refusal speaks of its own request: an earlier start may have taken effect before."""
        remote = attempt.served.declaration.loop is not None
        if not remote or attempt.effect_class != "idempotent" or self._starts_of is None:
            return False
        try:
            return self._starts_of(attempt.owned.tenant, attempt.owned.idempotency_key) > 1
        except (Transient, Indeterminate):
            return True

    def _settle(self, attempt: _Attempt, outcome: Outcome) -> Ran:
        answer = self._patiently(lambda: self._ledger.finish(attempt.owned, outcome))
        return self._answered(attempt, answer, outcome.state, outcome.error_class)

    def _answered(self, attempt: _Attempt, answer: Answer, state: str, why: str | None) -> Ran:
        self._crash_point("after_finish")
        if answer.ok:
            return self._ended(attempt, "settled", state, why)
        return self._ended(attempt, "parked", answer.why or "refused", why)

    def _give_back(
        self, attempt: _Attempt, why: str, delay_s: float | None, *, not_sent: bool = True
    ) -> Ran:
        """Return the call; its class decides what it becomes when something may have been sent."""
        owned = attempt.owned
        name = f"{owned.tenant}/{owned.idempotency_key}"
        delay = self._backoff.next_s(name) if delay_s is None else delay_s
        state = self._patiently(
            lambda: self._ledger.release(owned, not_sent=not_sent, why=why, delay_s=delay)
        )
        if state != "ready":
            self._backoff.forget(name)
        disposition: Disposition = "settled" if state == "failed" else "parked"
        return self._ended(attempt, disposition, state or "fenced", why)

    def _settle_late(self, attempt: _Attempt, ending: Returned | Raised) -> None:
        """A tool that outlived its limit has ended: what it says may still settle the doubt."""
        outcome = late_meaning(ending)
        if outcome is None:
            return
        call = attempt.call
        try:
            answer = self._ledger.finish(attempt.owned, outcome)
        except ProcessorError as e:
            self._observer.delayed(call.key, call.tool, e.code)
            return
        if answer.ok:
            self._ended(attempt, "settled", outcome.state, "late")

    def _patiently(self, ask: Callable[[], T]) -> T:
        """Ask a question that cannot act twice until the ledger answers or patience ends."""
        until_s = self._clock.monotonic_s() + self._settings.settle_patience_s
        wait_s = 0.1
        while True:
            try:
                return ask()
            except (Transient, Indeterminate):
                if self._clock.monotonic_s() + wait_s >= until_s:
                    raise
            self._clock.wait(wait_s)
            wait_s = min(wait_s * 2, _RETRY_WAIT_S_MAX)

    def _context(self, attempt: _Attempt, connection: object) -> ToolContext:
        key = attempt.call.key
        return ToolContext(
            tenant=key.tenant,
            request_id=key.request_id,
            response_id=key.response_id,
            call_id=key.call_id,
            tool=attempt.call.tool,
            idempotency_key=key.idempotency_key,
            fence=attempt.owned.fence,
            attempt_deadline_s=attempt.served.timeout_s,
            headers=attempt.headers,
            connection=connection,
        )

    def _ended(
        self, attempt: _Attempt, disposition: Disposition, word: str, why: str | None
    ) -> Ran:
        seconds = self._clock.monotonic_s() - attempt.delivered_at_s
        self._observer.ended(attempt.call.key, attempt.call.tool, word, why, seconds)
        return Ran(disposition, word)


def _needs_loop(served: ServedTool) -> bool:
    return served.is_async and served.declaration.loop is None
