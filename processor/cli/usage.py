"""`toolcalls usage`: write down what responses used, and say what they and their calls cost."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from processor.cli.exit_codes import ExitCode
from processor.cli.ledger_call import Database, Json

if TYPE_CHECKING:
    from processor.executor.meter_host import MeterHostSettings
    from processor.ledger.postgres_usage import PostgresUsage
    from processor.ledger.usage import ChargeTotal, Dimension, Gap, Selection, UsageTotal

_RECORD_HELP = """Write the usage topic into the database, each report once.

Example: toolcalls usage record --start earliest

Its database login needs the role tcl_meter. Offsets move only behind what the database has
committed; a report that comes again adds nothing. What cannot be read goes to the dead-letter topic.

Exit codes: 0 stopped on request or idle, 2 a setting is wrong, 4 Kafka or Postgres not reached, 5
another process uses the slot, 6 fatal client error, 8 there is no position, or the committed one is
gone. All but 2 and 8 are meant to be restarted by a supervisor.
"""
_REPORT_HELP = """Sums by day, tenant, model and tool, from the tables.

Example: toolcalls usage report --by day,model --from 2026-12-01

The first table counts responses and their tokens as the vendors reported them, the second one the
charged calls. A dash means that nobody reported the number; it is not zero. Days are UTC.
"""
_CHECK_HELP = """Say which responses have calls but no usage, and the reverse.

Example: toolcalls usage check --grace-s 600

Usage without calls is mere information: a response need not call a tool, a call may be rejected,
and old calls are pruned. Exit codes: 0 all calls have their usage and every success its charge, 1 not.
"""
_PRICE_HELP = """Say what a call of a tool costs from now on.

Example: toolcalls usage price issue_refund 0.02 EUR --revision 2026-12

