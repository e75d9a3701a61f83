"""What the two parts have in common: one server process with a log, started and awaited."""

import os
from pathlib import Path
from typing import Protocol

from processor.devstack.errors import AddressTaken, DevStackFailed
from processor.devstack.processes import Process
from processor.devstack.waiting import wait_until

READY_TIMEOUT_S = 60.0
LOG_LINES = 15
_LOG_BYTES = 16_384
_TAKEN = ("Address already in use", "could not bind", "BindException")


class Part(Protocol):
    """A server of the stack; one instance per start."""

    @property
    def title(self) -> str:
        """Its name for people."""
        ...

    @property
    def log(self) -> Path:
        """Where the server writes what it has to say."""
        ...

    def answers(self) -> bool:
        """True when it takes requests."""
        ...


def log_size(log: Path) -> int:
    """Bytes in the log before a start: what comes later belongs to that start."""
    return log.stat().st_size if log.exists() else 0


def await_ready(part: Part, process: Process, log_offset: int) -> None:
    """Wait until the part answers.

    Raises: `AddressTaken` when its port was taken, `DevStackFailed` with the end of its log when it
        died, or when it does not answer in `READY_TIMEOUT_S`.
    """
    alive = [True]

    def settled() -> bool:
        alive[0] = process.is_alive()
        return not alive[0] or part.answers()

    if not wait_until(settled, READY_TIMEOUT_S):
        raise DevStackFailed(
            f"{part.title} (pid {process.pid}) does not answer after {READY_TIMEOUT_S:.0f} s: see"
            f" {part.log}; `toolcalls dev down` ends it"
        )
    if not alive[0]:
        raise died(part, log_offset)


def died(part: Part, log_offset: int) -> DevStackFailed:
    """The error for a part that ended by itself, with the end of its log."""
    tail = log_tail(part.log, log_offset)
    if any(sign in tail for sign in _TAKEN):
        return AddressTaken(f"{part.title}: its port was taken by another process: {part.log}")
    return DevStackFailed(f"{part.title} died while starting; the end of {part.log}:\n{tail}")


def log_tail(log: Path, offset: int = 0) -> str:
    """The last lines of a log, at most `LOG_LINES`, read from the end."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - _LOG_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.strip().splitlines()[-LOG_LINES:]) or "(the log is empty)"
