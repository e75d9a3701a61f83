"""The runner of the migrations, and what the migrations grant."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import LiteralString, get_args

import psycopg
import pytest
from psycopg import sql

from processor.core.errors import Misuse
from processor.ledger.migrate import Migration, migrate, read_migrations, status
from processor.ledger.port import CallState, VerdictKind, next_key
from processor.resources import migrations_dir

pytestmark = pytest.mark.integration

CYCLE: tuple[LiteralString, ...] = (
    "SELECT verdict FROM tcl.claim('acme', 'req_1', 'resp_1', 'call_1', 'refund', 'at_most_once',"
    " decode(repeat('01', 33), 'hex'), 'me/1', '1 min', now(), now() + interval '1 h')",
    "SELECT ok FROM tcl.begin_effect('acme', 'req_1:call_1', (SELECT fence FROM"
    " tcl.fetch_result('acme', 'req_1:call_1')), '1 min', NULL, NULL)",
    "SELECT ok FROM tcl.finish('acme', 'req_1:call_1', (SELECT fence FROM"
    " tcl.fetch_result('acme', 'req_1:call_1')), 'succeeded', NULL, NULL, NULL, NULL)",
)


def test_migrating_twice_changes_nothing(database: str) -> None:
    """Each file once, in order; then nothing."""
    migrations = read_migrations(migrations_dir())
    names = [m.name for m in migrations]
    assert status(database, migrations).pending == names
    assert migrate(database, migrations, phase="all", dry_run=True) == names
    assert status(database, migrations).applied == []
    assert migrate(database, migrations, phase="all") == names
    assert migrate(database, migrations, phase="all") == []
    assert status(database, migrations).applied == names


def test_a_changed_file_is_refused_by_name(database: str, tmp_path: Path) -> None:
    """Also a dry run and a status refuse it, and a file that is gone."""
    folder = tmp_path / "migrations"
    shutil.copytree(migrations_dir(), folder)
    before = read_migrations(folder)
    migrate(database, before, phase="all")
    changed = folder / before[-1].name
    changed.write_text(changed.read_text() + "\n-- one more\n")
    for ask in _questions(database, read_migrations(folder)):
        with pytest.raises(Misuse, match=before[-1].name):
            ask()
    with pytest.raises(Misuse, match=before[-1].name):
        status(database, before[:-1])


def _questions(database: str, migrations: list[Migration]) -> list[Callable[[], object]]:
    return [
        lambda: migrate(database, migrations, phase="all"),
        lambda: migrate(database, migrations, phase="all", dry_run=True),
        lambda: status(database, migrations),
    ]


def test_a_failing_file_leaves_nothing_behind(database: str) -> None:
    """All or nothing; the error names file and SQLSTATE."""
    migrations = read_migrations(migrations_dir())
    broken = Migration(len(migrations) + 1, "pre", "0099_pre_broken.sql", "SELECT 1/0", "0" * 64)
    with pytest.raises(Misuse, match=r"0099_pre_broken\.sql .*22012"):
        migrate(database, [*migrations, broken], phase="all")
    assert status(database, migrations).applied == []


def test_a_phase_does_not_overtake_the_other(database: str) -> None:
    """Order is kept; the error says which phase is first."""
    files = [
        Migration(1, "pre", "0001_pre_a.sql", "SELECT 1", "a" * 64),
        Migration(2, "post", "0002_post_b.sql", "SELECT 1", "b" * 64),
        Migration(3, "pre", "0003_pre_c.sql", "SELECT 1", "c" * 64),
    ]
    assert migrate(database, files[:2], phase="pre") == ["0001_pre_a.sql"]
    with pytest.raises(Misuse, match=r"0003_pre_c\.sql would overtake 0002_post_b\.sql"):
        migrate(database, files, phase="pre")
    assert migrate(database, files, phase="post") == ["0002_post_b.sql"]
    assert migrate(database, files, phase="pre") == ["0003_pre_c.sql"]


def test_an_owner_that_is_no_superuser_can_migrate(database: str) -> None:
    """A managed service gives no superuser."""
    with psycopg.connect(database, autocommit=True) as connection:
        name = connection.info.dbname
        owner = f"migrator_{name}"
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN CREATEROLE").format(sql.Identifier(owner)))
        try:
            connection.execute(
                sql.SQL("GRANT tcl_owner TO {} WITH ADMIN OPTION").format(sql.Identifier(owner))
            ) if _has_role(connection, "tcl_owner") else None
            connection.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO {}").format(
                    sql.Identifier(name), sql.Identifier(owner)
                )
            )
            connection.execute(
                sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(owner))
            )
            for migration in read_migrations(migrations_dir()):
                if migration.number == 1:
                    connection.execute("CREATE SCHEMA tcl")
                with connection.transaction():
                    connection.execute(migration.sql.encode())
            connection.execute("RESET SESSION AUTHORIZATION")
            connection.execute("SET ROLE tcl_executor")
            for statement in CYCLE:
                connection.execute(statement)
            connection.execute("RESET ROLE")
        finally:
            connection.execute("RESET SESSION AUTHORIZATION")
            connection.execute("DROP SCHEMA tcl CASCADE")
            connection.execute(
                sql.SQL("ALTER DATABASE {} OWNER TO CURRENT_USER").format(sql.Identifier(name))
            )
            connection.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(owner)))
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(owner)))


def _has_role(connection: psycopg.Connection, name: str) -> bool:
    row = connection.execute("SELECT count(*) FROM pg_roles WHERE rolname = %s", (name,)).fetchone()
    return row == (1,)


# --- rights


@pytest.fixture
def migrated(database: str) -> str:
    """A database with the whole schema."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    return database


def test_an_executor_runs_the_whole_cycle_with_its_functions_only(migrated: str) -> None:
    """EXECUTE is enough."""
    with psycopg.connect(migrated) as connection:
        connection.execute("SET ROLE tcl_executor")
        answers = [connection.execute(statement).fetchone() for statement in CYCLE]
        assert answers == [("claimed",), (True,), (True,)]
        shown = connection.execute("SELECT state FROM tcl.show_call('acme', 'req_1:call_1')")
        assert shown.fetchone() == ("succeeded",)


FORBIDDEN: dict[str, tuple[LiteralString, ...]] = {
    "tcl_executor": (
        "UPDATE tcl.call_guard SET state = 'ready'",
        "SELECT * FROM tcl.call_result",
        "INSERT INTO tcl.outbox (tenant, aggregateid, type, fence) VALUES ('a', 'b', 'c', 1)",
        "SELECT tcl.resolve('acme', 'req_1:call_1', 1, 'ready', 'me')",
        "SELECT tcl.decide('acme', 'req_1:call_1', ''::bytea, 'me', true, '1 min')",
        "SELECT tcl.cancel('acme', 'req_1:call_1')",
        "SELECT tcl.prune()",
        "SELECT tcl.declare_timeline(true)",
        "SELECT tcl.next_fence()",
    ),
    "tcl_approver": (
        "SELECT tcl.resolve('acme', 'req_1:call_1', 1, 'ready', 'me')",
        "SELECT * FROM tcl.fetch_result('acme', 'req_1:call_1')",
        "SELECT * FROM tcl.call_guard",
    ),
    "tcl_operator": (
        "SELECT tcl.decide('acme', 'req_1:call_1', ''::bytea, 'me', true, '1 min')",
        "SELECT * FROM tcl.fetch_result('acme', 'req_1:call_1')",
        "DELETE FROM tcl.call_guard",
    ),
    "tcl_application": (
        "SELECT tcl.release('acme', 'req_1:call_1', 1, true)",
        "SELECT tcl.resolve('acme', 'req_1:call_1', 1, 'ready', 'me')",
    ),
    "tcl_reader": (
        "SELECT * FROM tcl.fetch_result('acme', 'req_1:call_1')",
        "SELECT tcl.cancel('acme', 'req_1:call_1')",
        "SELECT * FROM tcl.call_history",
    ),
}


@pytest.mark.parametrize(
    ("role", "statement"), [(r, s) for r, statements in FORBIDDEN.items() for s in statements]
)
def test_a_duty_cannot_do_what_is_another_duty(
    migrated: str, role: str, statement: LiteralString
) -> None:
    """Neither a table nor a function of somebody else."""
    with psycopg.connect(migrated) as connection:
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement)


def test_no_function_is_open_to_everybody_and_all_are_pinned(migrated: str) -> None:
    """PUBLIC may call nothing; every function has a fixed search path and belongs to the owner."""
    with psycopg.connect(migrated) as connection:
        found = connection.execute(
            "SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'tcl' AND (has_function_privilege('public', p.oid, 'EXECUTE')"
            " OR NOT coalesce(p.proconfig::text LIKE '%search_path=pg_catalog, pg_temp%', false)"
            " OR p.proowner <> 'tcl_owner'::regrole)"
        ).fetchall()
        assert found == []
        logins = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'tcl\\_%' AND rolcanlogin"
        ).fetchall()
        assert logins == []


def test_every_update_of_the_guard_is_hot(migrated: str) -> None:
    """No index holds a column that changes."""
    with psycopg.connect(migrated, autocommit=True) as connection:
        for statement in CYCLE:
            connection.execute(statement)
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'call_guard'"
        ).fetchone()
        assert row == (2, 2)


def test_sql_and_python_agree_which_key_comes_next(migrated: str) -> None:
    """One table, two languages."""
    words = (*get_args(CallState), *get_args(VerdictKind))
    with psycopg.connect(migrated) as connection:
        for word in words:
            row = connection.execute("SELECT tcl.next_key(%s)", (word,)).fetchone()
            assert row == (next_key(word),)


def test_claim_insists_on_read_committed(migrated: str) -> None:
    """Any other level would raise instead of answering, now and then."""
    with psycopg.connect(migrated) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with pytest.raises(psycopg.Error) as refused:
            connection.execute(CYCLE[0])
        assert refused.value.sqlstate == "TC002"
