"""Many seeds on several workers, and what they came to in one table."""

import json
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

Line = dict[str, Any]


@dataclass
class Summary:
    """Totals over all runs so far."""

    runs: int = 0
    events: int = 0
    outputs: int = 0
    kills: int = 0
    lost: int = 0
    doubled: int = 0
    invented: int = 0
    failed: list[Line] = field(default_factory=list[Line])
    restores_s: list[float] = field(default_factory=list[float])
    kinds: Counter[str] = field(default_factory=Counter[str])
    endings: Counter[str] = field(default_factory=Counter[str])
    seconds: float = 0.0

    def add(self, line: Line) -> None:
        """Count one run."""
        self.runs += 1
        for name in ("events", "outputs", "kills", "lost", "doubled", "invented"):
            setattr(self, name, getattr(self, name) + line[name])
        if line["failure"]:
            self.failed.append(line)
        self.restores_s += line["restores_s"]
        self.kinds.update(fault.partition("@")[0] for fault in line["faults"])
        self.endings.update(line["endings"])
        self.seconds += line["seconds"]

    def restore_s(self, share: float) -> float:
        """A quantile of the restores, in seconds; 0 when there was none."""
        ordered = sorted(self.restores_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def rows(self) -> Iterator[tuple[str, str]]:
        """The table, row by row."""
        yield "runs", f"{self.runs:,}"
        yield "events", f"{self.events:,}"
        yield "outputs", f"{self.outputs:,}"
        yield "faults", f"{sum(self.kinds.values()):,} of {len(self.kinds)} kinds"
        yield "kills", f"{self.kills:,}"
        yield "lost", f"{self.lost:,}"
        yield "doubled", f"{self.doubled:,}"
        yield "invented", f"{self.invented:,}"
        yield "restores", f"{len(self.restores_s):,}"
        yield "restore p50", f"{self.restore_s(0.50):.2f} s"
        yield "restore p99", f"{self.restore_s(0.99):.2f} s"
        yield "failed runs", f"{len(self.failed):,}"

    def as_json(self) -> Line:
        """The same for a machine."""
        return {
            "runs": self.runs,
            "events": self.events,
            "outputs": self.outputs,
            "kills": self.kills,
            "lost": self.lost,
            "doubled": self.doubled,
            "invented": self.invented,
            "restores": len(self.restores_s),
            "restore_p50_s": round(self.restore_s(0.50), 3),
            "restore_p99_s": round(self.restore_s(0.99), 3),
            "run_mean_s": round(self.seconds / max(1, self.runs), 2),
            "kinds": dict(self.kinds.most_common()),
            "exit_codes": dict(self.endings.most_common()),
            "failed": self.failed,
        }


def soak(
    seeds: Iterator[int],
    *,
    workers: int,
    calls: int,
    seconds: float,
    minutes: float | None,
    note: Callable[[Line, Summary], None],
) -> Summary:
    """Play seeds until they or the minutes are used up. A worker that dies is a failed run."""
    summary, said = Summary(), queue.Queue[Line | None]()
    deadline_s = None if minutes is None else time.monotonic() + minutes * 60
    lock = threading.Lock()

    def next_seed() -> int | None:
        with lock:
            late = deadline_s is not None and time.monotonic() >= deadline_s
            return None if late else next(seeds, None)

    for _ in range(workers):
        threading.Thread(target=_drive, args=(next_seed, said, calls, seconds), daemon=True).start()
    running = workers
    while running:
        line = said.get()
        if line is None:
            running -= 1
            continue
        summary.add(line)
        note(line, summary)
    return summary


def _drive(
    next_seed: Callable[[], int | None],
    said: "queue.Queue[Line | None]",
    calls: int,
    seconds: float,
) -> None:
    """Feed one worker seed by seed; each waits for the one before."""
    command = [sys.executable, "-m", "tests.faults.worker"]
    command += ["--calls", str(calls), "--seconds", str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        given, heard = cast("IO[str]", worker.stdin), cast("IO[str]", worker.stdout)
        while (seed := next_seed()) is not None:
            given.write(f"{seed}\n")
            given.flush()
            line = heard.readline()
            said.put(json.loads(line) if line else _died(seed))
            if not line:
                break
        given.close()
    said.put(None)


def _died(seed: int) -> Line:
    numbers = dict.fromkeys(("events", "outputs", "kills", "lost", "doubled", "invented"), 0)
    return {
        "seed": seed,
        "faults": [],
        "failure": "the worker died",
        "restores_s": [],
        "endings": {},
        "seconds": 0.0,
        **numbers,
    }
