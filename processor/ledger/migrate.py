"""Apply the numbered SQL files of `migrations/` to a database, once each, in order.

Rules:
    A file is named `NNNN_pre_slug.sql` or `NNNN_post_slug.sql`: `pre` goes in before the new program
    runs, `post` after the old one is gone.
    All pending files of one run share one transaction under one advisory lock: all or nothing, and
    two runners at once are one after the other.
    A file that was applied and has changed since, or is gone, is refused by name.
"""

import hashlib
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, cast

import psycopg

from processor.core._record import record
from processor.core.errors import Misuse, Transient
from processor.ledger.address import not_connected, read_address

Phase = Literal["pre", "post", "all"]

#: Any constant that no other program of the database takes; the ASCII of "toolcall".
LOCK_KEY: Final = int.from_bytes(b"toolcall", "big")
_NAME: Final = re.compile(r"(\d{4})_(pre|post)_[a-z0-9_]+\.sql")
#: A lock that is not had by then means that somebody else's long transaction is in the way.
_LOCK_TIMEOUT_MS: Final = 10_000
#: A statement that takes longer holds its locks for too long; such a change belongs into batches.
_STATEMENT_TIMEOUT_MS: Final = 600_000


@record
class Migration:
    """One file: its number, phase and text, and the digest that names this exact text."""

    number: int
    phase: Literal["pre", "post"]
    name: str
    sql: str
    sha256: str


@record
class Status:
    """What a database has and what it lacks, by file name."""

    applied: list[str]
    pending: list[str]


def read_migrations(directory: Path) -> list[Migration]:
    """Read and check the files of `directory`, in order.

    Raises: `Misuse` for a missing folder, a file name that does not fit, a number used twice or a
        hole between numbers.
    """
    if not directory.is_dir():
        raise Misuse(f"{directory} is not a folder of migrations")
    found = [_read(path) for path in sorted(directory.glob("*.sql"))]
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise Misuse(
                f"{migration.name} has number {migration.number}, {expected} was expected:"
                " numbers start at 1, without holes and without repeats"
            )
    return found


def _read(path: Path) -> Migration:
    match = _NAME.fullmatch(path.name)
    if match is None:
        raise Misuse(f"{path.name} is not named NNNN_pre_slug.sql or NNNN_post_slug.sql")
    data = path.read_bytes()
    return Migration(
        number=int(match.group(1)),
        phase=cast("Literal['pre', 'post']", match.group(2)),
        name=path.name,
        sql=data.decode(),
        sha256=hashlib.sha256(data).hexdigest(),
    )


def status(database_url: str, migrations: Sequence[Migration]) -> Status:
    """Compare files and database without changing or locking anything.

    Raises: as `migrate`.
    """
    with _connect(database_url) as connection, _refusals():
        applied = _applied(connection)
    _refuse_differences(applied, migrations)
    return Status(
        applied=[m.name for m in migrations if m.name in applied],
        pending=[m.name for m in migrations if m.name not in applied],
    )


def migrate(
    database_url: str, migrations: Sequence[Migration], *, phase: Phase, dry_run: bool = False
) -> list[str]:
    """Apply what is pending and belongs to `phase`; returns the names, in order.

    With `dry_run` the names are those that would be applied, and nothing is changed or locked.

    Raises: `Misuse` when an applied file differs or is gone, when files would go in out of order, or
        when a statement is refused; `Transient` when the database or a lock cannot be had.
    """
    if dry_run:
        with _connect(database_url) as connection, _refusals():
            return [m.name for m in _chosen(_applied(connection), migrations, phase)]
    with _connect(database_url) as connection, _refusals(), connection.transaction():
        connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MS}".encode())
        connection.execute(f"SET LOCAL statement_timeout = {_STATEMENT_TIMEOUT_MS}".encode())
        _take_lock(connection)
        connection.execute(_CREATE_RECORD)
        chosen = _chosen(_applied(connection), migrations, phase)
        for migration in chosen:
            _apply(connection, migration)
        return [m.name for m in chosen]


_CREATE_RECORD: Final = """
CREATE SCHEMA IF NOT EXISTS tcl;
CREATE TABLE IF NOT EXISTS tcl.migration (
  name text PRIMARY KEY,
  sha256 text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


def _connect(database_url: str) -> psycopg.Connection:
    address = read_address(database_url)
    try:
        return psycopg.connect(database_url, autocommit=True, connect_timeout=10)
    except psycopg.Error as e:
        raise not_connected(e, address) from None


@contextmanager
def _refusals() -> Generator[None]:
    """Missing rights and a lost connection, as one sentence each."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege:
        raise Misuse(
            "this role may not migrate: use the database's owner (SQLSTATE 42501);"
            " nothing was applied"
        ) from None
    except psycopg.OperationalError as e:
        raise Transient(
            f"the database ended the migration (SQLSTATE {e.sqlstate or 'none'});"
            " nothing was applied"
        ) from None


def _take_lock(connection: psycopg.Connection) -> None:
    try:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK_KEY,))
    except psycopg.errors.LockNotAvailable as e:
        raise Transient("another migration of this database is still running") from e


def _applied(connection: psycopg.Connection) -> dict[str, str]:
    found = connection.execute("SELECT to_regclass('tcl.migration') IS NOT NULL").fetchone()
    if found is None or not found[0]:
        return {}
    rows = connection.execute("SELECT name, sha256 FROM tcl.migration").fetchall()
    return {str(name): str(digest) for name, digest in rows}


def _refuse_differences(applied: dict[str, str], migrations: Sequence[Migration]) -> None:
    known = {m.name: m.sha256 for m in migrations}
    for name, sha256 in sorted(applied.items()):
        if name not in known:
            raise Misuse(f"{name} was applied to this database and is gone from the folder")
        if known[name] != sha256:
            raise Misuse(
                f"{name} was applied to this database and has been changed since:"
                " restore it and write the change as a new file"
            )


def _chosen(
    applied: dict[str, str], migrations: Sequence[Migration], phase: Phase
) -> list[Migration]:
    _refuse_differences(applied, migrations)
    pending = [m for m in migrations if m.name not in applied]
    if phase == "all":
        return pending
    chosen = [m for m in pending if m.phase == phase]
    for migration in chosen:
        earlier = next(
            (m for m in pending if m.number < migration.number and m.phase != phase), None
        )
        if earlier is not None:
            raise Misuse(
                f"{migration.name} would overtake {earlier.name}:"
                f" apply the phase {earlier.phase} first, or use --phase all"
            )
    return chosen


def _apply(connection: psycopg.Connection, migration: Migration) -> None:
    try:
        # The text comes from our own reviewed files; without parameters it may hold many statements.
        connection.execute(migration.sql.encode())
    except psycopg.errors.LockNotAvailable as e:
        raise Transient(f"{migration.name}: a lock was not free in {_LOCK_TIMEOUT_MS} ms") from e
    except psycopg.errors.InsufficientPrivilege:
        raise
    except psycopg.Error as e:
        raise Misuse(
            f"{migration.name} was refused: {e.diag.message_primary} (SQLSTATE {e.sqlstate});"
            " nothing was applied"
        ) from e
    connection.execute(
        "INSERT INTO tcl.migration (name, sha256) VALUES (%s, %s)",
        (migration.name, migration.sha256),
    )
