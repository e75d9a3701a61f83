"""The Kafka clients of the loop: how they are configured, and what their errors mean for us.

Rules:
    One consumer and one transactional producer per process (KIP-447).
    `auto.offset.reset=error`: where to start is decided by the restore, never by a default.
    An error is translated here, once, into the way the process must end.
"""

# ruff: noqa: SLF001 - the client's own error codes are public by its documentation, their names
# begin with an underscore.

from collections.abc import Callable
from typing import Final, cast

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from processor.core.errors import ProcessorError
from processor.runtime.errors import (
    ClientFatal,
    CommitRefused,
    CommitUnknown,
    GenerationPassed,
    RestoreRefused,
    SlotFenced,
    SlotHeld,
    Unreachable,
)
from processor.runtime.settings import RuntimeSettings
from processor.runtime.topics import PRODUCED_BYTES_MAX

#: The room's names for the client's types: this file is the only one that knows the library.
__all__ = [
    "MESSAGE_BYTES_MAX",
    "ClientErrors",
    "Consumer",
    "KafkaError",
    "KafkaException",
    "Message",
    "Producer",
    "TopicPartition",
    "ending",
    "ends_consumption",
    "is_partition_end",
    "kafka_error",
    "make_consumer",
    "make_group_reader",
    "make_log_reader",
    "make_producer",
    "make_reader",
]

#: The largest record that may pass: a dead letter carries the original bytes of a bad one.
MESSAGE_BYTES_MAX: Final = PRODUCED_BYTES_MAX

_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.FENCED_INSTANCE_ID,
    }
)
_UNREACHABLE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
    }
)
#: What a consumer reports and goes on after by itself, having skipped nothing.
_PASSING: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._PARTITION_EOF,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_COORDINATOR,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
#: A rebalance ended between the question who we are and the answer's use.
_PASSED: Final = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
    }
)
_UNKNOWN_RESULT: Final = frozenset({KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT})


class ClientErrors:
    """Takes what the clients report beside their calls, on whichever thread they do.

    `fatal` is what the process must end with; anything else the clients go on after by themselves.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self.fatal: ProcessorError | None = None

    def end(self, error: ProcessorError) -> None:
        """The process must end with `error`, unless it does with an earlier one."""
        self.fatal = self.fatal or error

    def __call__(self, error: KafkaError) -> None:
        """Keep a fatal error, note any other by its name."""
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.end(ending(error, "client"))
        else:
            self._note(error.name())


def make_consumer(settings: RuntimeSettings, on_error: ClientErrors) -> Consumer:
    """The group's consumer. `group.instance.id` is the slot: a restart causes no rebalance."""
    return Consumer(
        {
            "fetch.queue.backoff.ms": 20,
            "fetch.wait.max.ms": 100,
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 65_536,
            "max.partition.fetch.bytes": 4 * 1024 * 1024,
            "max.poll.interval.ms": settings.commit.poll_interval_max_ms,
            **_membership(settings),
            **settings.client,
            "bootstrap.servers": settings.bootstrap,
            "client.id": f"{settings.transactional_id}-consumer",
            "group.id": settings.group,
            "group.instance.id": settings.slot,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "allow.auto.create.topics": False,
            "error_cb": on_error,
        }
    )


def _membership(settings: RuntimeSettings) -> dict[str, str | int]:
    """The client's side of the group protocol; with `consumer` the broker has the other settings."""
    if settings.group_protocol == "consumer":
        return {"group.protocol": "consumer"}
    session_ms = settings.commit.session_timeout_ms
    return {
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_ms,
        # A member hears of a rebalance by its heartbeat, and a cooperative one has two of them.
        "heartbeat.interval.ms": session_ms // 12,
    }


def make_producer(settings: RuntimeSettings, on_error: ClientErrors) -> Producer:
    """The transactional producer of the slot."""
    timeout_ms = settings.commit.transaction_timeout_ms
    return Producer(
        {
            "linger.ms": 5,
            "batch.size": 1_000_000,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 262_144,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            **settings.client,
            "bootstrap.servers": settings.bootstrap,
            "client.id": f"{settings.transactional_id}-producer",
            "transactional.id": settings.transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms - 1_000,
            "message.max.bytes": MESSAGE_BYTES_MAX,
            "acks": "all",
            "enable.idempotence": True,
            "error_cb": on_error,
        }
    )


