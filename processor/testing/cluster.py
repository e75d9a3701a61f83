"""A Kafka cluster in memory: topics, transactions, groups, and a clock that only moves when told.

Rules:
    Nothing happens at the same moment twice by chance: every change is made by a call or by the
    clock, in a fixed order, so a run can be repeated from its schedule.
    Clients heartbeat by themselves while their process runs and reaches the cluster.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from processor.core._record import record
from processor.runtime.kafka import KafkaError
from processor.testing.errors import refused
from processor.testing.groups import GroupCoordinator
from processor.testing.log import PartitionLog
from processor.testing.transactions import TransactionCoordinator

#: An arbitrary moment: the first of December 2025, in epoch milliseconds.
EPOCH_MS = 1_764_550_000_000


class Client(Protocol):
    """What a client does on its own thread, beside the calls of the application."""

    def work(self) -> None:
        """Do what can be done now: heartbeat, join, take an assignment."""
        ...

    def next_due_ms(self) -> int | None:
        """When it has something to do by itself."""
        ...


@record
class SimulatedTopic:
    """A topic: its id changes when it is made again."""

    name: str
    topic_id: str
    logs: tuple[PartitionLog, ...]
    compacted: bool


class SimulatedCluster:
    """The broker side. Build it, make topics, give it to simulated clients."""

    def __init__(self, start_ms: int = EPOCH_MS) -> None:
        self.now_ms = start_ms
        self.topics: dict[str, SimulatedTopic] = {}
        self.transactions = TransactionCoordinator(lambda: self.now_ms)
        self._groups: dict[str, GroupCoordinator] = {}
        self._clients: list[Client] = []
        self._topics_made = 0
        self._away_until_ms = start_ms
        self._were_away = False

    @property
    def coordinators_away(self) -> bool:
        """True while nobody coordinates groups and transactions; logs can be read all the same."""
        return self._away_until_ms > self.now_ms

    def send_coordinators_away(self, duration_ms: int) -> None:
        """The broker that coordinates is gone; another one has loaded its state after a while."""
        self._away_until_ms = max(self._away_until_ms, self.now_ms + duration_ms)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        compacted: bool = False,
        log_append_time: bool = False,
    ) -> SimulatedTopic:
        """Make a topic, or make it again under a new id."""
        self._topics_made += 1
        topic = SimulatedTopic(
            name,
            f"topic-{self._topics_made}",
            tuple(
                PartitionLog(name, p, log_append_time=log_append_time) for p in range(partitions)
            ),
            compacted,
        )
        self.topics[name] = topic
        return topic

    def log(self, topic: str, partition: int) -> PartitionLog:
        """One partition's log. Raises: `KafkaException` when there is no such partition."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.logs):
            raise refused(KafkaError._UNKNOWN_PARTITION, "no such partition")  # noqa: SLF001 - a code
        return found.logs[partition]

    def partitions_of(self, topic: str) -> int:
        """Number of partitions; 0 when there is no such topic."""
        found = self.topics.get(topic)
        return len(found.logs) if found else 0

    def group(self, name: str) -> GroupCoordinator:
        """The coordinator of a group, which exists from the first question on."""
        found = self._groups.get(name)
        if found is None:
            found = GroupCoordinator(name, self.partitions_of, lambda: self.now_ms)
            self._groups[name] = found
        return found

    def compact(self, *, tombstones: bool = True) -> None:
        """Clean the compacted topics now."""
        for topic in self.topics.values():
            if topic.compacted:
                for log in topic.logs:
                    log.compact(tombstones=tombstones)

    def logs_with_open_transactions(self) -> list[tuple[str, int]]:
        """Partitions whose last stable offset is held back."""
        return [
            (topic.name, log.partition)
            for topic in self.topics.values()
            for log in topic.logs
            if log.open_transactions
        ]

    # --- clients and time ----------------------------------------------------------------------

    def attach(self, client: Client) -> None:
        """Let `client` do its own work while time passes."""
        self._clients.append(client)

    def detach(self, client: Client) -> None:
        """The client is closed, or its process has ended."""
        if client in self._clients:
            self._clients.remove(client)

    def settle(self) -> None:
        """Let every client do what it can do now, until nothing changes any more."""
        if self.coordinators_away:
            self._were_away = True
        elif self._were_away:
            self._were_away = False
            for group in self._groups.values():
                group.load()
        before: Mapping[str, int] | None = None
        while before != (now := {n: g.version for n, g in self._groups.items()}):
            before = now
            for client in list(self._clients):
                client.work()

    def next_due_ms(self) -> int | None:
        """When something happens by itself on the broker or in a client."""
        due = [self.transactions.next_due_ms(), *(g.next_due_ms() for g in self._groups.values())]
        due += [client.next_due_ms() for client in self._clients]
        if self.coordinators_away:
            return self._away_until_ms
        return min((d for d in due if d is not None), default=None)

    def advance_to(self, moment_ms: int) -> None:
        """Let time pass until `moment_ms`; everything that falls due happens at its time."""
        while True:
            self.settle()
            due_ms = self.next_due_ms()
            if due_ms is None or due_ms > moment_ms:
                break
            self.now_ms = max(self.now_ms + (due_ms <= self.now_ms), due_ms)
            self._tick()
        self.now_ms = max(self.now_ms, moment_ms)
        self.settle()

    def wait(self, ready: Callable[[], bool], timeout_ms: int) -> bool:
        """Let time pass until `ready` or the limit; for tests without a schedule."""
        until_ms = self.now_ms + timeout_ms
        self.settle()
        while not ready():
            if self.now_ms >= until_ms:
                return False
            due_ms = self.next_due_ms()
            step_ms = max(self.now_ms + 1, due_ms) if due_ms is not None else until_ms
            self.advance_to(min(until_ms, step_ms))
        return True

    def _tick(self) -> None:
        self.settle()
        if self.coordinators_away:
            return
        self.transactions.tick()
        for group in self._groups.values():
            group.tick()
