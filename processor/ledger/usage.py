"""What responses used and what calls cost: facts, charges, totals, and what does not add up.

Rules:
    Absent is not zero: a counter that nobody reported is None, in a fact and in a sum.
    A fact is never changed. A report that says something else is a new revision with a cause, and the
    newest revision counts; an absent counter takes nothing away that was known.
    A call is charged at most once, by the transaction that writes its success.
    The same report again adds nothing, wherever it comes from.
"""

from collections.abc import Sequence
from typing import Final, Literal, Protocol

from processor.core._record import record
from processor.core.usage import ResponseUsage
from processor.ledger.port import Source

#: Why a report was written down, or that it was there already.
Cause = Literal["first", "late", "corrected", "nothing_new", "repeat"]
Dimension = Literal["day", "tenant", "model", "tool"]
GapKind = Literal["calls_without_usage", "usage_without_calls", "success_without_charge"]

#: Component under which a tool reports its own cost; the unit is the currency.
COST: Final = "cost"


@record
class UsageReport:
    """One report of one response, when it was made, and where it can be read again."""

    usage: ResponseUsage
    at_ms: int
    source: Source | None = None


@record
class Selection:
    """Which rows count: `from_ms` <= time < `to_ms`, epoch milliseconds; None is no bound."""

    from_ms: int | None = None
    to_ms: int | None = None
    tenant: str | None = None


@record
class UsageTotal:
    """Sums over responses. A dimension that was not asked for is None.

    A sum is None when no response reported the counter; `no_input` and `no_output` count the
    responses that did not report it.
    """

    day: str | None
    tenant: str | None
    model: str | None
    responses: int
    corrected: int
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cached_input_tokens: int | None
    reasoning_tokens: int | None
    no_input: int
    no_output: int


@record
class ChargeTotal:
    """Sums over charged calls of one currency; `unpriced` are those without an amount."""

    day: str | None
    tenant: str | None
    tool: str | None
    currency: str | None
    calls: int
    amount: str | None
    unpriced: int


@record
class Gap:
    """A response whose calls, usage and charges do not fit together; `calls` are those concerned."""

    kind: GapKind
    tenant: str
    request_id: str
    response_id: str
    calls: int
    at_ms: int


class UsageBook(Protocol):
    """Raises, from every method: `Transient`, `Indeterminate`, `Misuse`, as the ledger does."""

    def record(self, reports: Sequence[UsageReport]) -> list[Cause]:
        """Write down all of them or none; the answers stand in the same order."""
        ...

    def set_price(self, tool: str, amount: str, currency: str, revision: str) -> None:
        """What a call of `tool` costs from now on. `currency` is three capital letters."""
        ...

    def usage_totals(self, by: Sequence[Dimension], chosen: Selection) -> list[UsageTotal]:
        """Sums over the newest revision of each response; a day is that of the first report, UTC."""
        ...

    def charge_totals(self, by: Sequence[Dimension], chosen: Selection) -> list[ChargeTotal]:
        """Sums over charges, one line for each currency."""
        ...

    def gaps(self, chosen: Selection, *, grace_s: float, limit: int) -> list[Gap]:
        """What does not add up, oldest first, `limit` of each kind.

        What is younger than `grace_s` is not missing yet.
        """
        ...
