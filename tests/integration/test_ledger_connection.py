"""What happens to an answer that never arrives: asked again, never acted on twice."""

import hashlib
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import LiteralString
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import sql

from processor.core.errors import Indeterminate, Misuse, Transient
from processor.core.identity import CallKey
from processor.ledger.migrate import migrate, read_migrations
from processor.ledger.port import Begin, Claim, Outcome, Owned
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.resources import migrations_dir

pytestmark = [pytest.mark.integration, pytest.mark.faults]

CLAIM = Claim(
    key=CallKey("acme", "req_1", "resp_1", "call_1"),
    tool="refund",
    effect_class="at_most_once",
    args_hash=b"\x01" + hashlib.sha256(b"{}").digest(),
    owner="slot-0/1",
    lease_s=60,
    emitted_at_ms=1_800_000_000_000,
    deadline_ms=3_600_000_000_000,
)


class AnswerThief:
    """A proxy in front of Postgres that can lose the answer to the next request.

    The request reaches the server and is carried out; the client only sees the connection end.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._steal = 0
        self._lock = threading.Lock()
        self.stolen = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def steal(self, count: int) -> None:
        """Lose the answers to the next `count` function calls."""
        with self._lock:
            self._steal = count

    def close(self) -> None:
        """Take no more connections."""
        _end(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._target)
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        thieving = threading.Event()

        def back() -> None:
            try:
                while data := server.recv(65_536):
                    if thieving.is_set():
                        # The answer is here, so the server has committed; it goes no further.
                        with self._lock:
                            self.stolen += 1
                        break
                    client.sendall(data)
            except OSError:
                pass
            finally:
                for end in (client, server):
                    _end(end)

        threading.Thread(target=back, daemon=True).start()
        try:
            while data := client.recv(65_536):
                with self._lock:
                    if b"tcl." in data and self._steal > 0:
                        self._steal -= 1
                        thieving.set()
                server.sendall(data)
        except OSError:
            pass


def _end(connection: socket.socket) -> None:
    """Wakes whoever reads from it; a plain close would not."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


@contextmanager
def thieved(database_url: str) -> Generator[tuple[PostgresLedger, AnswerThief]]:
    """A ledger whose connections pass the thief."""
    parts = urlsplit(database_url)
    thief = AnswerThief(parts.hostname or "127.0.0.1", parts.port or 5432)
    login, _, _ = parts.netloc.rpartition("@")
    through = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{thief.port}"))
    try:
        settings = PostgresSettings(through, pool_max=2, prepare_threshold=None)
        with PostgresLedger(settings) as ledger:
            yield ledger, thief
    finally:
        thief.close()


