"""Who a login is in the ledger's database: the roles that exist, and those it holds."""

from typing import Final

import psycopg

from processor.core._record import record
from processor.ledger.address import not_connected, read_address
from processor.ledger.postgres_pool import translated

#: One for each duty (migrations/README.md); later migrations may add some.
ROLES: Final = (
    "tcl_owner",
    "tcl_executor",
    "tcl_approver",
    "tcl_operator",
    "tcl_application",
    "tcl_reader",
)


@record
class Roles:
    """Roles of the ledger, and which of them the login of the address holds."""

    existing: frozenset[str]
    held: frozenset[str]
    is_superuser: bool


def read_roles(database_url: str, *, connect_timeout_s: int = 5) -> Roles:
    """Ask the database. Raises: `Misuse`, `Transient`, `Indeterminate`."""
    address = read_address(database_url)
    try:
        with psycopg.connect(
            database_url, autocommit=True, connect_timeout=connect_timeout_s
        ) as connection:
            return _read(connection)
    except psycopg.OperationalError as e:
        if e.sqlstate is None:
            raise not_connected(e, address) from None
        raise translated(e) from None
    except psycopg.Error as e:
        raise translated(e) from None


def _read(connection: psycopg.Connection) -> Roles:
    rows = connection.execute(
        "SELECT rolname, pg_has_role(current_user, oid, 'member') FROM pg_roles"
        " WHERE starts_with(rolname, 'tcl_')"
    ).fetchall()
    found = connection.execute(
        "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    return Roles(
        existing=frozenset(str(name) for name, _ in rows),
        held=frozenset(str(name) for name, holds in rows if holds),
        is_superuser=bool(found and found[0]),
    )
