"""Assembler processes under a supervisor, as in production: what ends by itself is started again.

Rules:
    A status that asks for a restart is obeyed at once; one that does not is a failure of the run.
    A slot that was taken away on purpose stays away until it is given back.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

from processor.cli.exit_codes import ExitCode
from tests.integration.assembler_rig import Rig

#: Statuses after which the README says: restart.
RESTARTED: Final = frozenset(
    {
        ExitCode.UNREACHABLE,
        ExitCode.FENCED,
        ExitCode.CLIENT_FATAL,
        ExitCode.COMMIT_UNKNOWN,
        ExitCode.COMMIT_REFUSED,
    }
)
_END_S: Final = 60.0


class Slot:
    """One slot of the group: at most one wanted process, and what became of the earlier ones."""

    def __init__(self, name: str, log_folder: Path) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.wanted = True
        self.frozen = False
        #: It was asked to stop.
        self.asked = False
        self.logs: list[Path] = []
        self._folder = log_folder

    def next_log(self) -> Path:
        """Where its next process writes."""
        self.logs.append(self._folder / f"slot{self.name}-{len(self.logs)}.log")
        return self.logs[-1]

    @property
    def alive(self) -> bool:
        """True while its process runs, frozen or not."""
        return self.process is not None and self.process.poll() is None


class Host:
    """The processes of one group on one rig."""

    def __init__(
        self,
        rig: Rig,
        bootstrap: str,
        slots: int,
        *,
        session_s: float,
        checkpoint_after_ms: int = 1,
    ) -> None:
        self._rig = rig
        self._bootstrap = bootstrap
        self._checkpoint_after_ms = checkpoint_after_ms
        #: Seconds after which a silent process has lost its partitions; a transaction has less.
        self.session_s = session_s
        self._folder = Path(tempfile.mkdtemp(prefix="faults-host-"))
        self.slots = [Slot(str(number), self._folder) for number in range(slots)]
        self._rogues: list[subprocess.Popen[bytes]] = []
        #: Crash points for the next start of a slot, by its name.
        self.crash_next: dict[str, str] = {}
        self.kills = 0
        self.endings: Counter[int] = Counter()

    # --- supervision ----------------------------------------------------------------------------

    def supervise(self) -> None:
        """Start what is wanted and not there. Fails for a status that no restart mends."""
        for slot in self.slots:
            if slot.alive:
                continue
            self._note_end(slot)
            if slot.wanted:
                slot.asked = False
                slot.process = self._start(slot.name, slot.next_log())
        for rogue in self._rogues:
            code = rogue.poll()
            assert code is None or code in {0, -signal.SIGKILL, *RESTARTED}, f"twin ended {code}"

    def _note_end(self, slot: Slot) -> None:
        if slot.process is None:
            return
        code = slot.process.returncode
        slot.process = None
        self.endings[code] += 1
        if code == -signal.SIGKILL:
            self.kills += 1
        elif code == -signal.SIGTERM and slot.asked:
            pass  # asked to stop while the interpreter was starting, or ending by itself
        elif code != 0 and code not in RESTARTED:
            raise AssertionError(
                f"slot {slot.name} ended with {code}:\n{slot.logs[-1].read_text()[-2000:]}"
            )

    def _start(self, name: str, log_path: Path) -> subprocess.Popen[bytes]:
        given = {
            "KAFKA_BOOTSTRAP": self._bootstrap,
            "TOPIC_PREFIX": self._rig.prefix,
            "GROUP": self._rig.group,
            "SLOT": name,
            "START": "earliest",
            "COMMIT_INTERVAL_MS": "20",
            "TRANSACTION_TIMEOUT_MS": str(int(self.session_s * 1000 * 2 / 3)),
            "SESSION_TIMEOUT_MS": str(int(self.session_s * 1000)),
            "CHECKPOINT_AFTER_MS": str(self._checkpoint_after_ms),
        }
        crash_at = self.crash_next.pop(name, None)
        if crash_at is not None:
            given |= {"CRASH_AT": crash_at, "ALLOW_CRASH_POINTS": "1"}
        with log_path.open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "processor.cli.main", "run"],
                env={**os.environ, **{f"TOOLCALLS_{key}": value for key, value in given.items()}},
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    # --- acts -----------------------------------------------------------------------------------

    def kill(self, slot: Slot) -> None:
        """SIGKILL; the supervisor starts it again."""
        if slot.process is not None and slot.alive:
            slot.process.kill()
            slot.process.wait(_END_S)
            slot.frozen = False

    def freeze(self, slot: Slot) -> None:
        """SIGSTOP."""
        if slot.process is not None and slot.alive:
            slot.process.send_signal(signal.SIGSTOP)
            slot.frozen = True

    def thaw(self, slot: Slot) -> None:
        """SIGCONT."""
        slot.frozen = False
        if slot.process is not None and slot.alive:
            slot.process.send_signal(signal.SIGCONT)

    def ask_to_stop(self, slot: Slot) -> None:
        """SIGTERM; the supervisor starts it again when it is wanted."""
        if slot.process is not None and slot.alive:
            slot.asked = True
            slot.process.send_signal(signal.SIGTERM)

    def start_twin(self, slot: Slot) -> subprocess.Popen[bytes]:
        """A second process in the same slot, which nobody supervises."""
        path = self._folder / f"twin{len(self._rogues)}.log"
        self._rogues.append(self._start(slot.name, path))
        return self._rogues[-1]

    def add_slot(self) -> Slot:
        """One more slot, started at the next look."""
        self.slots.append(Slot(str(len(self.slots)), self._folder))
        return self.slots[-1]

    # --- the end --------------------------------------------------------------------------------

    def settle(self, done: Callable[[], bool], timeout_s: float = 120.0) -> None:
        """Supervise until `done`. Fails with the end of every log when it does not come true."""
        deadline_s = time.monotonic() + timeout_s
        while not done():
            self.supervise()
            if time.monotonic() > deadline_s:
                raise AssertionError(f"stuck: not done within {timeout_s:.0f} s\n{self.tails()}")

    def stop_all(self) -> None:
        """SIGTERM for everybody; each must end with 0 or ask for a restart."""
        for slot in self.slots:
            self.thaw(slot)
            self.ask_to_stop(slot)
        for rogue in self._rogues:
            rogue.send_signal(signal.SIGCONT)
            rogue.terminate()
        for slot in self.slots:
            if slot.process is not None:
                slot.process.wait(_END_S)
                self._note_end(slot)
        for rogue in self._rogues:
            rogue.wait(_END_S)

    def kill_all(self) -> None:
        """End what a failed run left behind."""
        for process in [*self._rogues, *(s.process for s in self.slots if s.process is not None)]:
            if process.poll() is None:
                process.kill()
                process.wait(_END_S)

    def tails(self) -> str:
        """The last lines of each slot's last log."""
        return "\n".join(
            f"--- slot {slot.name}\n{slot.logs[-1].read_text()[-1500:]}"
            for slot in self.slots
            if slot.logs
        )

    def restores_s(self) -> list[float]:
        """Seconds between taking a partition over and having re-folded it, for every restore."""
        return [
            seconds for slot in self.slots for path in slot.logs for seconds in _restores_of(path)
        ]


def _restores_of(path: Path) -> Iterator[float]:
    since: dict[int, datetime] = {}
    for line in path.read_text(errors="replace").splitlines():
        if not line.startswith("{"):
            continue
        try:
            said = json.loads(line)
        except ValueError:
            continue  # the last line of a killed process may be cut
        event, partition = said.get("event"), said.get("partition")
        if event == "partition_assigned" and said["low_offset"] < said["committed_offset"]:
            since[partition] = datetime.fromisoformat(said["timestamp"])
        elif event == "partition_restored" and partition in since:
            began = since.pop(partition)
            yield (datetime.fromisoformat(said["timestamp"]) - began).total_seconds()