It needs the role tcl_operator. Charges that stand keep the price they were made with.
"""


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    usage = typer.Typer(help="What responses used and calls cost.", no_args_is_help=True)
    usage.command("record", help=_RECORD_HELP)(record_usage)
    usage.command("report", help=_REPORT_HELP)(report)
    usage.command("check", help=_CHECK_HELP)(check)
    usage.command("price", help=_PRICE_HELP)(price)
    app.add_typer(usage, name="usage")


_From = Annotated[
    str | None, typer.Option("--from", help="Not before: a day or a time, UTC, ISO 8601.")
]
_To = Annotated[str | None, typer.Option("--to", help="Before: a day or a time, UTC, ISO 8601.")]
_Tenant = Annotated[str | None, typer.Option(help="Only this tenant.")]


_Bootstrap = Annotated[
    str | None,
    typer.Option(envvar="TOOLCALLS_KAFKA_BOOTSTRAP", help="Broker address, HOST:PORT[,...]."),
]
_Group = Annotated[str, typer.Option(envvar="TOOLCALLS_USAGE_GROUP", help="Consumer group.")]
_Slot = Annotated[
    str | None,
    typer.Option(envvar="TOOLCALLS_SLOT", help="Stable name of this process in the group."),
]
_Prefix = Annotated[
    str, typer.Option(envvar="TOOLCALLS_TOPIC_PREFIX", help="Prefix of all topic names.")
]
_Start = Annotated[
    str | None,
    typer.Option(
        envvar="TOOLCALLS_START", help="Where a group without offsets begins: earliest or latest."
    ),
]
_Patience = Annotated[
    float, typer.Option(min=1, max=86_400, help="Seconds without a success until it ends.")
]
_UntilIdle = Annotated[
    float | None, typer.Option(min=0.1, help="End after so many seconds without a record.")
]


def record_usage(
    kafka_bootstrap: _Bootstrap = None,
    database_url: Database = None,
    group: _Group = "toolcalls-usage",
    slot: _Slot = None,
    prefix: _Prefix = "",
    start: _Start = None,
    patience_s: _Patience = 300.0,
    until_idle_s: _UntilIdle = None,
) -> None:
    """Run until SIGTERM or SIGINT."""
    from processor.core.errors import Misuse
    from processor.executor.kafka_sink import SinkSettings
    from processor.executor.kafka_source import KafkaSettings
    from processor.executor.meter_host import MeterHostSettings
    from processor.executor.usage_recorder import MeterSettings
    from processor.ledger.postgres_pool import PostgresSettings
    from processor.runtime.topics import TopicNames

    if not kafka_bootstrap:
        raise Misuse(
            "no Kafka address: give --kafka-bootstrap HOST:PORT or set TOOLCALLS_KAFKA_BOOTSTRAP"
        )
    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    if start not in {None, "earliest", "latest"}:
        raise Misuse(f"--start must be earliest or latest, not {start}")
    topics = TopicNames.prefixed(prefix)
    _run_meter(
        MeterHostSettings(
            KafkaSettings(
                bootstrap=kafka_bootstrap,
                topic=topics.usage,
                group=group,
                slot=slot,
                start=start,  # type: ignore[arg-type]  # checked above
            ),
            SinkSettings(kafka_bootstrap, topics.deadletter),
            PostgresSettings(database_url, application_name=group, pool_max=1),
            MeterSettings(patience_s=patience_s, idle_end_s=until_idle_s).checked(),
        )
    )


def _run_meter(settings: "MeterHostSettings") -> None:
    from processor.app import StopRequest
    from processor.executor.crash_points import crash_point_of
    from processor.executor.meter_host import LogMeterObserver, run_meter
    from processor.executor.ports import SystemClock
    from processor.telemetry.logging import make_logger

    stop = StopRequest()
    stop.install()
    run_meter(
        settings,
        observer=LogMeterObserver(make_logger("usage")),
        stop_requested=stop,
        clock=SystemClock(),
        crash_point=crash_point_of(os.environ),
    )


def report(
    by: Annotated[
        str, typer.Option(help="What to tell apart: day, tenant, model, tool, joined by commas.")
    ] = "day,tenant,model,tool",
    first: _From = None,
    end: _To = None,
    tenant: _Tenant = None,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Report."""
    from processor.cli.console import emit_json

    dimensions = _dimensions(by)
    chosen = _selection(first, end, tenant)
    with _open_book(database_url) as book:
        used = book.usage_totals(dimensions, chosen)
        charged = book.charge_totals(dimensions, chosen)
    if as_json:
        emit_json(
            {
                "usage": [_usage_fields(total, dimensions) for total in used],
                "charges": [_charge_fields(total, dimensions) for total in charged],
            }
        )
        return
    _print_report("responses", [_usage_fields(total, dimensions) for total in used])
    _print_report("calls", [_charge_fields(total, dimensions) for total in charged])


