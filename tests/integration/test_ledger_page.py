"""The page for executors in other languages: every block of SQL on it works, as the executor's role."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from processor.devstack.places import postgres_programs
from processor.ledger.migrate import migrate, read_migrations
from processor.resources import migrations_dir

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[2] / "processor" / "ledger" / "README.md"
BLOCK = re.compile(r"^```sql\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ANSWER = "--> "


@pytest.fixture
def executor(database: str) -> Iterator[str]:
    """A login role that has nothing but the executor's duty, and the schema."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    name = f"executor_{urlsplit(database).path.strip('/')}"
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'synthetic'".encode())
        connection.execute(f"GRANT tcl_executor TO {name}".encode())
        try:
            yield name
        finally:
            connection.execute(f"DROP ROLE {name}".encode())


def test_the_page_s_sql_runs_as_printed(database: str, executor: str) -> None:
    """Run by psql, which stops at the first error; what it prints is what the page says it prints."""
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) > 10
    lines = [line for block in blocks for line in block.splitlines()]
    expected = [line.removeprefix(ANSWER) for line in lines if line.startswith(ANSWER)]
    script = "\n".join(line for line in lines if not line.startswith(ANSWER))
    url = urlsplit(database)
    done = subprocess.run(
        [
            *(str(postgres_programs(None) / "psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1"),
            *("-h", str(url.hostname), "-p", str(url.port), "-U", executor, url.path.strip("/")),
        ],
        input=script,
        env={**os.environ, "PGPASSWORD": "synthetic"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == expected


def test_every_function_of_the_executor_s_duty_stands_on_the_page(database: str) -> None:
    """A new function for executors is written down before anybody can miss it."""
    migrate(database, read_migrations(migrations_dir()), phase="all")
    with psycopg.connect(database) as connection:
        rows = connection.execute(
            "SELECT DISTINCT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace"
            " WHERE n.nspname = 'tcl' AND has_function_privilege('tcl_executor', p.oid, 'EXECUTE')"
            " AND NOT has_function_privilege('tcl_reader', p.oid, 'EXECUTE')"
        ).fetchall()
    page = PAGE.read_text()
    assert [name for (name,) in rows if name not in page] == []
