"""Usage and charges of the memory ledger: the same answers as Postgres, no durability."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

from processor.core._record import record
from processor.core.errors import Misuse
from processor.core.usage import ResponseUsage
from processor.ledger.memory_guard import Guard
from processor.ledger.usage import (
    COST,
    Cause,
    ChargeTotal,
    Dimension,
    Gap,
    GapKind,
    Selection,
    UsageReport,
    UsageTotal,
)

_Response = tuple[str, str, str]

_COUNTERS: Final = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
)
_CURRENCY_LETTERS: Final = 3


@dataclass(slots=True)
class _Facts:
    first_at_ms: int
    known: ResponseUsage
    reports: list[ResponseUsage] = field(default_factory=list[ResponseUsage])
    corrected: bool = False


@record
class _Charge:
    tenant: str
    tool: str
    amount: Decimal | None
    currency: str | None
    at_ms: float


class MemoryUsage:
    """See `UsageBook`. Reads the calls of the ledger that owns it, under the ledger's lock."""

    def __init__(
        self,
        guards: dict[tuple[str, str], Guard],
        lock: threading.RLock,
        now_ms: Callable[[], float],
    ) -> None:
        self._guards = guards
        self._lock = lock
        self._now_ms = now_ms
        self._facts: dict[_Response, _Facts] = {}
        self._prices: dict[str, tuple[Decimal, str]] = {}
        self._charges: dict[tuple[str, str], _Charge] = {}

    def charge(self, guard: Guard) -> None:
        """The call has changed; a success is charged once."""
        if guard.state != "succeeded":
            return
        key = guard.claim.key
        amount, currency = self._price_of(guard)
        charge = _Charge(key.tenant, guard.claim.tool, amount, currency, self._now_ms())
        self._charges.setdefault((key.tenant, key.idempotency_key), charge)

    def _price_of(self, guard: Guard) -> tuple[Decimal | None, str | None]:
        for usage in guard.usage:
            if usage.component == COST and usage.origin == "reported":
                amount = Decimal(usage.quantity or "NaN")
                if amount.is_finite() and amount >= 0:
                    return amount, usage.unit
        return self._prices.get(guard.claim.tool, (None, None))

    def record(self, reports: Sequence[UsageReport]) -> list[Cause]:
        """See `UsageBook.record`."""
        with self._lock:
            return [self._record(report) for report in reports]

    def _record(self, report: UsageReport) -> Cause:
        given = report.usage
        response = (given.tenant, given.request_id, given.response_id)
        facts = self._facts.get(response)
        if facts is None:
            self._facts[response] = _Facts(report.at_ms, given, [given])
            return "first"
        if given in facts.reports:
            return "repeat"
        facts.reports.append(given)
        before, facts.known = facts.known, _merged(facts.known, given)
        if facts.known == before:
            return "nothing_new"
        if _only_more(before, facts.known):
            return "late"
        facts.corrected = True
        return "corrected"

    def set_price(self, tool: str, amount: str, currency: str, revision: str) -> None:
        """See `UsageBook.set_price`."""
        try:
            price = Decimal(amount)
        except InvalidOperation:
            raise Misuse("a price must be a decimal number") from None
        capitals = currency.isascii() and currency.isalpha() and currency.isupper()
        if price < 0 or not revision or not capitals or len(currency) != _CURRENCY_LETTERS:
            raise Misuse("a price is not below 0, its currency three capital letters")
        with self._lock:
            self._prices[tool] = (price, currency)

    def usage_totals(self, by: Sequence[Dimension], chosen: Selection) -> list[UsageTotal]:
        """See `UsageBook.usage_totals`."""
        with self._lock:
            groups: dict[tuple[str | None, ...], list[_Facts]] = {}
            for facts in self._facts.values():
                known = facts.known
                if _within(facts.first_at_ms, known.tenant, chosen):
                    values = {"tenant": known.tenant, "model": known.model}
                    own = _group(by, ("tenant", "model"), values, facts.first_at_ms)
                    groups.setdefault(own, []).append(facts)
            return [_usage_total(own, groups[own]) for own in _ordered(groups)]

    def charge_totals(self, by: Sequence[Dimension], chosen: Selection) -> list[ChargeTotal]:
        """See `UsageBook.charge_totals`."""
        with self._lock:
            groups: dict[tuple[str | None, ...], list[_Charge]] = {}
            for charge in self._charges.values():
                if _within(charge.at_ms, charge.tenant, chosen):
                    values = {"tenant": charge.tenant, "tool": charge.tool}
                    own = (*_group(by, ("tenant", "tool"), values, charge.at_ms), charge.currency)
                    groups.setdefault(own, []).append(charge)
            return [_charge_total(own, groups[own]) for own in _ordered(groups)]

    def gaps(self, chosen: Selection, *, grace_s: float, limit: int) -> list[Gap]:
        """See `UsageBook.gaps`."""
        with self._lock:
            settled_ms = self._now_ms() - grace_s * 1000
            calls = [
                g
                for g in self._guards.values()
                if _within(g.created_at_ms, g.claim.key.tenant, chosen)
            ]
            without_usage = [
                g
                for g in calls
                if _response_of(g) not in self._facts and g.created_at_ms < settled_ms
            ]
            uncharged = [
                g
                for g in calls
                if g.state == "succeeded"
                and (g.claim.key.tenant, g.claim.key.idempotency_key) not in self._charges
            ]
            return [
                *_call_gaps("calls_without_usage", without_usage)[:limit],
                *self._idle_usage(chosen, settled_ms)[:limit],
                *_call_gaps("success_without_charge", uncharged)[:limit],
            ]

    def _idle_usage(self, chosen: Selection, settled_ms: float) -> list[Gap]:
        called = {_response_of(g) for g in self._guards.values()}
        found = [
            Gap("usage_without_calls", *response, calls=0, at_ms=facts.first_at_ms)
            for response, facts in self._facts.items()
            if response not in called
            and facts.first_at_ms < settled_ms
            and _within(facts.first_at_ms, response[0], chosen)
        ]
        return sorted(found, key=lambda gap: gap.at_ms)