def check(
    grace_s: Annotated[
        float, typer.Option(min=0, max=31_536_000, help="What is younger is not missing yet.")
    ] = 300.0,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many a kind.")] = 100,
    first: _From = None,
    end: _To = None,
    tenant: _Tenant = None,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Check."""
    from processor.cli.console import emit_json, emit_line, print_table

    with _open_book(database_url) as book:
        gaps = book.gaps(_selection(first, end, tenant), grace_s=grace_s, limit=limit)
    wrong = [gap for gap in gaps if gap.kind != "usage_without_calls"]
    if as_json:
        emit_json({"ok": not wrong, "gaps": [_gap_fields(gap) for gap in gaps]})
    elif gaps:
        print_table(
            ("what", "response", "calls", "since"),
            [[str(value) for value in _gap_fields(gap).values()] for gap in gaps],
        )
    else:
        emit_line("every call has its usage, every success its charge")
    if wrong:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def price(
    tool: Annotated[str, typer.Argument(help="Name of the tool.")],
    amount: Annotated[str, typer.Argument(help="Price of one successful call, a decimal number.")],
    currency: Annotated[str, typer.Argument(help="Three capital letters, for example EUR.")],
    revision: Annotated[str, typer.Option(help="Name of the price list; stands in each charge.")],
    database_url: Database = None,
) -> None:
    """Price."""
    from processor.cli.console import emit_line
    from processor.core.errors import Misuse

    try:
        known = Decimal(amount)
    except InvalidOperation:
        known = Decimal("NaN")
    if not (known.is_finite() and known >= 0):
        raise Misuse("the amount must be a decimal number, not below 0")
    with _open_book(database_url) as book:
        book.set_price(tool, str(known), currency, revision)
    emit_line(f"a call of {tool} costs {known} {currency} from now on ({revision})")


def _open_book(database_url: str | None) -> "PostgresUsage":
    from processor.core.errors import Misuse
    from processor.ledger.postgres_pool import PostgresSettings
    from processor.ledger.postgres_usage import PostgresUsage

    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    return PostgresUsage(
        PostgresSettings(database_url, application_name="toolcalls-cli", pool_max=1)
    )


def _dimensions(by: str) -> "list[Dimension]":
    from processor.core.errors import Misuse
    from processor.ledger.usage import Dimension

    asked = [part.strip() for part in by.split(",") if part.strip()]
    known: tuple[Dimension, ...] = get_args(Dimension)
    if not set(asked) <= set(known):
        raise Misuse(f"--by takes {', '.join(known)}, joined by commas")
    return [name for name in known if name in asked]


def _selection(first: str | None, end: str | None, tenant: str | None) -> "Selection":
    from processor.core.errors import Misuse
    from processor.ledger.usage import Selection

    chosen = Selection(_time_ms(first, "--from"), _time_ms(end, "--to"), tenant)
    if chosen.from_ms is not None and chosen.to_ms is not None and chosen.from_ms >= chosen.to_ms:
        raise Misuse("--from must lie before --to")
    return chosen


def _time_ms(text: str | None, option: str) -> int | None:
    from processor.core.errors import Misuse

    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise Misuse(
            f"{option} must be a day or a time, for example 2026-12-01 or 2026-12-01T08:30:00"
        ) from None
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return int(known.timestamp() * 1000)


def _usage_fields(total: "UsageTotal", by: "Sequence[Dimension]") -> dict[str, object]:
    own: dict[str, object] = {"day": total.day, "tenant": total.tenant, "model": total.model}
    dimensions: dict[str, object] = {name: own[name] for name in by if name in own}
    return dimensions | {
        "responses": total.responses,
        "corrected": total.corrected,
        "input_tokens": total.input_tokens,
        "output_tokens": total.output_tokens,
        "total_tokens": total.total_tokens,
        "cached_input_tokens": total.cached_input_tokens,
        "reasoning_tokens": total.reasoning_tokens,
        "no_input": total.no_input,
        "no_output": total.no_output,
    }


def _charge_fields(total: "ChargeTotal", by: "Sequence[Dimension]") -> dict[str, object]:
    own: dict[str, object] = {"day": total.day, "tenant": total.tenant, "tool": total.tool}
    dimensions: dict[str, object] = {name: own[name] for name in by if name in own}
    return dimensions | {
        "calls": total.calls,
        "amount": total.amount,
        "currency": total.currency,
        "unpriced": total.unpriced,
    }


def _gap_fields(gap: "Gap") -> dict[str, object]:
    from processor.core.identity import CallKey

    key = CallKey(gap.tenant, gap.request_id, gap.response_id, "-").encode().decode()
    return {
        "kind": gap.kind,
        "response": key.removesuffix("/-"),
        "calls": gap.calls,
        "since": datetime.fromtimestamp(gap.at_ms / 1000, UTC).isoformat(timespec="seconds"),
    }


def _print_report(what: str, rows: Sequence[dict[str, object]]) -> None:
    """A table in a terminal; in a pipe the first cell says which of the two a line belongs to."""
    from processor.cli.console import emit_line, is_terminal, print_table

    if is_terminal():
        emit_line(what if rows else f"{what}: none")
    if rows:
        cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
        marked = cells if is_terminal() else [[what, *row] for row in cells]
        print_table(tuple(rows[0]), marked)
