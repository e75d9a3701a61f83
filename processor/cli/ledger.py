"""`toolcalls ledger`: what the ledger knows, and what may be done next."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from processor.cli import ledger_stats, ledger_verbs
from processor.cli.ledger_call import (
    NEXT_STEP,
    Database,
    Json,
    Key,
    identity_of,
    open_ledger,
)

if TYPE_CHECKING:
    from processor.ledger.port import CallLine, CallState, CallView, Transition


_LIST_HELP = """List calls, newest first.

Example: toolcalls ledger list --state in_doubt --tool refund --older-than 30m
"""
_AGE = re.compile(r"(\d{1,9})(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    ledger = typer.Typer(help="What the ledger knows of calls.", no_args_is_help=True)
    ledger.command("list", help=_LIST_HELP)(list_calls)
    ledger.command("show", help="Show one call: state, history, what may be done next.")(show)
    ledger_verbs.register(ledger)
    ledger_stats.register(ledger)
    app.add_typer(ledger, name="ledger")


def list_calls(
    state: Annotated[str | None, typer.Option(help="Only calls in this state.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only calls of this tenant.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
    older_than: Annotated[
        str | None, typer.Option(help="Only calls in their state for longer, such as 30m.")
    ] = None,
    newer_than: Annotated[
        str | None, typer.Option(help="Only calls in their state for less, such as 24h.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """List calls."""
    from processor.cli.console import emit_json

    chosen = _state(state)
    with open_ledger(database_url) as ledger:
        lines = ledger.list_calls(
            state=chosen,
            tenant=tenant,
            tool=tool,
            older_s=_age_s("--older-than", older_than),
            newer_s=_age_s("--newer-than", newer_than),
            limit=limit,
        )
    if as_json:
        emit_json([_line_fields(line) for line in lines])
        return
    _print_lines(
        ("tenant/key", "tool", "state", "class", "since", "next key"),
        [
            (
                _call_key(line),
                line.tool,
                line.state,
                line.effect_class,
                _time(line.since_ms),
                line.retry,
            )
            for line in lines
        ],
    )


def _print_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned in a terminal, tabs in a pipe; a key is there to be copied, so no cell is cut."""
    from processor.cli.console import emit_line, is_terminal

    if not is_terminal():
        for row in rows:
            emit_line("\t".join(row))
        return
    table = [columns, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(columns))]
    for row in table:
        emit_line("  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip())


def show(
    key: Key,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Show one call."""
    from processor.cli.console import emit_json, emit_line, print_table
    from processor.core.errors import Misuse

    tenant, idempotency_key = identity_of(key)
    with open_ledger(database_url) as ledger:
        view = ledger.show(tenant, idempotency_key)
        history = ledger.history(tenant, idempotency_key)
    if view is None:
        raise Misuse(f"the ledger has no call {idempotency_key} of the tenant {tenant}")
    if as_json:
        fields = _view_fields(view)
        fields["history"] = [_transition_fields(t) for t in history]
        emit_json(fields)
        return
    for name, value in _view_fields(view).items():
        emit_line(f"{name:<18} {'-' if value is None else value}")
    emit_line()
    print_table(
        ("at", "from", "to", "fence", "by", "why"),
        [
            (
                _time(t.at_ms),
                t.from_state or "-",
                t.to_state,
                str(t.fence),
                t.by or "-",
                t.why or "-",
            )
            for t in history
        ],
    )


def _state(state: str | None) -> "CallState | None":
    from processor.core.errors import Misuse
    from processor.ledger.port import CallState

    states = get_args(CallState)
    if state is not None and state not in states:
        raise Misuse(f"--state must be one of {', '.join(states)}")
    return state  # type: ignore[return-value]  # checked above


def _age_s(option: str, text: str | None) -> float | None:
    from processor.core.errors import Misuse

    if text is None:
        return None
    age = _AGE.fullmatch(text)
    if age is None:
        raise Misuse(f"{option} is a number with its unit: 90s, 30m, 24h or 7d")
    return int(age[1]) * _SECONDS[age[2]]


def _call_key(line: "CallLine") -> str:
    """One name for the call, as `ledger show` takes it: the short one where it is unambiguous."""
    from processor.core.identity import CallKey

    short = f"{line.tenant}/{line.idempotency_key}"
    if short.count("/") == 1 and short.isprintable():
        return short
    request_id, _, call_id = line.idempotency_key.partition(":")
    return CallKey(line.tenant, request_id, line.response_id, call_id).encode().decode()


def _line_fields(line: "CallLine") -> dict[str, object]:
    return {
        "call": _call_key(line),
        "tenant": line.tenant,
        "idempotency_key": line.idempotency_key,
        "response_id": line.response_id,
        "tool": line.tool,
        "state": line.state,
        "effect_class": line.effect_class,
        "fence": line.fence,
        "created_at": _time(line.created_at_ms),
        "since": _time(line.since_ms),
        "next_key": line.retry,
    }


def _view_fields(view: "CallView") -> dict[str, object]:
    source = view.source
    return {
        "call_key": view.key.encode().decode(),
        "idempotency_key": view.key.idempotency_key,
        "tool": view.tool,
        "state": view.state,
        "next_step": NEXT_STEP[view.state],
        "next_key": view.retry,
        "effect_class": view.effect_class,
        "arguments_hash": view.args_hash.hex(),
        "fence": view.fence,
        "claims": view.claims,
        "starts": f"{view.begun} of {view.max_begun}",
        "owner": view.owner,
        "lease_until": _maybe_time(view.lease_until_ms),
        "deadline": _time(view.deadline_ms),
        "created_at": _time(view.created_at_ms),
        "started_at": _maybe_time(view.started_at_ms),
        "finished_at": _maybe_time(view.finished_at_ms),
        "cancel_requested": view.cancel_requested,
        "decision_id": view.decision_id,
        "policy_revision": view.policy_rev,
        "error_class": view.error_class,
        "result_bytes": view.result_bytes,
        "conflicts": view.conflicts,
        "source": f"{source.topic}[{source.partition}]@{source.offset}" if source else None,
    }


def _transition_fields(transition: "Transition") -> dict[str, object]:
    return {
        "at": _time(transition.at_ms),
        "from_state": transition.from_state,
        "to_state": transition.to_state,
        "fence": transition.fence,
        "by": transition.by,
        "why": transition.why,
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _maybe_time(ms: int | None) -> str | None:
    return None if ms is None else _time(ms)
