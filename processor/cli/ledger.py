"""`toolcalls ledger`: what the ledger knows, and what may be done next."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

if TYPE_CHECKING:
    from processor.ledger.port import CallLine, CallState, CallView, Transition
    from processor.ledger.postgres import PostgresLedger

#: What a person may do about a call in this state.
_NEXT: Final[Mapping[str, str]] = {
    "held": "a person decides: ledger approve or ledger deny, naming the arguments hash",
    "ready": "an executor that serves the tool takes it",
    "claimed": "its owner decides; after the lease another one may",
    "executing": "its owner settles; after the lease the effect class decides",
    "in_doubt": "find out whether the effect happened, then ledger resolve, naming the fence",
    "succeeded": "nothing: a repetition gets this result",
    "failed": "nothing under this key: the application may send a new call with a new id",
    "denied": "nothing: it never runs",
    "cancelled": "nothing: it never runs",
    "expired": "nothing: its deadline passed before it began",
}


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    ledger = typer.Typer(help="What the ledger knows of calls.", no_args_is_help=True)
    ledger.command("list", help="List calls, newest first.")(list_calls)
    ledger.command("show", help="Show one call: state, history, what may be done next.")(show)
    app.add_typer(ledger, name="ledger")


_Database = Annotated[
    str | None, typer.Option(envvar="TOOLCALLS_DATABASE_URL", help="The ledger's database.")
]
_Json = Annotated[bool, typer.Option("--json", help="Answer for machines.")]


def list_calls(
    state: Annotated[str | None, typer.Option(help="Only calls in this state.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Only calls of this tenant.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000)] = 50,
    database_url: _Database = None,
    *,
    as_json: _Json = False,
) -> None:
    """List calls."""
    from processor.cli.console import emit_json, print_table

    chosen = _state(state)
    with _open(database_url) as ledger:
        lines = ledger.list_calls(state=chosen, tenant=tenant, limit=limit)
    if as_json:
        emit_json([_line_fields(line) for line in lines])
        return
    print_table(
        ("tenant", "key", "tool", "state", "class", "since", "next key"),
        [
            (
                line.tenant,
                line.idempotency_key,
                line.tool,
                line.state,
                line.effect_class,
                _time(line.since_ms),
                line.retry,
            )
            for line in lines
        ],
    )


def show(
    key: Annotated[
        str,
        typer.Argument(help="The call key tenant/request/response/call, or tenant/request:call."),
    ],
    database_url: _Database = None,
    *,
    as_json: _Json = False,
) -> None:
    """Show one call."""
    from processor.cli.console import emit_json, emit_line, print_table
    from processor.core.errors import Misuse

    tenant, idempotency_key = _identity(key)
    with _open(database_url) as ledger:
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


def _identity(key: str) -> tuple[str, str]:
    from processor.core.errors import Misuse
    from processor.core.identity import IdentityError, decode_call_key

    parts = key.split("/")
    if len(parts) == 2 and ":" in parts[1]:
        return parts[0], parts[1]
    try:
        found = decode_call_key(key.encode())
    except IdentityError as e:
        raise Misuse(
            f"{e}: a key is tenant/request/response/call, or tenant/request:call"
        ) from None
    return found.tenant, found.idempotency_key


def _state(state: str | None) -> "CallState | None":
    from processor.core.errors import Misuse
    from processor.ledger.port import CallState

    states = get_args(CallState)
    if state is not None and state not in states:
        raise Misuse(f"--state must be one of {', '.join(states)}")
    return state  # type: ignore[return-value]  # checked above


def _open(database_url: str | None) -> "PostgresLedger":
    from processor.core.errors import Misuse
    from processor.ledger.postgres import PostgresLedger, PostgresSettings

    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    return PostgresLedger(PostgresSettings(database_url, application_name="toolcalls-cli"))


def _line_fields(line: "CallLine") -> dict[str, object]:
    return {
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
        "next_step": _NEXT[view.state],
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
