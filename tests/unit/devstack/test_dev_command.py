"""`toolcalls dev` as people and machines see it; external parts stand in for running ones."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from processor.cli.exit_codes import ExitCode

COMMAND = [sys.executable, "-m", "processor.cli.main"]


def toolcalls(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program; its output is a pipe."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


@pytest.fixture
def external() -> Iterator[dict[str, str]]:
    """The variables of two external parts that accept connections."""
    with (
        socket.create_server(("127.0.0.1", 0)) as one,
        socket.create_server(("127.0.0.1", 0)) as two,
    ):
        yield {
            "TOOLCALLS_KAFKA_BOOTSTRAP": f"127.0.0.1:{one.getsockname()[1]}",
            "TOOLCALLS_DATABASE_URL": f"postgresql://u:p@127.0.0.1:{two.getsockname()[1]}/x",
        }


def test_up_with_external_parts_starts_nothing(tmp_path: Path, external: dict[str, str]) -> None:
    """They are reached, shown as they are, and no directory is made."""
    done = toolcalls("dev", "up", "--dir", str(tmp_path / "dev"), **external)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"export {k}={v}\n" for k, v in external.items())
    assert not (tmp_path / "dev").exists()


def test_status_for_machines_is_one_json_document(tmp_path: Path, external: dict[str, str]) -> None:
    """Parts in a fixed order, states from the closed list, addresses when usable."""
    done = toolcalls("dev", "status", "--json", "--dir", str(tmp_path / "dev"), **external)
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert [(p["name"], p["state"]) for p in found["parts"]] == [
        ("kafka", "external"),
        ("postgres", "external"),
    ]
    assert found["endpoints"]["kafka_bootstrap"] == external["TOOLCALLS_KAFKA_BOOTSTRAP"]


def test_status_of_nothing_exits_1_with_plain_lines(tmp_path: Path) -> None:
    """A pipe gets tab-parted lines without colour; the status says that a part does not run."""
    done = toolcalls("dev", "status", "--dir", str(tmp_path / "dev"))
    assert done.returncode == ExitCode.CHECK_FAILED
    assert [line.split("\t")[:2] for line in done.stdout.splitlines()] == [
        ["kafka", "stopped"],
        ["postgres", "stopped"],
    ]
    assert "\x1b" not in done.stdout


def test_down_of_nothing_is_fine(tmp_path: Path) -> None:
    """The wish is already true."""
    done = toolcalls("dev", "down", "--json", "--dir", str(tmp_path / "dev"))
    assert (done.returncode, json.loads(done.stdout)["stack_found"]) == (0, False)


def test_a_users_mistake_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    """A directory of something else: status 2, one line on standard error."""
    (tmp_path / "mine").write_text("x")
    done = toolcalls("dev", "up", "--dir", str(tmp_path))
    assert done.returncode == ExitCode.USAGE
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"toolcalls: {tmp_path} is not empty")


def test_an_external_part_that_is_away_exits_4(tmp_path: Path) -> None:
    """Named by its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    done = toolcalls("dev", "up", "--dir", str(tmp_path), TOOLCALLS_KAFKA_BOOTSTRAP=address)
    assert done.returncode == ExitCode.UNREACHABLE
    assert address in done.stderr


def test_help_has_an_example_and_the_exit_codes() -> None:
    """Every verb of the dev stack, and the program itself."""
    for arguments in ([], ["dev", "up"], ["dev", "down"], ["dev", "status"]):
        text = toolcalls(*arguments, "--help").stdout
        assert "Example: " in text
        assert "Exit codes: " in text
