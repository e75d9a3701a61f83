"""Two versions of the executor at once, before and after the `pre` migrations of the newer one."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import psycopg
import pytest

from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir
from tests.integration import rolling_child

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def git(*arguments: str) -> bytes | None:
    """What git prints, or None where there is no history."""
    program = shutil.which("git")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-c", f"safe.directory={ROOT}", *arguments],
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


@pytest.fixture
def previous(tmp_path: Path) -> Path:
    """The package as it was before the newest migration was added."""
    newest = read_migrations(migrations_dir())[-1].name
    added = git("log", "--diff-filter=A", "--format=%H", "-1", "--", f"migrations/{newest}")
    commit = added.decode().strip() if added else ""
    archive = git("archive", f"{commit}^" if commit else "HEAD", "processor", "migrations")
    if archive is None:
        pytest.skip("no history of an earlier version here")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(tmp_path, filter="data")
    return tmp_path


def start(folder: Path, database: str, name: str) -> subprocess.Popen[str]:
    """An executor of the version in `folder`."""
    return subprocess.Popen(
        [sys.executable, rolling_child.__file__, database, name, str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def work_off(half: str, *executors: subprocess.Popen[str]) -> None:
    """Let all of them run at the same keys, and wait for all."""
    for executor in executors:
        assert executor.stdin
        executor.stdin.write(f"{half}\n")
        executor.stdin.flush()
    for executor in executors:
        assert executor.stdout
        assert executor.stdout.readline() == "done\n"


def test_old_and_new_executors_share_the_calls_without_a_double_effect(
    database: str, previous: Path
) -> None:
    """The old version works before and after the migration, beside the new one."""
    old_files = read_migrations(previous / "migrations")
    migrate(database, old_files, phase="all")
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE effect (key text, by_version text)")
        with start(previous, database, "old") as old:
            work_off("1", old)
            applied = migrate(database, read_migrations(migrations_dir()), phase="pre")
            assert applied
            with start(ROOT, database, "new") as new:
                work_off("2 both", old, new)
                for executor in (old, new):
                    assert executor.stdin
                    executor.stdin.close()
                    assert executor.wait(30) == 0
        rows = connection.execute("SELECT count(*), count(DISTINCT key) FROM effect").fetchall()
        everything = 2 * len(rolling_child.CLASSES) * rolling_child.KEYS_PER_HALF
        assert rows == [(everything, everything)]
        both = connection.execute(
            "SELECT count(DISTINCT by_version) FROM effect WHERE key LIKE '%\\_2\\_%'"
        ).fetchone()
        assert both == (2,)
        states = connection.execute("SELECT DISTINCT state::text FROM tcl.call_guard").fetchall()
        assert states == [("succeeded",)]


#: What an executor of the first release calls: name and parameters, as it writes them.
FIRST_RELEASE = (
    "claim(text, text, text, text, text, tcl.effect_class, bytea, text, interval, timestamptz,"
    " timestamptz, integer, text, integer, bigint)",
    "claim_of(text, text, text)",
    "begin_effect(text, text, bigint, interval, text, text, boolean, interval)",
    "renew(text, text, bigint, interval)",
    "finish(text, text, bigint, tcl.call_state, bytea, text, bytea, text, jsonb)",
    "release(text, text, bigint, boolean, text, interval)",
    "hold(text, text, bigint, text, text)",
    "sweep(integer)",
    "redrive(text, text[], integer, interval)",
    "fetch_result(text, text)",
    "decide(text, text, bytea, text, boolean, interval)",
    "cancel(text, text, text)",
    "resolve(text, text, bigint, tcl.call_state, text, bytea, text)",
    "prune(interval, integer)",
    "declare_timeline(boolean, timestamptz)",
    "show_call(text, text)",
    "history(text, text)",
    "list_calls(tcl.call_state, text, integer)",
    "waiting()",
)


def test_no_pre_migration_takes_a_function_from_a_running_version(database: str) -> None:
    """Replaced, yes; renamed, dropped or with other parameters only in a `post` file."""
    pre = [m for m in read_migrations(migrations_dir()) if m.phase == "pre"]
    migrate(database, pre, phase="pre")
    with psycopg.connect(database) as connection:
        for function in FIRST_RELEASE:
            row = connection.execute(
                "SELECT to_regprocedure(%s) IS NOT NULL", (f"tcl.{function}",)
            ).fetchone()
            assert row == (True,), function
