"""`toolcalls ledger approve|deny|resolve|cancel|sweep`: what people may do about a call.

Rules:
    Who decides names what was seen: the hash of the arguments, or the fence of the lost owner. When
    the ledger has moved on since, nothing happens and the status is 1.
    Every answer says where the call stands now, what may follow and with which key.
"""

import getpass
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, get_args

import typer

from processor.cli.exit_codes import ExitCode
from processor.cli.ledger_call import (
    NEXT_STEP,
    Database,
    Json,
    Key,
    identity_of,
    open_ledger,
)

if TYPE_CHECKING:
    from processor.ledger.port import CallView, Resolved
    from processor.ledger.postgres import PostgresLedger

_REASON_CHARS_MAX: Final = 200


def register(ledger: typer.Typer) -> None:
    """Add the verbs to `toolcalls ledger`."""
    ledger.command("approve", help="Let a held call run once with these arguments.")(approve)
    ledger.command("deny", help="End a held call: it never runs.")(deny)
    ledger.command("resolve", help="Settle a call in doubt by what was found out.")(resolve)
    ledger.command("cancel", help="Ask for the end of a call that has not begun.")(cancel)
    ledger.command("sweep", help="Move calls whose lease or deadline is over.")(sweep)


_ArgsHash = Annotated[
    str | None,
    typer.Option(help="`arguments_hash` of `ledger show`; asked for in a terminal when left out."),
]
_By = Annotated[
    str | None, typer.Option(help="Who decides, for the history; by default the login name.")
]
_Ttl = Annotated[
    float, typer.Option(min=1, max=31_536_000, help="Seconds until an approval is void.")
]