@pytest.fixture
def migrated(database: str) -> str:
    """A database with the whole schema."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    return database


def count(database_url: str, column: LiteralString) -> int:
    """One number of the ledger."""
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            sql.SQL("SELECT {} FROM tcl.call_guard").format(sql.Identifier(column))
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_lost_answers_to_claim_begin_and_finish_leave_one_of_each(migrated: str) -> None:
    """The claim is found again by its owner, begin and finish say that they know."""
    with thieved(migrated) as (ledger, thief):
        thief.steal(1)
        verdict = ledger.claim(CLAIM)
        assert verdict.kind == "claimed"
        assert verdict.fence is not None
        owned = Owned("acme", CLAIM.key.idempotency_key, verdict.fence)
        thief.steal(1)
        begun = ledger.begin_effect(owned, Begin(60))
        assert (begun.ok, begun.why) == (True, "already_begun")
        thief.steal(1)
        finished = ledger.finish(owned, Outcome("succeeded", body=b"1"))
        assert (finished.ok, finished.why) == (True, "already")
        assert thief.stolen == 3
    assert count(migrated, "claims") == 1
    assert count(migrated, "begun") == 1


def test_a_claim_of_another_owner_is_not_taken_for_ours(migrated: str) -> None:
    """After a lost answer only the very same question is recognised."""
    with thieved(migrated) as (ledger, thief):
        assert ledger.claim(CLAIM).kind == "claimed"
        thief.steal(1)
        other = Claim(
            key=CLAIM.key,
            tool=CLAIM.tool,
            effect_class=CLAIM.effect_class,
            args_hash=CLAIM.args_hash,
            owner="slot-0/2",
            lease_s=60,
            emitted_at_ms=CLAIM.emitted_at_ms,
            deadline_ms=CLAIM.deadline_ms,
        )
        assert ledger.claim(other).kind == "busy"
    assert count(migrated, "claims") == 1


def test_answers_that_stay_away_are_transient_for_a_claim_and_unknown_for_a_begin(
    migrated: str,
) -> None:
    """A claim may be asked again later; a begin that nobody confirms must not lead to an effect."""
    with thieved(migrated) as (ledger, thief):
        verdict = ledger.claim(CLAIM)
        assert verdict.fence is not None
        owned = Owned("acme", CLAIM.key.idempotency_key, verdict.fence)
        thief.steal(100)
        with pytest.raises(Transient):
            ledger.claim(CLAIM)
        with pytest.raises(Indeterminate):
            ledger.begin_effect(owned, Begin(60))


def test_a_connection_that_is_killed_while_waiting_is_asked_again(migrated: str) -> None:
    """A failover or an administrator ends sessions; the question survives."""
    with PostgresLedger(PostgresSettings(migrated, application_name="victim")) as ledger:
        verdict = ledger.claim(CLAIM)
        assert verdict.fence is not None
        owned = Owned("acme", CLAIM.key.idempotency_key, verdict.fence)
        answers: list[bool] = []
        with psycopg.connect(migrated) as blocker:
            blocker.execute("SELECT 1 FROM tcl.call_guard FOR UPDATE")
            asking = threading.Thread(
                target=lambda: answers.append(ledger.begin_effect(owned, Begin(60)).ok)
            )
            asking.start()
            with psycopg.connect(migrated, autocommit=True) as admin:
                victims = wait_for(
                    lambda: admin.execute(
                        "SELECT pid FROM pg_stat_activity WHERE application_name = 'victim'"
                        " AND wait_event_type = 'Lock'"
                    ).fetchall()
                )
                for (pid,) in victims:
                    admin.execute("SELECT pg_terminate_backend(%s)", (pid,))
                blocker.rollback()
        asking.join(30)
        assert answers == [True]
    assert count(migrated, "begun") == 1


def wait_for(ask: Callable[[], list[tuple[int]]]) -> list[tuple[int]]:
    """Ask until there is something."""
    signal = threading.Event()
    for _ in range(2000):
        found = ask()
        if found:
            return found
        signal.wait(0.005)
    raise AssertionError("nothing came")


def wait_until_commits_wait(database_url: str, admin: psycopg.Connection) -> None:
    """Write until a commit waits for the standby: only then does the whole server know of it."""
    found = threading.Event()

    def write() -> None:
        with psycopg.connect(database_url, autocommit=True, application_name="probe") as probe:
            while not found.is_set():
                probe.execute("SELECT pg_logical_emit_message(true, 'probe', '')")

    writing = threading.Thread(target=write)
    writing.start()
    waiting = "FROM pg_stat_activity WHERE application_name = 'probe' AND wait_event = 'SyncRep'"
    wait_for(lambda: admin.execute(f"SELECT pid {waiting}".encode()).fetchall())
    found.set()
    while writing.is_alive():
        admin.execute(f"SELECT pg_cancel_backend(pid) {waiting}".encode())
        writing.join(0.01)


def test_a_lock_that_is_not_had_in_time_is_transient(migrated: str) -> None:
    """Nothing happened, so the same question may be asked again."""
    settings = PostgresSettings(migrated, lock_timeout_ms=50, statement_timeout_ms=5000)
    with PostgresLedger(settings) as ledger, psycopg.connect(migrated) as blocker:
        ledger.claim(CLAIM)
        blocker.execute("SELECT 1 FROM tcl.call_guard FOR UPDATE")
        with pytest.raises(Transient, match="55P03"):
            ledger.claim(CLAIM)


def test_a_database_without_the_schema_is_misuse(database: str) -> None:
    """The text says what to check and quotes nothing."""
    with PostgresLedger(PostgresSettings(database)) as ledger, pytest.raises(Misuse) as refused:
        ledger.claim(CLAIM)
    assert "toolcalls migrate" in str(refused.value)
    assert "req_1" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_nobody_at_the_address_is_transient() -> None:
    """Told at the start, within the waiting time."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    settings = PostgresSettings(f"postgresql://nobody@127.0.0.1:{port}/none", pool_wait_s=0.5)
    with pytest.raises(Transient), PostgresLedger(settings):
        pass


def test_a_commit_that_no_standby_has_does_not_count_as_a_begin(migrated: str) -> None:
    """Postgres answers success with a warning when such a wait is cancelled; we do not believe it."""
    ledger_settings = PostgresSettings(migrated, application_name="unreplicated")
    with (
        PostgresLedger(ledger_settings) as ledger,
        psycopg.connect(migrated, autocommit=True) as admin,
    ):
        admin.execute("SET synchronous_commit = local")
        verdict = ledger.claim(CLAIM)
        assert verdict.fence is not None
        owned = Owned("acme", CLAIM.key.idempotency_key, verdict.fence)
        ended = threading.Event()
        raised: list[Exception] = []

        def begin() -> None:
            try:
                ledger.begin_effect(owned, Begin(60))
            except Indeterminate as e:
                raised.append(e)
            finally:
                ended.set()

        try:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
            admin.execute("SELECT pg_reload_conf()")
            wait_until_commits_wait(migrated, admin)
            asking = threading.Thread(target=begin)
            asking.start()
            while not ended.wait(0.01):
                # Whoever waits for the standby that does not exist is told to stop waiting.
                admin.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'unreplicated' AND wait_event = 'SyncRep'"
                )
            asking.join(30)
        finally:
            admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
            admin.execute("SELECT pg_reload_conf()")
        assert len(raised) == 1
        assert "standby" in str(raised[0])
    assert count(migrated, "begun") == 1
