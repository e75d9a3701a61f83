"""Processes that outlive the command that started them, and how they are found and ended.

Rules:
    A pid alone names nobody: it is used only together with the boot id of the machine and the
    start time of the process, so a reused pid is never signalled.
    A part is also found by the path of its own folder, which its command line holds; so a start
    that was killed before it could write its state leaves nothing that is out of reach.
    Linux only: the facts come from /proc.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from processor.core._record import record
from processor.devstack.waiting import wait_until

_PROC = Path("/proc")


@record
class Process:
    """One process that ran or runs; `born` is `boot id:start time in ticks`."""

    pid: int
    born: str

    def is_alive(self) -> bool:
        """True while this very process runs; a zombie counts as ended."""
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(self.pid, os.WNOHANG)
        return born(self.pid) == self.born

    def since_ms(self) -> int | None:
        """When it started, epoch milliseconds; None when it has ended."""
        if not self.is_alive():
            return None
        ticks = int(self.born.rsplit(":", 1)[1])
        return (_boot_time_s() * 1000) + ticks * 1000 // os.sysconf("SC_CLK_TCK")

    def signal(self, number: signal.Signals) -> None:
        """Signal it if it is still the same process."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


def spawn(
    command: Sequence[str],
    log: Path,
    *,
    run_as: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Start a detached process: own session, no terminal, an environment of its own, `log` appended.

    Raises: OSError when the program cannot be executed.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd="/",
            env=bare_environment(environment),
            start_new_session=True,
            **(run_as or {}),  # type: ignore[call-overload]  # user, group, extra_groups
        )
    finally:
        os.close(descriptor)
    # It outlives this program on purpose; Popen would warn about that when collected.
    child.returncode = 0
    return Process(child.pid, born(child.pid) or "ended")


def bare_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment without the caller's secrets and settings."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8", **(more or {})}


def born(pid: int) -> str | None:
    """The identity of a running process, None for one that ended (or waits to be collected).

    The first thread of a killed JVM is a zombie while others still hold its sockets: it has ended
    only when no other thread is left.
    """
    fields = _stat(pid)
    if not fields or (fields[0] in ("Z", "X") and int(fields[17]) <= 1):
        return None
    return f"{_boot_id()}:{fields[19]}"


def find(folder: Path, owners: Iterable[int]) -> list[Process]:
    """Running processes of these user ids that belong to `folder`, without their children.

    They name it, or a path below it, on their command line, or work in it: what a killed Postgres
    leaves behind has no command line of its own.
    """
    allowed = set(owners)
    found: dict[int, Process] = {}
    for pid in _pids():
        with contextlib.suppress(OSError):
            if (_PROC / str(pid)).stat().st_uid not in allowed or not _belongs(pid, folder):
                continue
            identity = born(pid)
            if identity and pid != os.getpid():
                found[pid] = Process(pid, identity)
    return [process for process in found.values() if _parent(process.pid) not in found]


def _belongs(pid: int, folder: Path) -> bool:
    exact, below = os.fsencode(folder), os.fsencode(folder) + b"/"
    arguments = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[1:]
    named = [*arguments, os.fsencode(os.readlink(_PROC / str(pid) / "cwd"))]
    return any(name == exact or name.startswith(below) for name in named)


def with_descendants(processes: Iterable[Process]) -> list[Process]:
    """These processes and everything they started, as far as it still runs."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        children.setdefault(_parent(pid), []).append(pid)
    family = {process.pid: process for process in processes}
    queue = list(family)
    while queue:
        for pid in children.get(queue.pop(), []):
            identity = born(pid)
            if identity and pid not in family:
                family[pid] = Process(pid, identity)
                queue.append(pid)
    return list(family.values())


def end(processes: Sequence[tuple[Process, signal.Signals]], timeout_s: float) -> None:
    """Ask each process to stop by its signal, wait, then kill them and all they started."""
    family = with_descendants(process for process, _ in processes)
    for process, polite in processes:
        process.signal(polite)
        process.signal(signal.SIGCONT)  # a frozen process would not hear the first one
    if wait_until(lambda: not any(p.is_alive() for p in family), timeout_s):
        return
    for process in with_descendants(family):
        process.signal(signal.SIGKILL)
    wait_until(lambda: not any(p.is_alive() for p in family), timeout_s)


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name (which may hold spaces): state first."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _boot_id() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _boot_time_s() -> int:
    for line in (_PROC / "stat").read_text().splitlines():
        if line.startswith("btime "):
            return int(line.split()[1])
    return 0
