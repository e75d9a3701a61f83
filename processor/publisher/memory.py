"""A sink in memory: for tests of applications, with the queue's bound and failures at will."""

from collections import deque
from collections.abc import Callable

from processor.core.errors import Misuse
from processor.publisher.errors import SinkRefused
from processor.publisher.ports import OutRecord, Report


class MemorySink:
    """An `EventSink` that keeps what it is given; nothing is delivered before it is asked to be.

    `records` are all records taken, in order. `capacity` bounds those not reported yet; `on_wait`
    is called when a publisher waits for room, and may make some with `deliver`.

    Raises: `Misuse` for a capacity below 1.
    """

    def __init__(
        self, capacity: int = 1_000_000, on_wait: Callable[["MemorySink"], None] | None = None
    ) -> None:
        if capacity < 1:
            raise Misuse(f"capacity must be at least 1, not {capacity}")
        self.records: list[OutRecord] = []
        self.closed = False
        self.refuse_code: str | None = None
        self._capacity = capacity
        self._on_wait = on_wait
        self._open: deque[tuple[OutRecord, Report]] = deque()
        self._late: deque[OutRecord] = deque()

    def offer(self, record: OutRecord, report: Report) -> bool:
        """Take `record` while there is room. Raises: `SinkRefused` when closed or told to refuse."""
        if self.closed or self.refuse_code is not None:
            raise SinkRefused(self.refuse_code or "closed")
        if len(self._open) >= self._capacity:
            return False
        self.records.append(record)
        self._open.append((record, report))
        return True

    def offer_late(self, record: OutRecord) -> None:
        """Keep `record` until there is room."""
        if not self.closed:
            self._late.append(record)
            self._send_late()

    def wait_for_room(self, timeout_s: float) -> None:
        """Ask `on_wait`; real time does not pass here."""
        del timeout_s
        if self._on_wait is not None:
            self._on_wait(self)

    def deliver(self, count: int | None = None, *, error: str | None = None) -> None:
        """Report the oldest `count` records (all by default) as delivered, or as failed."""
        left = len(self._open) if count is None else min(count, len(self._open))
        for _ in range(left):
            record, report = self._open.popleft()
            report(record, error)
        self._send_late()

    def flush(self, timeout_s: float) -> int:
        """Deliver everything."""
        del timeout_s
        while self._open or self._late:
            self.deliver()
        return 0

    def close(self, timeout_s: float) -> int:
        """Deliver everything and stop."""
        left = self.flush(timeout_s)
        self.closed = True
        return left

    def _send_late(self) -> None:
        while self._late and len(self._open) < self._capacity:
            record = self._late.popleft()
            self.records.append(record)
            self._open.append((record, _no_report))


def _no_report(_record: OutRecord, _error: str | None) -> None:
    return None
