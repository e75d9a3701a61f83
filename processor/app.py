"""The composition root: the one place that builds the parts and wires them together."""

import gc
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from processor.core.assembly import Assembly
from processor.core.gate import NoCatalogue, Rules
from processor.core.terms import Terms
from processor.runtime.absorb import Absorber
from processor.runtime.assembling import Assembling
from processor.runtime.checkpoints import Checkpoints
from processor.runtime.committer import Committer
from processor.runtime.crash_points import CrashPoint, never_crash
from processor.runtime.expirer import Expirer
from processor.runtime.folding import F, Folding
from processor.runtime.group_view import KafkaGroupView
from processor.runtime.kafka import ClientErrors, make_consumer, make_producer
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.known_terms import KnownTerms
from processor.runtime.leftovers import Leftovers
from processor.runtime.log_observer import LogObserver
from processor.runtime.output_writer import OutputTopics, OutputWriter
from processor.runtime.ownership import OwnershipWatch, Watch, Watches
from processor.runtime.partition_log import KafkaPartitionLog
from processor.runtime.restore import TopicFacts
from processor.runtime.settings import RuntimeSettings
from processor.runtime.slot import when_free
from processor.runtime.stable_ends import KafkaStableEnds
from processor.runtime.topic_watch import TopicWatch
from processor.runtime.topics import TopicNames, dead_letter_bytes, refuse
from processor.runtime.worker import Worker
from processor.telemetry.logging import make_logger

if TYPE_CHECKING:
    from processor.dialects.normalise import ResponseFold


def wall_ms() -> int:
    """Epoch milliseconds, the only use of the wall clock in the assembler."""
    return time.time_ns() // 1_000_000


