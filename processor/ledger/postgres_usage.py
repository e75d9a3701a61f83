"""Usage and charges in Postgres: each question is one call of a function of `migrations/`."""

import json
from collections.abc import Sequence
from datetime import date, timedelta
from decimal import Decimal
from typing import Final

from psycopg.rows import DictRow

from processor.core.errors import Indeterminate
from processor.ledger.postgres_pool import Pooled
from processor.ledger.postgres_rows import time_of
from processor.ledger.usage import (
    Cause,
    ChargeTotal,
    Dimension,
    Gap,
    Selection,
    UsageReport,
    UsageTotal,
)

_RECORD: Final = (
    "SELECT tcl.record_usage(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::jsonb, %s, %s, %s, %s)"
    " AS cause"
)


class PostgresUsage(Pooled):
    """`UsageBook` on Postgres. Open it with `with`; safe to use from several threads.

    Raises: `Misuse` at construction for settings; `Transient` on entry when nobody answers.
    """

    def record(self, reports: Sequence[UsageReport]) -> list[Cause]:
        """See `UsageBook.record`; a lost answer is asked for once more, which adds nothing."""
        try:
            return self._record(reports)
        except Indeterminate:
            return self._record(reports)

    def _record(self, reports: Sequence[UsageReport]) -> list[Cause]:
        # In key order, so that two recorders never wait for each other in a circle.
        order = sorted(range(len(reports)), key=lambda i: _identity(reports[i]))
        causes: list[Cause] = ["repeat"] * len(reports)
        with self._pool.connection() as connection, self._pool.limited(connection):
            cursor = connection.cursor()
            cursor.executemany(_RECORD, [_values(reports[i]) for i in order], returning=True)
            for i in order:
                row = cursor.fetchone()
                if row is not None:
                    causes[i] = row["cause"]
                cursor.nextset()
        return causes

    def set_price(self, tool: str, amount: str, currency: str, revision: str) -> None:
        """See `UsageBook.set_price`."""
        values = (tool, Decimal(amount), currency, revision)
        self._pool.rows("SELECT tcl.set_price(%s, %s, %s, %s)", values)

    def usage_totals(self, by: Sequence[Dimension], chosen: Selection) -> list[UsageTotal]:
        """See `UsageBook.usage_totals`."""
        rows = self._pool.rows(
            "SELECT * FROM tcl.usage_totals(%s, %s, %s, %s)", (list(by), *_selected(chosen))
        )
        return [_usage_total(row) for row in rows]

    def charge_totals(self, by: Sequence[Dimension], chosen: Selection) -> list[ChargeTotal]:
        """See `UsageBook.charge_totals`."""
        rows = self._pool.rows(
            "SELECT * FROM tcl.charge_totals(%s, %s, %s, %s)", (list(by), *_selected(chosen))
        )
        return [_charge_total(row) for row in rows]

    def gaps(self, chosen: Selection, *, grace_s: float, limit: int) -> list[Gap]:
        """See `UsageBook.gaps`."""
        first, end, tenant = _selected(chosen)
        rows = self._pool.rows(
            "SELECT * FROM tcl.usage_gaps(%s, %s, %s, %s, %s)",
            (first, end, timedelta(seconds=grace_s), tenant, limit),
        )
        return [
            Gap(
                kind=row["kind"],
                tenant=row["tenant"],
                request_id=row["request_id"],
                response_id=row["response_id"],
                calls=row["calls"],
                at_ms=int(row["at"].timestamp() * 1000),
            )
            for row in rows
        ]


def _identity(report: UsageReport) -> tuple[str, str, str]:
    return report.usage.tenant, report.usage.request_id, report.usage.response_id


def _values(report: UsageReport) -> tuple[object, ...]:
    usage, source = report.usage, report.source
    return (
        *_identity(report),
        usage.dialect,
        usage.model,
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.cached_input_tokens,
        usage.reasoning_tokens,
        json.dumps(usage.provider),
        time_of(report.at_ms),
        source.topic if source else None,
        source.partition if source else None,
        source.offset if source else None,
    )


def _selected(chosen: Selection) -> tuple[object, object, str | None]:
    first = None if chosen.from_ms is None else time_of(chosen.from_ms)
    end = None if chosen.to_ms is None else time_of(chosen.to_ms)
    return first, end, chosen.tenant


def _day(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def _whole(number: Decimal | None) -> int | None:
    return None if number is None else int(number)


def _usage_total(row: DictRow) -> UsageTotal:
    return UsageTotal(
        day=_day(row["day"]),
        tenant=row["tenant"],
        model=row["model"],
        responses=row["responses"],
        corrected=row["corrected"],
        input_tokens=_whole(row["input_tokens"]),
        output_tokens=_whole(row["output_tokens"]),
        total_tokens=_whole(row["total_tokens"]),
        cached_input_tokens=_whole(row["cached_input_tokens"]),
        reasoning_tokens=_whole(row["reasoning_tokens"]),
        no_input=row["no_input"],
        no_output=row["no_output"],
    )


def _charge_total(row: DictRow) -> ChargeTotal:
    return ChargeTotal(
        day=_day(row["day"]),
        tenant=row["tenant"],
        tool=row["tool"],
        currency=row["currency"],
        calls=row["calls"],
        amount=None if row["amount"] is None else str(row["amount"]),
        unpriced=row["unpriced"],
    )
