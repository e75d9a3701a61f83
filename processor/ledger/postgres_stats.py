"""How many calls are where: one question to the database, for people and gauges."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import LiteralString

from processor.core._record import record
from processor.ledger.postgres_rows import Row


@record
class StatLine:
    """Calls of one state, tool and class. `oldest_s` is None where age says nothing (ended calls).

    `state` is a state of the ledger, or `conflict`, `outbox` or `undeclared_timeline`; the last two
    belong to no tool.
    """

    state: str
    tool: str | None
    effect_class: str | None
    calls: int
    oldest_s: float | None


class PostgresStats(ABC):
    """For a ledger that can ask for rows."""

    @abstractmethod
    def _rows(self, sql: LiteralString, values: Sequence[object]) -> list[Row]: ...

    def stats(self, *, ended: bool = True) -> list[StatLine]:
        """Counts by state, tool and class; `ended` costs one pass over all calls that are kept."""
        rows = self._rows("SELECT * FROM tcl.stats(%s)", (ended,))
        return [
            StatLine(row["state"], row["tool"], row["effect"], row["calls"], row["oldest_s"])
            for row in rows
        ]
