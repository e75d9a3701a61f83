"""Connections to the ledger's database, for every adapter of this room: one way to open and to ask.

Rules:
    A connection starts in autocommit and READ COMMITTED: one function call is one transaction.
    The driver's messages can quote key values, so only SQLSTATE and constraint leave this file.
    A commit that no standby has counts as unknown.
    Behind a pooler in transaction mode nothing is kept in a session: no prepared statement, no SET
    without LOCAL, no lock beyond a transaction.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import LiteralString, Self

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg_pool import ConnectionPool, PoolTimeout

from processor.core._record import record
from processor.core.errors import (
    Indeterminate,
    InvariantViolated,
    Misuse,
    ProcessorError,
    Transient,
)
from processor.ledger.address import not_connected, read_address
from processor.ledger.sqlstates import advice_for, family_of

Connection = psycopg.Connection[DictRow]


@record
class PostgresSettings:
    """How to reach the ledger.

    `prepare_threshold` None switches server-side statements off. A pooler in transaction mode is
    recognised and gets none.
    """

    database_url: str
    application_name: str = "toolcalls"
    pool_min: int = 1
    pool_max: int = 8
    pool_wait_s: float = 10.0
    connect_timeout_s: int = 5
    statement_timeout_ms: int = 10_000
    lock_timeout_ms: int = 5_000
    prepare_threshold: int | None = 5

    def checked(self) -> "PostgresSettings":
        """Return these settings, or refuse the contradictory ones by name. Raises: `Misuse`."""
        if not 1 <= self.pool_min <= self.pool_max:
            raise Misuse(f"pool_min must be 1 to pool_max ({self.pool_max}), not {self.pool_min}")
        if not 0 < self.lock_timeout_ms < self.statement_timeout_ms:
            raise Misuse("lock_timeout_ms must be above 0 and below statement_timeout_ms")
        return self


def translated(error: psycopg.Error) -> ProcessorError:
    """The error of our families for a driver's error, without the driver's text."""
    family = family_of(error.sqlstate)
    advice = advice_for(error.sqlstate)
    where = f"SQLSTATE {error.sqlstate or 'none'}"
    if error.diag.constraint_name:
        where += f", constraint {error.diag.constraint_name}"
    return family(f"{advice} ({where})")


class _Watched:
    """Notices of one connection: was a commit reported that no standby has?

    Postgres answers such a commit with success and a warning (SQLSTATE 01000) from
    SyncRepWaitForLSN; after a failover the row is gone. So the warning counts as a failure.
    """

    def __init__(self) -> None:
        self.unreplicated = False

    def __call__(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == "SyncRepWaitForLSN":
            self.unreplicated = True


class LedgerPool:
    """A pool of connections to one ledger. Thread-safe between `open` and `close`.

    Raises: `Misuse` at construction for settings; `Transient` from `open` when nobody answers.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings.checked()
        self._address = read_address(settings.database_url)
        self._watched: dict[Connection, _Watched] = {}
        self._options = (
            f"-c statement_timeout={settings.statement_timeout_ms}"
            f" -c lock_timeout={settings.lock_timeout_ms}"
            " -c default_transaction_isolation=read\\ committed"
        )
        self._limits = (
            f"SET LOCAL statement_timeout = {settings.statement_timeout_ms};"
            f" SET LOCAL lock_timeout = {settings.lock_timeout_ms}"
        ).encode()
        self._pool: ConnectionPool[Connection] | None = None
        self._shared = False

    def open(self) -> None:
        """Connect. Raises: `Misuse` when the database refuses us; `Transient` without an answer."""
        self._shared = self._try_the_address()
        self._pool = self._new_pool()
        try:
            self._pool.open(wait=True, timeout=self._settings.pool_wait_s)
        except PoolTimeout:
            self._pool.close()
            raise not_connected(None, self._address) from None

    def close(self) -> None:
        """Close every connection. Idempotent."""
        if self._pool is not None:
            self._pool.close()

    def _new_pool(self) -> ConnectionPool[Connection]:
        settings = self._settings
        options = {} if self._shared else {"options": self._options}
        return ConnectionPool(
            settings.database_url,
            connection_class=psycopg.Connection[DictRow],
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "prepare_threshold": None if self._shared else settings.prepare_threshold,
                "connect_timeout": settings.connect_timeout_s,
                "application_name": settings.application_name,
                "keepalives_idle": 10,
                "keepalives_interval": 5,
                "keepalives_count": 3,
                **options,
            },
            min_size=settings.pool_min,
            max_size=settings.pool_max,
            timeout=settings.pool_wait_s,
            configure=self._configure,
            open=False,
        )

    @contextmanager
    def connection(
        self, refused: Callable[[psycopg.Error], ProcessorError] = translated
    ) -> Generator[Connection]:
        """A connection whose driver errors come out as ours, and whose warnings count."""
        if self._pool is None:
            raise InvariantViolated("the ledger was asked before it was opened")
        try:
            with self._pool.connection() as connection:
                yield connection
                watched = self._watched.get(connection)
                if watched is not None and watched.unreplicated:
                    connection.close()
                    raise Indeterminate("a commit was acknowledged that no standby has")
        except PoolTimeout as e:
            raise Transient("no connection to the ledger was free: ask again") from e
        except psycopg.Error as e:
            raise refused(e) from None

    def rows(self, sql: LiteralString, values: Sequence[object]) -> list[DictRow]:
        """Every row of one statement that is a transaction of its own."""
        with self.connection() as connection:
            if not self._shared:
                return connection.execute(sql, values).fetchall()
            with self.limited(connection):
                return connection.execute(sql, values).fetchall()

    @contextmanager
    def limited(self, connection: Connection) -> Generator[None]:
        """A transaction under our time limits, also where connections are shared."""
        with connection.transaction():
            if self._shared:
                connection.execute(self._limits)
            yield

    def row(self, sql: LiteralString, values: Sequence[object]) -> DictRow:
        """The one row of a statement. Raises: `InvariantViolated` for none or several."""
        rows = self.rows(sql, values)
        if len(rows) != 1:
            raise InvariantViolated(f"a ledger function answered {len(rows)} rows instead of 1")
        return rows[0]

    def _configure(self, connection: Connection) -> None:
        watched = _Watched()
        connection.add_notice_handler(watched)
        self._watched = {c: w for c, w in self._watched.items() if not c.closed}
        self._watched[connection] = watched

    def _try_the_address(self) -> bool:
        """One connection before the pool's: the pool tries for long and does not say what failed.

        Returns: True when our time limits do not reach the server with the connection, because a
            pooler in transaction mode stands in between. They are then set in each transaction, and
            no statement is prepared.
        """
        url, wait_s = self._settings.database_url, self._settings.connect_timeout_s
        try:
            with psycopg.connect(url, connect_timeout=wait_s, options=self._options) as connection:
                row = connection.execute(
                    "SELECT setting FROM pg_settings WHERE name = 'statement_timeout'"
                ).fetchone()
            return row is None or row[0] != str(self._settings.statement_timeout_ms)
        except psycopg.Error as e:
            # PgBouncer's words of refusal; it gives no SQLSTATE of its own for it.
            if "unsupported startup parameter" in str(e):
                return True
            refusal = not_connected(e, self._address)
            if isinstance(refusal, Misuse):
                raise refusal from None
            return False


class Pooled:
    """An adapter with a pool of its own: open it with `with`; safe to use from several threads.

    Raises: `Misuse` at construction for settings; `Transient` on entry when nobody answers.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._pool = LedgerPool(settings)

    def __enter__(self) -> Self:
        self._pool.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.close()
