"""Many questions at once: what a batch promises, and the plain way to answer one.

Rules:
    A batch means the same as its questions asked one by one; only the commits are fewer.
    A question whose values are refused is answered by its error, in its place. Its neighbours are not
    touched.
    No effect starts before the whole batch of its `begin_effect` has answered.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from processor.core.errors import Fenced, Misuse
from processor.ledger.port import Answer, Begin, Claim, FullLedger, Outcome, Owned, Verdict, refused

_Q = TypeVar("_Q")
_A = TypeVar("_A")


class Batches(Protocol):
    """The executor's three questions in batches. Answers stand in the order of the questions.

    Raises, from every method: `Transient` when nothing of the batch happened; `Indeterminate` when
        some of it may have been committed and asking again did not answer.
    """

    def claim_many(self, claims: Sequence[Claim]) -> list[Verdict | Misuse]:
        """Ask for ownership of many calls. One key twice in a batch: the second one is busy."""
        ...

    def begin_many(self, begins: Sequence[tuple[Owned, Begin]]) -> list[Answer | Misuse]:
        """Pass the point of no return for many calls, in one commit before all of their effects."""
        ...

    def finish_many(self, ends: Sequence[tuple[Owned, Outcome]]) -> list[Answer | Misuse]:
        """Settle many calls; a `transactional` one settles in the transaction of its effect."""
        ...


class BatchedLedger(FullLedger, Batches, Protocol):
    """All duties, and the executor's in batches as well."""


class _Single(Protocol):
    def claim(self, claim: Claim) -> Verdict: ...
    def begin_effect(self, owned: Owned, begin: Begin) -> Answer: ...
    def finish(self, owned: Owned, outcome: Outcome) -> Answer: ...


class OneByOne:
    """`Batches` by asking one question after the other, for ledgers without a cheaper way."""

    def claim_many(self: _Single, claims: Sequence[Claim]) -> list[Verdict | Misuse]:
        """See `Batches.claim_many`."""
        return [_answer_of(self.claim, claim) for claim in claims]

    def begin_many(self: _Single, begins: Sequence[tuple[Owned, Begin]]) -> list[Answer | Misuse]:
        """See `Batches.begin_many`."""
        return [_answer_of(lambda b: self.begin_effect(*b), begin) for begin in begins]

    def finish_many(self: _Single, ends: Sequence[tuple[Owned, Outcome]]) -> list[Answer | Misuse]:
        """See `Batches.finish_many`."""
        return [_answer_of(lambda e: _finish(self, *e), end) for end in ends]


def _finish(ledger: _Single, owned: Owned, outcome: Outcome) -> Answer:
    try:
        return ledger.finish(owned, outcome)
    except Fenced:
        return refused("fenced")


def _answer_of(ask: Callable[[_Q], _A], question: _Q) -> _A | Misuse:
    try:
        return ask(question)
    except Misuse as e:
        return e