class StopRequest:
    """Set by SIGTERM or SIGINT; a second signal ends the process as if there were no handler."""

    def __init__(self) -> None:
        self._asked = False

    def __call__(self) -> bool:
        """True once a stop has been asked for."""
        return self._asked

    def install(self) -> None:
        """Handle SIGTERM and SIGINT from now on."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._asked = True
        signal.signal(number, signal.SIG_DFL)


def build_assembler(
    settings: RuntimeSettings,
    topics: TopicNames,
    *,
    rules: Rules | None = None,
    previous: Iterable[Rules] = (),
    crash_point: CrashPoint = never_crash,
) -> Worker[Assembly]:
    """Make the clients and the loop of one assembler process; nothing is consumed yet.

    `previous` are catalogues under which calls may still be open.

    Raises: `TopicRefused` naming every topic that has wrong settings; `Unreachable`.
    """
    settings = settings.checked()
    observer = LogObserver(make_logger("assembler"), settings.input_topic)
    admin = KafkaAdmin(settings.bootstrap, client=settings.client)
    refuse(admin.check(topics))
    writer = OutputWriter(
        OutputTopics(topics.completed, topics.rejected, topics.deadletter),
        settings.input_topic,
        dead_letter_bytes_max=_dead_letter_bytes(admin, topics),
    )
    assembling = Assembling(
        settings.input_topic,
        Absorber(
            writer,
            value_bytes_max=settings.value_bytes_max,
            fragments_max=settings.limits.fragments_max,
        ),
        KnownTerms(
            Terms(settings.limits, rules or NoCatalogue(), settings.wait_for_response), previous
        ),
        Expirer(
            settings.input_topic, settings.expiry, wall_ms, margin_ms=settings.expiry_margin_ms
        ),
        Checkpoints(
            topics.checkpoints,
            settings.group,
            KafkaPartitionLog(settings, topics.checkpoints, time.monotonic),
            after_ms=settings.checkpoint_after_ms,
        ),
    )
    outputs = (topics.completed, topics.rejected, topics.deadletter)
    return _build_worker(settings, assembling, outputs, admin, observer, crash_point)


def build_normaliser(
    settings: RuntimeSettings, topics: TopicNames, *, crash_point: CrashPoint = never_crash
) -> "Worker[ResponseFold]":
    """Make the clients and the loop of one normaliser process; nothing is consumed yet.

    Raises: `TopicRefused` naming every topic that has wrong settings; `Unreachable`.
    """
    # Imported here: an assembler's start need not wait for the dialects.
    from processor.runtime.normalising import NormaliserTopics, Normalising

    settings = settings.checked()
    observer = LogObserver(make_logger("normaliser"), settings.input_topic)
    admin = KafkaAdmin(settings.bootstrap, client=settings.client)
    refuse(admin.check(topics))
    normalising = Normalising(
        NormaliserTopics(settings.input_topic, topics.events, topics.usage, topics.deadletter),
        value_bytes_max=settings.value_bytes_max,
        dead_letter_bytes_max=_dead_letter_bytes(admin, topics),
    )
    outputs = (topics.events, topics.usage, topics.deadletter)
    return _build_worker(settings, normalising, outputs, admin, observer, crash_point)


def _dead_letter_bytes(admin: KafkaAdmin, topics: TopicNames) -> int:
    return dead_letter_bytes(admin.describe_topic(topics.deadletter).settings)


def _build_worker(
    settings: RuntimeSettings,
    folding: Folding[F],
    outputs: Sequence[str],
    admin: KafkaAdmin,
    observer: LogObserver,
    crash_point: CrashPoint,
) -> Worker[F]:
    """The loop around a folding: the same for both kinds of process."""
    if settings.group_protocol == "consumer":
        settings.check_session(admin.group_session_ms(settings.group))
    description = admin.describe_topic(settings.input_topic)
    client_errors = ClientErrors(observer.client_error)
    timeout_s = settings.commit.transaction_timeout_ms / 1000
    leftovers = Leftovers(KafkaStableEnds(settings, outputs), time.monotonic, wait_s=timeout_s)
    facts = TopicFacts(description.topic_id, description.partitions)
    return Worker(
        settings,
        make_consumer(settings, client_errors),
        Committer(
            make_producer(settings, client_errors),
            crash_point,
            timeout_s=timeout_s,
            clock=time.monotonic,
            await_leftovers=leftovers.await_ended,
        ),
        folding,
        facts,
        client_errors,
        _watch(settings, facts, admin, client_errors, observer),
        observer,
        time.monotonic,
        crash_point,
    )


def _watch(
    settings: RuntimeSettings,
    facts: TopicFacts,
    admin: KafkaAdmin,
    client_errors: ClientErrors,
    observer: LogObserver,
) -> Watch:
    name = settings.input_topic
    topic = TopicWatch(name, facts, lambda: admin.topic_facts(name), client_errors.end)
    if settings.group_protocol == "consumer":
        # There the coordinator itself takes a partition from one member and gives it to the next:
        # nothing waits for a second join of anybody, so nothing is left without an owner.
        return topic
    view = KafkaGroupView(settings)
    owners = OwnershipWatch(view, settings.slot, facts.partitions, observer.without_owner)
    return Watches((topic, owners))


def relax_collector() -> None:
    """Let the cyclic garbage collector look seldom: the fold's data has no cycles.

    By default it walks the live calls again and again for nothing (measured: 12 % of the loop).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


def wait_for_slot(
    run: Callable[[], None], should_stop: Callable[[], bool], *, wait_s: float
) -> None:
    """Run a process, built anew for each try, while the group holds its slot for another one.

    Raises: `SlotHeld` after `wait_s` seconds; whatever else `run` raises.
    """
    logger = make_logger("slot")

    def note() -> None:
        logger.warning("slot_held")

    when_free(run, should_stop, note, wait_s=wait_s, clock=time.monotonic, pause=time.sleep)


def run_assembler(worker: Worker[Assembly], should_stop: Callable[[], bool]) -> None:
    """Run one assembler process until it is asked to stop.

    Raises: a `ProcessorError` whose class decides the exit code.
    """
    logger = make_logger("assembler")
    relax_collector()
    logger.info("assembler_started")
    worker.run(should_stop)
    logger.info("assembler_stopped")


def run_normaliser(worker: "Worker[ResponseFold]", should_stop: Callable[[], bool]) -> None:
    """Run one normaliser process until it is asked to stop. Raises: as `run_assembler`."""
    logger = make_logger("normaliser")
    logger.info("normaliser_started")
    worker.run(should_stop)
    logger.info("normaliser_stopped")
