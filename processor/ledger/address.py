"""The address of the ledger's database: read before it is used, and never repeated in a text.

Rules:
    The driver's messages quote the address, and the address may hold a password. So they are neither
    passed on nor logged; host, port and database name are all that is said.
"""

import logging
import re
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from processor.core._record import record
from processor.core.errors import Misuse, ProcessorError, Transient

_LOGGERS: Final = ("psycopg", "psycopg.pool")
_CUT: Final = re.compile(r"[@%?#\s]")
_NO_PORT: Final = re.compile(r"[^0-9,]")
_UNREADABLE: Final = (
    "the database URL cannot be read: write postgresql://user@host:port/name, and in user and"
    " password %40 for @, %2F for / and %25 for %"
)


@record
class Address:
    """Where the ledger is, as far as it may be told."""

    where: str
    database: str


def read_address(database_url: str) -> Address:
    """Read the address and silence the driver's loggers. Raises: `Misuse` without its text."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
        # Handlers that somebody else has attached get nothing either.
        logger.setLevel(logging.CRITICAL + 1)
    try:
        parts = conninfo_to_dict(database_url)
    except (psycopg.Error, ValueError):
        raise Misuse(_UNREADABLE) from None
    if any(_CUT.search(str(parts.get(name) or "")) for name in ("host", "dbname")) or (
        _NO_PORT.search(str(parts.get("port") or ""))
    ):
        # An unescaped character in a password moves the rest of it into one of these.
        raise Misuse(_UNREADABLE)
    host = str(parts.get("host") or parts.get("hostaddr") or "localhost")
    port = str(parts.get("port") or 5432)
    where = host if host.startswith("/") else f"{host}:{port}"
    return Address(where, str(parts.get("dbname") or parts.get("user") or "default"))


def not_connected(error: psycopg.Error | None, address: Address) -> ProcessorError:
    """Why a connection could not be made, without the driver's text."""
    # The driver keeps no SQLSTATE of a refused login, so its English words are the only mark.
    text = str(error).lower() if error is not None else ""
    if "does not exist" in text and "database" in text:
        return Misuse(f"there is no database {address.database} at {address.where}: create it")
    if "role" in text and "does not exist" in text:
        return Misuse(f"the role of the database URL does not exist at {address.where}")
    if "authentication failed" in text or "no password supplied" in text:
        return Misuse(f"the database at {address.where} refused user or password")
    return Transient(f"the database at {address.where} cannot be reached: check the address")
