"""The committer on a simulated thread: the same phases, one turn at a time."""

from collections.abc import Callable

from processor.core.errors import InvariantViolated
from processor.runtime.committer import REDO_PAUSE_S, Committer, Transaction
from processor.runtime.crash_points import CrashPoint
from processor.runtime.errors import CommitRefused
from processor.runtime.kafka import Producer
from processor.testing.process import SimulatedProcess

#: Longest wait before a waiting loop looks whether the commit takes too long.
_LOOK_MS = 500


class SimulatedCommitter(Committer):
    """Runs the real commit beside the loop, on a thread of `process`."""

    def __init__(
        self,
        process: SimulatedProcess,
        producer: Producer,
        crash_point: CrashPoint,
        *,
        timeout_s: float,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(producer, crash_point, timeout_s=timeout_s, clock=clock)
        self._process = process

    def start(self) -> None:
        """Fence the slot's earlier process, beside the loop."""
        self._process.scheduler.spawn(self._process, self._fence_first)

    def _fence_first(self) -> None:
        self._failure = self._fence()

    def submit(self, transaction: Transaction) -> None:
        """Hand over the next transaction; waits until the one in flight has committed."""
        if not transaction.offsets:
            raise InvariantViolated("a transaction without an owned offset is not fenced")
        self.wait()
        self._take(transaction)
        self._process.scheduler.spawn(self._process, lambda: self._commit_given(transaction))

    def _commit_given(self, transaction: Transaction) -> None:
        while not self._is_fenced:
            if self._failure is not None:
                return
            self._process.wait(lambda: self._is_fenced or self._failure is not None, _LOOK_MS)
        self._failure = self._commit_or_failure(transaction)
        if self._failure is None:
            self._given = None
            self.committed_count += 1

    def _ask_again(self) -> None:
        self._process.wait(lambda: False, int(REDO_PAUSE_S * 1000))
        self._is_asking = True
        if not self._process.wait(lambda: not self._is_asking, int(self._timeout_s * 1000)):
            raise CommitRefused("commit: a new generation began, and the loop did not go on")

    def wait(self) -> None:
        """Wait until nothing is in flight. Raises: what ended the transaction."""
        while True:
            self._process.wait(self._is_answered, _LOOK_MS)
            self.check()
            if not self.busy:
                return

    def _is_answered(self) -> bool:
        return not self.busy or self._failure is not None or self._is_asking

    def stop(self) -> None:
        """Wait for the transaction in flight, as a process does that joins its thread."""
        if not self._process.dead:
            limit_ms = int(self._timeout_s * 1000)
            self._process.wait(lambda: not self.busy or self._failure is not None, limit_ms)
