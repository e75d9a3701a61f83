"""A database address that cannot be read: one line, status 2, and nothing of it repeated."""

import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from processor.cli.exit_codes import ExitCode

pytestmark = [pytest.mark.integration, pytest.mark.faults]

ROOT = Path(__file__).parents[2]
SECRET = "CANARY-9b2e"
TOOLS = """
from processor.executor import tool
@tool()
def good(order: str): return 1
"""


@pytest.mark.parametrize("verb", ["execute", "ledger", "migrate"])
@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:pa%{SECRET}@127.0.0.1:5432/ledger",
        f"{SECRET} no address",
        f"postgresql://user:pa@{SECRET}@127.0.0.1:5432/ledger",
        f"postgresql://user:12/{SECRET}@127.0.0.1:5432/ledger",
        f"postgresql://user:{SECRET}/more@127.0.0.1:5432/ledger",
    ],
    ids=["percent", "no-address", "at-sign", "slash-after-digits", "slash"],
)
def test_an_unreadable_database_url_is_refused_without_its_text(
    tmp_path: Path, address: str, verb: str
) -> None:
    """The driver's messages and its pool's log quote the password."""
    status, said = run_with(tmp_path, address, verb)
    assert SECRET not in said
    assert status == ExitCode.USAGE
    assert len(said.splitlines()) == 1


def test_a_missing_database_and_a_missing_schema_are_named(database: str, tmp_path: Path) -> None:
    """One line each: what is not there, and what to do."""
    missing = f"{database}_not_there"
    for verb in ("execute", "ledger", "migrate"):
        status, said = run_with(tmp_path, missing, verb)
        assert (status, len(said.splitlines())) == (ExitCode.USAGE, 1)
        assert f"there is no database {urlsplit(missing).path[1:]} at " in said
    status, said = run_with(tmp_path, database, "ledger")
    assert (status, len(said.splitlines())) == (ExitCode.USAGE, 1)
    assert "run `toolcalls migrate`" in said


def test_an_address_where_nobody_is_names_host_and_port(tmp_path: Path) -> None:
    """The password is not part of it."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    status, said = run_with(tmp_path, f"postgresql://u:{SECRET}@127.0.0.1:{port}/x", "migrate")
    assert status == ExitCode.UNREACHABLE
    assert SECRET not in said
    assert f"127.0.0.1:{port}" in said
    assert len(said.splitlines()) == 1


def test_a_role_without_rights_may_not_migrate_and_is_told_so(
    database: str, tmp_path: Path
) -> None:
    """One sentence instead of the statement that was refused."""
    role = f"nobody_{secrets.token_hex(4)}"
    with psycopg.connect(database, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'".encode())
        try:
            parts = urlsplit(database)
            place = parts.netloc.rpartition("@")[2]
            url = urlunsplit(parts._replace(netloc=f"{role}:{role}@{place}"))
            status, said = run_with(tmp_path, url, "migrate")
        finally:
            owner.execute(f"DROP ROLE {role}".encode())
    assert status == ExitCode.USAGE
    assert "this role may not migrate: use the database's owner" in said
    assert len(said.splitlines()) == 1


def run_with(folder: Path, address: str, verb: str) -> tuple[int, str]:
    """Run a verb with this database address; its status and what it said."""
    tools = folder / "my_tools.py"
    tools.write_text(TOOLS)
    arguments = {
        "execute": ["execute", "--tools", str(tools)],
        "ledger": ["ledger", "list"],
        "migrate": ["migrate"],
    }
    ran = subprocess.run(
        [sys.executable, "-m", "processor.cli.main", *arguments[verb]],
        cwd=ROOT,
        env={
            **os.environ,
            "TOOLCALLS_KAFKA_BOOTSTRAP": "127.0.0.1:1",
            "TOOLCALLS_DATABASE_URL": address,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr
