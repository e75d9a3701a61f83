"""Batches on Postgres: arrays go to `tcl.claim_many`, `tcl.begin_many` and `tcl.finish_many`.

Rules:
    One batch is one transaction. A refused item leaves no trace and has its SQLSTATE as the answer.
    A batch whose answer was lost is asked again in a form that cannot act twice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final, LiteralString, TypeVar

from processor.core.errors import Fenced, Indeterminate, InvariantViolated, Misuse, ProcessorError
from processor.ledger.port import Answer, Begin, Claim, Outcome, Owned, Verdict
from processor.ledger.postgres_rows import Row, claim_values, finish_values, owned_values
from processor.ledger.sqlstates import advice_for, family_of

T = TypeVar("T")

_CLAIM: Final = (
    "SELECT * FROM tcl.claim_many(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::text[], %s::bytea[], %s::text[], %s::interval[], %s::timestamptz[], %s::timestamptz[],"
    " %s::int[], %s::text[], %s::int[], %s::bigint[])"
)
_BEGIN: Final = (
    "SELECT * FROM tcl.begin_many(%s::text[], %s::text[], %s::bigint[], %s::interval[],"
    " %s::text[], %s::text[], %s::bool[], %s::interval[])"
)
_FINISH: Final = (
    "SELECT * FROM tcl.finish_many(%s::text[], %s::text[], %s::bigint[], %s::text[], %s::bytea[],"
    " %s::text[], %s::bytea[], %s::text[], %s::text[])"
)


class PostgresBatches(ABC):
    """`Batches` for a ledger that can ask for rows."""

    @abstractmethod
    def claim(self, claim: Claim) -> Verdict:
        """See `Ledger.claim`."""

    @abstractmethod
    def _rows(self, sql: LiteralString, values: Sequence[object]) -> list[Row]: ...

    @abstractmethod
    def _until_answered(self, ask: Callable[[], T]) -> T: ...

    @abstractmethod
    def _claim_of(self, claim: Claim) -> Verdict | None: ...

    def claim_many(self, claims: Sequence[Claim]) -> list[Verdict | Misuse]:
        """See `Batches.claim_many`."""
        if not claims:
            return []
        try:
            rows = self._rows(_CLAIM, _columns([claim_values(c) for c in claims]))
        except Indeterminate:
            # Those that were committed are found again by their owner; the others are asked anew.
            return [self._claim_again(claim) for claim in claims]
        return [
            self._claim_again(claim) if row["verdict"] == "retry" else _verdict_of(row)
            for claim, row in zip(claims, _checked(rows, len(claims)), strict=True)
        ]

    def _claim_again(self, claim: Claim) -> Verdict | Misuse:
        try:
            return self._claim_of(claim) or self.claim(claim)
        except Misuse as e:
            return e

    def begin_many(self, begins: Sequence[tuple[Owned, Begin]]) -> list[Answer | Misuse]:
        """See `Batches.begin_many`."""
        return self._answers(_BEGIN, [begin_values(*begin) for begin in begins])

    def finish_many(self, ends: Sequence[tuple[Owned, Outcome]]) -> list[Answer | Misuse]:
        """See `Batches.finish_many`."""
        return self._answers(_FINISH, [finish_values(*end) for end in ends])

    def _answers(
        self, sql: LiteralString, items: Sequence[tuple[object, ...]]
    ) -> list[Answer | Misuse]:
        if not items:
            return []
        columns = _columns(items)
        rows = self._until_answered(lambda: self._rows(sql, columns))
        return [_answer_of(row) for row in _checked(rows, len(items))]


def begin_values(owned: Owned, begin: Begin) -> tuple[object, ...]:
    """Parameters of `tcl.begin_effect`, in order."""
    return (
        *owned_values(owned),
        timedelta(seconds=begin.lease_s),
        begin.decision_id,
        begin.policy_rev,
        begin.need_approval,
        None if begin.redrive_s is None else timedelta(seconds=begin.redrive_s),
    )


def _columns(items: Sequence[tuple[object, ...]]) -> list[list[object]]:
    return [list(column) for column in zip(*items, strict=True)]


def _checked(rows: list[Row], count: int) -> list[Row]:
    if [row["item"] for row in rows] != list(range(1, count + 1)):
        raise InvariantViolated("a batch function did not answer every item once")
    return rows


def _verdict_of(row: Row) -> Verdict | Misuse:
    if row["refusal"] is not None:
        return _misuse_of(row["refusal"])
    return Verdict(row["verdict"], row["retry"], row["effect"], row["fence"], row["state"])


def _answer_of(row: Row) -> Answer | Misuse:
    if row["refusal"] is not None:
        if family_of(row["refusal"]) is Fenced:
            return Answer(ok=False, why="fenced")
        return _misuse_of(row["refusal"])
    return Answer(row["ok"], row["why"])


def _misuse_of(sqlstate: str) -> Misuse:
    family: type[ProcessorError] = family_of(sqlstate)
    if family is not Misuse:
        raise InvariantViolated(f"a batch refused an item by SQLSTATE {sqlstate}")
    return Misuse(f"{advice_for(sqlstate)} (SQLSTATE {sqlstate})")
