"""`toolcalls ledger stats`: how many calls are where, and what somebody has to look at."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from processor.cli.ledger_call import Database, Json, open_ledger

if TYPE_CHECKING:
    from processor.ledger.postgres_stats import StatLine

#: In the order in which a person should read them.
_ORDER: Final = (
    "in_doubt",
    "conflict",
    "held",
    "ready",
    "claimed",
    "executing",
    "succeeded",
    "failed",
    "denied",
    "cancelled",
    "expired",
)
_SECONDS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def register(ledger: typer.Typer) -> None:
    """Add the verb to `toolcalls ledger`."""
    ledger.command(
        "stats",
        help="Count calls by state, tool and class; say what waits and for how long.\n\n"
        "Example: toolcalls ledger stats --open",
    )(stats)


def stats(
    database_url: Database = None,
    *,
    only_open: Annotated[
        bool, typer.Option("--open", help="Only what waits or runs: cheap in a large ledger.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Count calls."""
    from processor.cli.console import emit_json, emit_line, print_table

    with open_ledger(database_url) as ledger:
        found = ledger.stats(ended=not only_open)
    calls = sorted((line for line in found if line.tool is not None), key=_place)
    if as_json:
        emit_json(_fields(found, calls))
        return
    columns = ("state", "tool", "class", "calls", "oldest")
    rows = [
        (c.state, c.tool or "-", c.effect_class or "-", str(c.calls), age(c.oldest_s))
        for c in calls
    ]
    if rows:
        print_table(columns, rows)
        emit_line()
    for line in _summary(found):
        emit_line(line)


def age(seconds: float | None) -> str:
    """A duration in the largest unit that fits, as `3 h`; `-` for None."""
    if seconds is None:
        return "-"
    for size, unit in _SECONDS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "0 s"


def _place(line: "StatLine") -> tuple[int, str, str]:
    return _ORDER.index(line.state), line.tool or "", line.effect_class or ""


def _of(found: "Sequence[StatLine]", state: str) -> tuple[int, float | None]:
    chosen = [line for line in found if line.state == state]
    ages = [line.oldest_s for line in chosen if line.oldest_s is not None]
    return sum(line.calls for line in chosen), max(ages, default=None)


def _summary(found: "Sequence[StatLine]") -> list[str]:
    lines: list[str] = []
    for state, what in (
        ("in_doubt", "in doubt: find out whether the effect happened, then ledger resolve"),
        ("held", "held: a person decides, ledger approve or ledger deny"),
        ("outbox", "in the outbox: a relay has still to publish them"),
    ):
        count, oldest_s = _of(found, state)
        lines.append(
            f"{count} {what}; oldest {age(oldest_s)}" if count else f"0 {what.split(':')[0]}"
        )
    if _of(found, "undeclared_timeline")[0]:
        lines.append(
            "this primary is new and nobody has said what was lost: unsafe calls are paused"
        )
    return lines


def _fields(found: "Sequence[StatLine]", calls: "Sequence[StatLine]") -> dict[str, object]:
    summary: dict[str, object] = {}
    for state in ("in_doubt", "held", "outbox"):
        count, oldest_s = _of(found, state)
        summary[state] = {"count": count, "oldest_s": oldest_s}
    return {
        **summary,
        "timeline_declared": not _of(found, "undeclared_timeline")[0],
        "calls": [
            {
                "state": c.state,
                "tool": c.tool,
                "effect_class": c.effect_class,
                "calls": c.calls,
                "oldest_s": c.oldest_s,
            }
            for c in calls
        ],
    }
