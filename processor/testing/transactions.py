"""The transaction coordinator: producer ids and epochs, the life of a transaction, its time limit.

Rules:
    `init` fences: it bumps the epoch and aborts what the earlier producer left open (KIP-98).
    A transaction is decided when the coordinator takes the commit; its control records follow
    later, one place at a time, and until the last is written nothing new begins for that producer.
    A transaction older than its time limit is aborted with a bump of the epoch.
    A repeated commit or abort of the same epoch gets the same answer again.
"""

from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from processor.runtime.kafka import KafkaError, KafkaException
from processor.testing.errors import Blocked, refused
from processor.testing.log import NewRecord, PartitionLog

#: How long the coordinator takes until it notices a transaction past its time limit.
SCAN_MS = 500
Place = Literal["record", "offsets"]


class Offsets(Protocol):
    """The group's side of a transaction."""

    def end_transaction(self, transaction: int, *, committed: bool) -> None:
        """Make the pending offsets of `transaction` count, or forget them."""
        ...


class Transaction:
    """One transaction of one producer: where it wrote, and how it was decided."""

    def __init__(self, number: int, begun_ms: int) -> None:
        self.number = number
        self.begun_ms = begun_ms
        self.logs: list[PartitionLog] = []
        self.groups: list[Offsets] = []
        self.committed: bool | None = None


class Producing:
    """What the coordinator knows about one transactional id."""

    def __init__(self, producer_id: int, timeout_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = -1
        self.timeout_ms = timeout_ms
        self.open: Transaction | None = None
        self.ending: Transaction | None = None
        #: Epoch and decision of the last transaction, for a repeated request.
        self.last: tuple[int, bool] | None = None


class TransactionCoordinator:
    """All transactional ids of a cluster. `delay_ms` says how late each control record is."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._by_id: dict[str, Producing] = {}
        self._numbers = 0
        #: Control records to write: when, which transaction, where.
        self._markers: list[tuple[int, int, Callable[[], None]]] = []
        self._marked = 0
        #: Milliseconds until the next control record is written; replaced by a fault plan.
        self.delay_ms: Callable[[], int] = lambda: 0

    @property
    def open_count(self) -> int:
        """Transactions that are not ended everywhere."""
        return sum(1 for p in self._by_id.values() if p.open or p.ending)

    def init(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Give a producer its id and a new epoch. Raises: `Blocked` until the last one has ended."""
        producing = self._by_id.get(transactional_id)
        if producing is None:
            producing = Producing(1000 + len(self._by_id), timeout_ms)
            self._by_id[transactional_id] = producing
        if producing.open is not None:
            producing.epoch += 1
            self._decide(producing, committed=False)
        if producing.ending is not None:
            raise Blocked(lambda: producing.ending is None)
        producing.timeout_ms = timeout_ms
        producing.epoch += 1
        producing.last = None
        return producing.producer_id, producing.epoch

    def produce(
        self, transactional_id: str, epoch: int, log: PartitionLog, records: Iterable[NewRecord]
    ) -> None:
        """Write records of the open transaction; it begins here if need be."""
        transaction = self._joined(transactional_id, epoch)
        if log not in transaction.logs:
            transaction.logs.append(log)
        for record in records:
            log.append(record, self._now_ms(), transaction.number)

    def add_group(self, transactional_id: str, epoch: int, group: Offsets) -> int:
        """Make a group's offsets part of the transaction; returns its number."""
        transaction = self._joined(transactional_id, epoch)
        if group not in transaction.groups:
            transaction.groups.append(group)
        return transaction.number

    def end(self, transactional_id: str, epoch: int, *, committed: bool) -> None:
        """Decide the open transaction.

        Raises: `KafkaException` fenced, or when there is nothing to decide.
        """
        producing = self._checked(transactional_id, epoch)
        if producing.open is None:
            if producing.last == (epoch, committed):
                return
            raise refused(KafkaError.INVALID_TXN_STATE, "no open transaction", fatal=True)
        producing.last = (epoch, committed)
        self._decide(producing, committed=committed)

    def next_due_ms(self) -> int | None:
        """When something happens by itself."""
        due = [when for when, _, _ in self._markers]
        due += [self._limit_ms(p, p.open) for p in self._by_id.values() if p.open is not None]
        return min(due, default=None)

    def tick(self) -> None:
        """Write the control records that are due, abort the transactions past their limit."""
        now_ms = self._now_ms()
        for producing in self._by_id.values():
            open_ = producing.open
            if open_ is not None and self._limit_ms(producing, open_) <= now_ms:
                producing.epoch += 1
                self._decide(producing, committed=False)
        while self._markers and min(self._markers)[0] <= now_ms:
            first = min(self._markers)
            self._markers.remove(first)
            first[2]()

    def _limit_ms(self, producing: Producing, transaction: Transaction) -> int:
        return transaction.begun_ms + producing.timeout_ms + SCAN_MS

    def _checked(self, transactional_id: str, epoch: int) -> Producing:
        producing = self._by_id.get(transactional_id)
        if producing is None:
            raise refused(KafkaError.INVALID_PRODUCER_ID_MAPPING, "unknown", fatal=True)
        if epoch != producing.epoch:
            raise fenced()
        return producing

    def _joined(self, transactional_id: str, epoch: int) -> Transaction:
        producing = self._checked(transactional_id, epoch)
        if producing.ending is not None:
            raise Blocked(lambda: producing.ending is None)
        if producing.open is None:
            self._numbers += 1
            producing.open = Transaction(self._numbers, self._now_ms())
        return producing.open

    def _decide(self, producing: Producing, *, committed: bool) -> None:
        transaction = producing.open
        if transaction is None:
            return
        producing.open, producing.ending = None, transaction
        transaction.committed = committed
        due_ms = self._now_ms()
        steps: list[Callable[[], None]] = [
            *(self._log_step(log, transaction) for log in transaction.logs),
            *(self._group_step(group, transaction) for group in transaction.groups),
        ]
        # The two kinds of places are told by different brokers, so either may be first.
        if self.delay_ms() % 2:
            steps.reverse()
        steps.append(lambda: self._ended(producing))
        for step in steps:
            due_ms += self.delay_ms()
            self._marked += 1
            self._markers.append((due_ms, self._marked, step))
        self.tick()

    def _log_step(self, log: PartitionLog, transaction: Transaction) -> Callable[[], None]:
        committed = bool(transaction.committed)
        return lambda: log.end_transaction(transaction.number, self._now_ms(), committed=committed)

    def _group_step(self, group: Offsets, transaction: Transaction) -> Callable[[], None]:
        committed = bool(transaction.committed)
        return lambda: group.end_transaction(transaction.number, committed=committed)

    def _ended(self, producing: Producing) -> None:
        producing.ending = None


def fenced() -> KafkaException:
    """What librdkafka makes of a refused epoch: a fatal error of the client."""
    return refused(KafkaError._FENCED, "a newer producer has this transactional id", fatal=True)  # noqa: SLF001 - a code