def make_reader(bootstrap: str) -> Consumer:
    """A consumer outside of any group, for people: it commits nothing and stops at the end."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "toolcalls-reader",
            # A fetch that waits at a log's end holds back the next partition's.
            "fetch.wait.max.ms": 20,
            "fetch.queue.backoff.ms": 20,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.message.max.bytes": MESSAGE_BYTES_MAX,
            "allow.auto.create.topics": False,
        }
    )


def make_log_reader(settings: RuntimeSettings, *, committed: bool) -> Consumer:
    """A consumer outside of any group that reads what is `committed`, or everything there is."""
    return Consumer(
        {
            # The note of a log's end comes with the fetch after the last record's: a restore waits
            # for this, partition by partition.
            "fetch.wait.max.ms": 2,
            "fetch.queue.backoff.ms": 20,
            **settings.client,
            "bootstrap.servers": settings.bootstrap,
            "client.id": f"{settings.transactional_id}-checkpoints",
            "group.id": f"{settings.group}-checkpoints",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "error",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "allow.auto.create.topics": False,
        }
    )


def is_partition_end(error: KafkaError) -> bool:
    """True for the note that a partition has been read to its end."""
    return error.code() == KafkaError._PARTITION_EOF


def make_group_reader(bootstrap: str, group: str) -> Consumer:
    """A client that may ask for a group's offsets; it never joins the group."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group})


def ends_consumption(error: KafkaError) -> ProcessorError | None:
    """What a consumer's error must end the process with; None when the client goes on by itself."""
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        return RestoreRefused(
            f"offset_out_of_range: the events topic cannot be read at the position: {error.name()}."
            " Records were deleted while they were needed: raise the topic's retention.ms, then"
            " reset the group and start with --accept-reset"
        )
    # Fail closed: an error that is not known to pass may mean records that were skipped.
    if error.fatal() or not (error.retriable() or error.code() in _PASSING):
        return ending(error, "consume")
    return None


def kafka_error(error: KafkaException | KafkaError) -> KafkaError:
    """The client's error object inside an exception."""
    if isinstance(error, KafkaError):
        return error
    return cast("KafkaError", error.args[0])


def ending(error: KafkaException | KafkaError, doing: str) -> ProcessorError:
    """What the process must end with, given what the client said while `doing` something."""
    found = kafka_error(error)
    said = f"{doing}: {found.name()}"
    code = found.code()
    slot_ending = _slot_ending(found, said)
    if slot_ending is not None:
        return slot_ending
    if found.fatal() or code == KafkaError._FATAL:
        return ClientFatal(f"{said}. The client cannot go on; restart the process")
    if code in _UNREACHABLE:
        return Unreachable(f"{said}. Check the bootstrap address, the listener and the credentials")
    if code in _UNKNOWN_RESULT:
        return CommitUnknown(f"{said}. The result is not known here; a restart reads it from Kafka")
    if found.txn_requires_abort():
        refused = GenerationPassed if code in _PASSED else CommitRefused
        return refused(f"{said}. The transaction is aborted; a restart reads its input again")
    return ClientFatal(f"{said}. Restart the process; see the broker's log if it comes again")


def _slot_ending(found: KafkaError, said: str) -> SlotFenced | None:
    """What an error about the slot ends the process with; None for any other error."""
    code = found.code()
    # A fatal error of the consumer carries its cause in its text only.
    cause = found.str().lower() if code == KafkaError._FATAL else ""
    if code == KafkaError.UNRELEASED_INSTANCE_ID or "instance id is still used" in cause:
        return SlotHeld(
            f"{said}. The group still has a member of this slot. Run one process per slot; the"
            " place of a killed one is free when its session on the broker is over"
        )
    if code in _FENCED or "fenced" in cause:
        return SlotFenced(
            f"{said}. Another process uses this slot, or this one was away longer than its"
            " transaction or session timeout. Run one process per slot; this one may be restarted"
        )
    return None
