"""One assembler process on the simulated cluster: the real loop, commit, fold and restore."""

from collections.abc import Callable
from typing import cast

from processor.core.assembly import Assembly
from processor.core.expiry import ExpiryLimits
from processor.core.gate import ToolRule
from processor.core.limits import Limits
from processor.core.terms import Terms
from processor.runtime.absorb import Absorber
from processor.runtime.assembling import Assembling
from processor.runtime.checkpoints import Checkpoints
from processor.runtime.committer import Committer
from processor.runtime.expirer import Expirer
from processor.runtime.folding import Folding
from processor.runtime.kafka import ClientErrors, Consumer, Producer
from processor.runtime.known_terms import KnownTerms
from processor.runtime.output_writer import OutputTopics, OutputWriter
from processor.runtime.ownership import OwnershipWatch
from processor.runtime.restore import StartAt, TopicFacts
from processor.runtime.settings import CommitSettings, RuntimeSettings
from processor.runtime.worker import Worker
from processor.testing import (
    SimulatedCommitter,
    SimulatedConsumer,
    SimulatedGroupView,
    SimulatedPartitionLog,
    SimulatedProcess,
    SimulatedProducer,
    SimulatedWatch,
)
from processor.testing.host import Host
from tests.builders import Catalogue
from tests.simulation.calls import EARLY_TOOL

EVENTS = "toolcalls.events.v1"
OUTPUTS = OutputTopics("toolcalls.completed.v1", "toolcalls.rejected.v1", "toolcalls.deadletter.v1")
CHECKPOINTS = "toolcalls.checkpoints.v1"
GROUP = "toolcalls-assembler"
LIMITS = Limits(arguments_bytes_max=400, fragments_max=16, open_calls_max=3, linger_ms=300)
#: One tool's calls are given out at their own end, the other's wait for the response's.
RULES = Catalogue({EARLY_TOOL: ToolRule("read_only")}, digest="sha256:0001")
EXPIRY = ExpiryLimits(idle_ttl_ms=1_500, max_life_ms=4_000)
EXPIRY_MARGIN_MS = 500
COMMIT = CommitSettings(interval_ms=50)
VALUE_BYTES_MAX = 4096
DEAD_LETTER_BYTES_MAX = 4096
IDLE_MS = 400
#: Small, so that two open calls are too much and partitions are read in turns.
BUFFERED_BYTES_MAX = 200
#: Small, so that calls of a few events get checkpoints.
CHECKPOINT_AFTER_MS = 200


class Silent:
    """An observer that keeps nothing."""

    def assigned(self, partition: int, plan: StartAt) -> None:
        """A partition was taken over."""

    def restored(self, partition: int, records: int) -> None:
        """A partition has been re-folded."""

    def revoked(self, partitions: list[int]) -> None:
        """Partitions were given up."""

    def committed(self, partitions: int, outputs: int) -> None:
        """A transaction was handed over."""

    def input_paused(self, partitions: list[int]) -> None:
        """Some partitions wait for their turn."""

    def input_resumed(self) -> None:
        """All are read again."""

    def without_owner(self, partitions: list[int]) -> None:
        """Partitions had no owner."""

    def client_error(self, name: str) -> None:
        """The client goes on after an error."""


def settings_of(slot: str) -> RuntimeSettings:
    """The settings of one slot, with limits small enough for small logs to reach them."""
    return RuntimeSettings(
        "simulated",
        EVENTS,
        GROUP,
        slot,
        start="earliest",
        limits=LIMITS,
        expiry=EXPIRY,
        expiry_margin_ms=EXPIRY_MARGIN_MS,
        commit=COMMIT,
        buffered_bytes_max=BUFFERED_BYTES_MAX,
        value_bytes_max=VALUE_BYTES_MAX,
    ).checked()


def make_folding(host: Host, wall_ms: Callable[[], int] = lambda: 0) -> Assembling:
    """The fold with the simulation's limits; `wall_ms` is what its process takes for the time."""
    log = SimulatedPartitionLog(host, CHECKPOINTS)
    writer = OutputWriter(OUTPUTS, EVENTS, dead_letter_bytes_max=DEAD_LETTER_BYTES_MAX)
    return Assembling(
        EVENTS,
        Absorber(writer, value_bytes_max=VALUE_BYTES_MAX, fragments_max=LIMITS.fragments_max),
        KnownTerms(Terms(LIMITS, RULES)),
        Expirer(EVENTS, EXPIRY, wall_ms, margin_ms=EXPIRY_MARGIN_MS),
        Checkpoints(CHECKPOINTS, GROUP, log, after_ms=CHECKPOINT_AFTER_MS),
    )


class Parts:
    """How the parts of a process are made; a deliberate bug replaces one of them."""

    def folding(self, host: Host, wall_ms: Callable[[], int]) -> Folding[Assembly]:
        """What is folded, and into what."""
        return make_folding(host, wall_ms)

    def consumer(
        self,
        process: SimulatedProcess,
        config: dict[str, object],
        batch: Callable[[int], int],
    ) -> SimulatedConsumer:
        """The group's consumer."""
        return SimulatedConsumer(process, config, batch=batch, idle_ms=IDLE_MS)

    def producer(self, process: SimulatedProcess, config: dict[str, object]) -> SimulatedProducer:
        """The transactional producer."""
        return SimulatedProducer(process, config)

    def committer(
        self, process: SimulatedProcess, producer: SimulatedProducer, settings: RuntimeSettings
    ) -> Committer:
        """The commit beside the loop."""
        return SimulatedCommitter(
            process,
            cast("Producer", producer),
            process.point,
            timeout_s=settings.commit.transaction_timeout_ms / 1000,
            clock=process.seconds,
        )

    def worker(
        self,
        process: SimulatedProcess,
        *,
        skew_ms: int = 0,
        batch: Callable[[int], int] = lambda size: size,
    ) -> Worker[Assembly]:
        """The whole process; `skew_ms` is what its wall clock is wrong by."""
        settings = settings_of(process.name)
        topic = process.cluster.topics[EVENTS]
        errors = ClientErrors(lambda name: None)
        producer = self.producer(process, producer_config(settings, errors))
        return Worker(
            settings,
            cast("Consumer", self.consumer(process, consumer_config(settings, errors), batch)),
            self.committer(process, producer, settings),
            self.folding(process, lambda: process.cluster.now_ms + skew_ms),
            TopicFacts(topic.topic_id, len(topic.logs)),
            errors,
            self.watch(process, settings, len(topic.logs)),
            Silent(),
            process.seconds,
            process.point,
        )

    def watch(
        self, process: SimulatedProcess, settings: RuntimeSettings, partitions: int
    ) -> OwnershipWatch:
        """The watch over partitions without an owner."""
        view = SimulatedGroupView(process, settings.group, EVENTS)
        return SimulatedWatch(process, view, settings.slot, partitions, lambda _: None)


def consumer_config(settings: RuntimeSettings, errors: ClientErrors) -> dict[str, object]:
    """What the simulated consumer reads of the real one's settings."""
    commit = settings.commit
    return {
        "group.id": settings.group,
        "group.instance.id": settings.slot,
        "session.timeout.ms": commit.session_timeout_ms,
        "max.poll.interval.ms": commit.poll_interval_max_ms,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",
        "error_cb": errors,
    }


def producer_config(settings: RuntimeSettings, errors: ClientErrors) -> dict[str, object]:
    """What the simulated producer reads of the real one's settings."""
    return {
        "transactional.id": settings.transactional_id,
        "transaction.timeout.ms": settings.commit.transaction_timeout_ms,
        "error_cb": errors,
    }