def _merged(old: ResponseUsage, given: ResponseUsage) -> ResponseUsage:
    counters = {
        name: getattr(old, name) if getattr(given, name) is None else getattr(given, name)
        for name in (*_COUNTERS, "model")
    }
    return replace(given, **counters, provider=old.provider | given.provider)


def _only_more(old: ResponseUsage, new: ResponseUsage) -> bool:
    kept = all(getattr(old, n) in {None, getattr(new, n)} for n in (*_COUNTERS, "model"))
    return kept and old.dialect == new.dialect and old.provider.items() <= new.provider.items()


def _response_of(guard: Guard) -> _Response:
    key = guard.claim.key
    return key.tenant, key.request_id, key.response_id


def _call_gaps(kind: GapKind, guards: list[Guard]) -> list[Gap]:
    groups: dict[_Response, list[Guard]] = {}
    for guard in guards:
        groups.setdefault(_response_of(guard), []).append(guard)
    found = [
        Gap(kind, *response, calls=len(own), at_ms=int(min(g.created_at_ms for g in own)))
        for response, own in groups.items()
    ]
    return sorted(found, key=lambda gap: gap.at_ms)


def _within(at_ms: float, tenant: str, chosen: Selection) -> bool:
    after = chosen.from_ms is None or at_ms >= chosen.from_ms
    before = chosen.to_ms is None or at_ms < chosen.to_ms
    return after and before and chosen.tenant in {None, tenant}


def _group(
    by: Sequence[Dimension], names: tuple[str, ...], values: Mapping[str, str | None], at_ms: float
) -> tuple[str | None, ...]:
    day = datetime.fromtimestamp(at_ms / 1000, UTC).date().isoformat() if "day" in by else None
    return (day, *(values[name] if name in by else None for name in names))


def _ordered(groups: Iterable[tuple[str | None, ...]]) -> list[tuple[str | None, ...]]:
    return sorted(groups, key=lambda own: [(part is None, part or "") for part in own])


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None when there is no number at all: absent is not zero."""
    given = [number for number in numbers if number is not None]
    return sum(given) if given else None


def _usage_total(own: tuple[str | None, ...], facts: list[_Facts]) -> UsageTotal:
    known = [f.known for f in facts]
    return UsageTotal(
        day=own[0],
        tenant=own[1],
        model=own[2],
        responses=len(facts),
        corrected=sum(f.corrected for f in facts),
        input_tokens=_sum(k.input_tokens for k in known),
        output_tokens=_sum(k.output_tokens for k in known),
        total_tokens=_sum(k.total_tokens for k in known),
        cached_input_tokens=_sum(k.cached_input_tokens for k in known),
        reasoning_tokens=_sum(k.reasoning_tokens for k in known),
        no_input=sum(k.input_tokens is None for k in known),
        no_output=sum(k.output_tokens is None for k in known),
    )


def _charge_total(own: tuple[str | None, ...], charges: list[_Charge]) -> ChargeTotal:
    amounts = [c.amount for c in charges if c.amount is not None]
    return ChargeTotal(
        day=own[0],
        tenant=own[1],
        tool=own[2],
        currency=own[3],
        calls=len(charges),
        amount=str(sum(amounts, Decimal(0))) if amounts else None,
        unpriced=sum(c.amount is None for c in charges),
    )