def approve(
    key: Key,
    args_hash: _ArgsHash = None,
    by: _By = None,
    ttl_s: _Ttl = 3600.0,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Approve."""
    _decide(key, args_hash, by, ttl_s, database_url, yes=True, as_json=as_json)


def deny(
    key: Key,
    args_hash: _ArgsHash = None,
    by: _By = None,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Deny."""
    _decide(key, args_hash, by, 3600.0, database_url, yes=False, as_json=as_json)


def _decide(
    key: str,
    args_hash: str | None,
    by: str | None,
    ttl_s: float,
    database_url: str | None,
    *,
    yes: bool,
    as_json: bool,
) -> None:
    verb = "approve" if yes else "deny"

    def act(ledger: "PostgresLedger", view: "CallView") -> str | None:
        seen = _seen_hash(args_hash, view, verb)
        if view.state != "held":
            return f"the call is {view.state}, not held"
        if seen != view.args_hash:
            return "the arguments hash is another one: look at the call again"
        tenant, idempotency_key = view.key.tenant, view.key.idempotency_key
        if not ledger.decide(tenant, idempotency_key, seen, _who(by), yes=yes, ttl_s=ttl_s):
            return "the call has moved on, or its deadline is over"
        return None

    _carry_out(verb, key, database_url, act, as_json=as_json)


def resolve(
    key: Key,
    fence: Annotated[int, typer.Option(help="`fence` of `ledger show`: what was looked at.")],
    to: Annotated[
        str,
        typer.Option(
            help="succeeded or failed; ready only when proven that nothing happened and the"
            " owner's process is gone."
        ),
    ],
    reason: Annotated[
        str, typer.Option(help="How it was found out; stands in the history. No content of calls.")
    ],
    by: _By = None,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Resolve."""
    from processor.core.errors import Misuse

    chosen = _resolved(to)
    if not reason.strip() or len(reason) > _REASON_CHARS_MAX or not reason.isprintable():
        raise Misuse(f"--reason must be one line of 1 to {_REASON_CHARS_MAX} characters")

    def act(ledger: "PostgresLedger", view: "CallView") -> str | None:
        if view.state != "in_doubt":
            return f"the call is {view.state}, not in doubt"
        if view.fence != fence:
            return "the fence is another one: look at the call again"
        tenant, idempotency_key = view.key.tenant, view.key.idempotency_key
        done = ledger.resolve(tenant, idempotency_key, fence, chosen, _who(by), reason=reason)
        return None if done else "the call has moved on: look at it again"

    _carry_out("resolve", key, database_url, act, as_json=as_json)


def cancel(
    key: Key, by: _By = None, database_url: Database = None, *, as_json: Json = False
) -> None:
    """Cancel."""

    def act(ledger: "PostgresLedger", view: "CallView") -> str | None:
        state = ledger.cancel(view.key.tenant, view.key.idempotency_key, _who(by))
        if state == "cancelled":
            return None
        if state in {"claimed", "ready", "held"}:
            # Asked for; honoured before the effect begins.
            return None
        return f"the call is {state}: what has begun cannot be cancelled"

    _carry_out("cancel", key, database_url, act, as_json=as_json)


def sweep(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many calls.")] = 100,
    database_url: Database = None,
    *,
    as_json: Json = False,
) -> None:
    """Sweep."""
    from processor.cli.console import emit_json, emit_line

    with open_ledger(database_url) as ledger:
        moved = ledger.sweep(limit)
    again = moved >= limit
    if as_json:
        emit_json({"verb": "sweep", "moved": moved, "more": again})
        return
    emit_line(f"moved {moved} calls{'; there may be more: sweep again' if again else ''}")


def _carry_out(
    verb: str,
    key: str,
    database_url: str | None,
    act: Callable[["PostgresLedger", "CallView"], str | None],
    *,
    as_json: bool,
) -> None:
    """Look, act, look again and tell; `act` answers why nothing was done."""
    from processor.core.errors import Misuse

    tenant, idempotency_key = identity_of(key)
    with open_ledger(database_url) as ledger:
        view = ledger.show(tenant, idempotency_key)
        if view is None:
            raise Misuse(f"the ledger has no call {idempotency_key} of the tenant {tenant}")
        refusal = act(ledger, view)
        now = ledger.show(tenant, idempotency_key) or view
    _tell(verb, now, refusal, as_json=as_json)
    if refusal is not None:
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _tell(verb: str, now: "CallView", refusal: str | None, *, as_json: bool) -> None:
    from processor.cli.console import emit_json, emit_line

    fields: dict[str, object] = {
        "verb": verb,
        "done": refusal is None,
        "why_not": refusal,
        "call_key": now.key.encode().decode(),
        "state": now.state,
        "cancel_requested": now.cancel_requested,
        "fence": now.fence,
        "next_step": NEXT_STEP[now.state],
        "next_key": now.retry,
    }
    if as_json:
        emit_json(fields)
        return
    for name, value in fields.items():
        emit_line(f"{name:<18} {'-' if value is None else value}")


def _seen_hash(given: str | None, view: "CallView", verb: str) -> bytes:
    from processor.core.errors import Misuse

    shown = view.args_hash.hex()
    if given is None:
        if not sys.stdin.isatty():
            raise Misuse("give --args-hash with `arguments_hash` of `ledger show`")
        typer.confirm(
            f"{verb} {view.tool} of {view.key.encode().decode()} with arguments hash {shown}?",
            abort=True,
            err=True,
        )
        return view.args_hash
    try:
        seen = bytes.fromhex(given)
    except ValueError:
        seen = b""
    if len(seen) != len(view.args_hash):
        raise Misuse("--args-hash must be the 66 hexadecimal digits that `ledger show` shows")
    return seen


def _resolved(to: str) -> "Resolved":
    from processor.core.errors import Misuse
    from processor.ledger.port import Resolved

    for known in get_args(Resolved):
        if to == known:
            return known  # type: ignore[no-any-return]  # a member of the literal
    raise Misuse(f"--to must be one of {', '.join(get_args(Resolved))}")


def _who(by: str | None) -> str:
    if by:
        return by
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "operator"
