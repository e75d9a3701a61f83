"""What the verbs of `toolcalls ledger` share: opening the ledger, naming a call, what may follow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from processor.ledger.postgres import PostgresLedger

#: What a person may do about a call in this state.
NEXT_STEP: Final[Mapping[str, str]] = {
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

Database = Annotated[
    str | None, typer.Option(envvar="TOOLCALLS_DATABASE_URL", help="The ledger's database.")
]
Json = Annotated[bool, typer.Option("--json", help="Answer for machines.")]
Key = Annotated[
    str,
    typer.Argument(help="The call key tenant/request/response/call, or tenant/request:call."),
]


def open_ledger(database_url: str | None) -> "PostgresLedger":
    """The ledger, to be used with `with`. Raises: `Misuse` without a readable address."""
    from processor.core.errors import Misuse
    from processor.ledger.postgres import PostgresLedger, PostgresSettings

    if not database_url:
        raise Misuse("no database: give --database-url or set TOOLCALLS_DATABASE_URL")
    return PostgresLedger(
        PostgresSettings(database_url, application_name="toolcalls-cli", pool_max=1)
    )


def identity_of(key: str) -> tuple[str, str]:
    """Tenant and idempotency key of a call named by a person. Raises: `Misuse`."""
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
