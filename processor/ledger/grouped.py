"""One commit for many threads: questions that come while a batch is under way form the next batch.

Rules:
    Nobody waits for company: a question that finds nothing under way is asked at once, alone.
    An answer reaches its thread only after the commit of its batch, so `begin_effect` is as durable
    before the effect as it is alone.
    When a whole batch could not be asked, each of its threads asks its own question alone: one row
    that somebody else has locked must not hold up its neighbours.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final, Generic, Protocol, TypeVar

from processor.core.errors import InvariantViolated, Misuse, Transient
from processor.ledger.batches import Batches
from processor.ledger.port import (
    Answer,
    Begin,
    CallState,
    Claim,
    EffectTransaction,
    Ledger,
    Outcome,
    Owned,
    Source,
    StoredResult,
    Verdict,
)

#: Batches of one kind under way at once: one at the server, one on its way.
_LEADERS: Final = 2
_BATCH_MAX: Final = 256

_Q = TypeVar("_Q")
_A = TypeVar("_A")


class _Both(Ledger, Batches, Protocol):
    """What can be asked alone and in batches."""


class GroupedLedger:
    """`Ledger` over another one. Safe to use from several threads; holds no thread of its own."""

    def __init__(self, ledger: _Both) -> None:
        self._ledger = ledger
        self._claims = _Front(ledger.claim_many, ledger.claim)
        self._begins = _Front(ledger.begin_many, lambda b: ledger.begin_effect(*b))
        self._ends = _Front(ledger.finish_many, lambda e: ledger.finish(*e))

    def claim(self, claim: Claim) -> Verdict:
        """See `Ledger.claim`."""
        return self._claims.ask(claim)

    def begin_effect(self, owned: Owned, begin: Begin) -> Answer:
        """See `Ledger.begin_effect`."""
        return self._begins.ask((owned, begin))

    def finish(self, owned: Owned, outcome: Outcome) -> Answer:
        """See `Ledger.finish`."""
        return self._ends.ask((owned, outcome))

    def effect_transaction(self, owned: Owned) -> AbstractContextManager[EffectTransaction]:
        """See `Ledger.effect_transaction`; always a transaction of its own."""
        return self._ledger.effect_transaction(owned)

    def renew(self, owned: Owned, lease_s: float) -> bool:
        """See `Ledger.renew`."""
        return self._ledger.renew(owned, lease_s)

    def release(
        self, owned: Owned, *, not_sent: bool, why: str | None = None, delay_s: float = 0.0
    ) -> CallState | None:
        """See `Ledger.release`."""
        return self._ledger.release(owned, not_sent=not_sent, why=why, delay_s=delay_s)

    def hold(self, owned: Owned, decision_id: str | None, policy_rev: str | None) -> bool:
        """See `Ledger.hold`."""
        return self._ledger.hold(owned, decision_id, policy_rev)

    def sweep(self, limit: int = 100) -> int:
        """See `Ledger.sweep`."""
        return self._ledger.sweep(limit)

    def redrive(self, topic: str, tools: Sequence[str], limit: int, hold_s: float) -> list[Source]:
        """See `Ledger.redrive`."""
        return self._ledger.redrive(topic, tools, limit, hold_s)

    def fetch_result(self, tenant: str, idempotency_key: str) -> StoredResult | None:
        """See `Ledger.fetch_result`."""
        return self._ledger.fetch_result(tenant, idempotency_key)


class _Waiting(Generic[_Q, _A]):
    """One thread's question, and what wakes it: an answer, or the turn to ask for all."""

    __slots__ = ("alone", "answer", "answered", "error", "leads", "question", "woken")

    def __init__(self, question: _Q) -> None:
        self.question = question
        self.answer: _A | None = None
        self.error: BaseException | None = None
        self.alone = False
        self.leads = False
        #: Set for a turn to lead as well as for an answer.
        self.woken = threading.Event()
        self.answered = threading.Event()


class _Front(Generic[_Q, _A]):
    """Collects the questions of one kind."""

    def __init__(
        self,
        ask_many: Callable[[Sequence[_Q]], Sequence[_A | Misuse]],
        ask_one: Callable[[_Q], _A],
    ) -> None:
        self._ask_many = ask_many
        self._ask_one = ask_one
        self._lock = threading.Lock()
        self._queue: deque[_Waiting[_Q, _A]] = deque()
        self._leading = 0

    def ask(self, question: _Q) -> _A:
        mine = _Waiting[_Q, _A](question)
        with self._lock:
            self._queue.append(mine)
            mine.leads = self._leading < _LEADERS
            self._leading += mine.leads
        if not mine.leads:
            mine.woken.wait()
        # The lead is given only to what still waits in the queue, so it cannot come after the answer.
        if mine.leads:
            self._lead()
        mine.answered.wait()
        if mine.alone:
            return self._ask_one(question)
        if mine.error is not None:
            raise mine.error
        if mine.answer is None:
            raise InvariantViolated("a batch left a question without an answer")
        return mine.answer

    def _lead(self) -> None:
        """Ask for everybody who waits, then hand the lead on."""
        with self._lock:
            count = min(len(self._queue), _BATCH_MAX)
            batch = [self._queue.popleft() for _ in range(count)]
        try:
            if batch:
                self._ask(batch)
        finally:
            with self._lock:
                self._leading -= 1
                heir = next((w for w in self._queue if not w.leads), None)
                if heir is not None:
                    heir.leads = True
                    self._leading += 1
            if heir is not None:
                heir.woken.set()

    def _ask(self, batch: list[_Waiting[_Q, _A]]) -> None:
        try:
            if len(batch) == 1:
                batch[0].answer = self._ask_one(batch[0].question)
                return
            answers = self._ask_many([w.question for w in batch])
            for waiting, answer in zip(batch, answers, strict=True):
                if isinstance(answer, Misuse):
                    waiting.error = answer
                else:
                    waiting.answer = answer
        except BaseException as e:  # noqa: BLE001 - raised in the thread of each question
            for waiting in batch:
                waiting.error = e
                waiting.alone = len(batch) > 1 and isinstance(e, Transient)
        finally:
            for waiting in batch:
                waiting.answered.set()
                waiting.woken.set()
