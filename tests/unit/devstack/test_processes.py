"""Processes that outlive their starter: identity, discovery, end."""

import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from processor.devstack.processes import Process, born, end, find, spawn, with_descendants
from processor.devstack.waiting import wait_until

WAIT_FOR_INPUT = "import sys; print('here', flush=True); sys.stdin.read()"
STUBBORN = (
    "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    " print('here', flush=True); signal.pause()"
)


@contextmanager
def child(code: str, *arguments: str, cwd: Path | None = None) -> Generator[Process]:
    """A running Python child that has said it is there."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=cwd,
    ) as running:
        try:
            assert running.stdout
            assert running.stdout.readline() == b"here\n"
            yield Process(running.pid, born(running.pid) or "")
        finally:
            running.kill()


def test_a_reused_pid_is_not_the_recorded_process() -> None:
    """A pid with another start time is taken for ended and never signalled."""
    with child(WAIT_FOR_INPUT) as process:
        other = Process(process.pid, "another-boot:1")
        other.signal(signal.SIGKILL)
        assert not other.is_alive()
        assert other.since_ms() is None
        assert process.is_alive()


def test_an_uncollected_process_counts_as_ended() -> None:
    """A zombie does not run; its identity is gone."""
    with child(WAIT_FOR_INPUT) as process:
        process.signal(signal.SIGKILL)
        assert wait_until(lambda: born(process.pid) is None, 10)


def test_a_process_is_found_by_a_path_on_its_command_line(tmp_path: Path) -> None:
    """The folder itself or a path below it is found, a sibling with the same beginning is not."""
    with (
        child(WAIT_FOR_INPUT, str(tmp_path / "a")) as exact,
        child(WAIT_FOR_INPUT, str(tmp_path / "a" / "data")) as below,
        child(WAIT_FOR_INPUT, str(tmp_path / "ab")),
    ):
        assert _pids(find(tmp_path / "a", [_uid()])) == {exact.pid, below.pid}


def test_a_process_is_found_by_the_folder_it_works_in(tmp_path: Path) -> None:
    """What a killed server leaves behind is found although its command line names nothing."""
    with child(WAIT_FOR_INPUT, cwd=tmp_path) as process:
        assert _pids(find(tmp_path, [_uid()])) == {process.pid}


def test_processes_of_other_users_are_not_found(tmp_path: Path) -> None:
    """A command line can be forged; the owner of a process cannot."""
    with child(WAIT_FOR_INPUT, str(tmp_path)):
        assert find(tmp_path, [_uid() + 1]) == []


def test_end_kills_what_ignores_the_polite_signal() -> None:
    """After the timeout the process is killed, and gone when `end` returns."""
    with child(STUBBORN) as process:
        end([(process, signal.SIGTERM)], timeout_s=0.2)
        assert not process.is_alive()


def test_end_reaches_a_frozen_process() -> None:
    """A stopped process is woken so that it hears the signal."""
    with child(WAIT_FOR_INPUT) as process:
        process.signal(signal.SIGSTOP)
        end([(process, signal.SIGTERM)], timeout_s=30)
        assert not process.is_alive()


def test_descendants_are_part_of_the_family() -> None:
    """A child of a child is found from the top."""
    nested = (
        "import subprocess, sys;"
        f"c = subprocess.Popen([sys.executable, '-S', '-c', {WAIT_FOR_INPUT!r}],"
        " stdin=subprocess.PIPE); c.wait()"
    )
    with child(nested) as process:
        family = with_descendants([process])
        assert len(family) == 2
        end([(process, signal.SIGKILL)], timeout_s=10)
        end([(each, signal.SIGKILL) for each in family], timeout_s=10)
        assert not any(each.is_alive() for each in family)


def test_a_spawned_process_has_no_terminal_and_no_borrowed_environment(tmp_path: Path) -> None:
    """It leads its own session, sees a bare environment, and writes to its log."""
    log = tmp_path / "log"
    code = "import os, sys; print(os.getsid(0) == os.getpid(), sorted(os.environ))"
    process = spawn([sys.executable, "-S", "-E", "-c", code], log)
    assert wait_until(lambda: not process.is_alive(), 30)
    assert log.read_text() == "True ['LC_ALL', 'PATH']\n"
    assert log.stat().st_mode & 0o777 == 0o600


def _pids(processes: list[Process]) -> set[int]:
    return {process.pid for process in processes}


def _uid() -> int:
    return Path("/proc/self").stat().st_uid
