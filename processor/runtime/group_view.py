"""The consumer group seen from outside: who owns what, and how to make it assign again.

Rules:
    The group is asked for with the client's older `list_groups`. Its successor,
    `describe_consumer_groups`, ends the whole process by an assertion when an answer comes after
    the time limit (librdkafka 2.16, issue 4605: seen in each of eight tries with a frozen broker).
"""

import struct
import threading
import warnings
from collections.abc import Sequence
from typing import Any, Final, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from processor.runtime.errors import Unreachable
from processor.runtime.settings import RuntimeSettings

_ASK_S: Final = 5.0
#: How long the passing member waits for its turn; a group that is busy assigns anyway.
_NUDGE_POLLS: Final = 150
_POLL_S: Final = 0.1
#: The broker makes a member's id of its static name (else its client id), a hyphen and a UUID.
_ID_SUFFIX_CHARS: Final = 37


class _Member(Protocol):
    id: str
    assignment: bytes


class _Group(Protocol):
    id: str
    state: str
    members: list[_Member]


class KafkaGroupView:
    """Describes one group through the broker. Raises: `Unreachable` when nobody answers."""

    def __init__(self, settings: RuntimeSettings, *, ask_s: float = _ASK_S) -> None:
        self._settings = settings
        self._ask_s = ask_s
        self._client: Any = AdminClient(
            {**settings.client, "bootstrap.servers": settings.bootstrap, "log_level": 0}
        )
        warnings.filterwarnings("ignore", r"list_groups\(\) is deprecated", DeprecationWarning)

    def owned(self) -> dict[str, set[int]] | None:
        """Partitions of the events topic by slot; None while the group is not stable."""
        name = self._settings.group
        try:
            found: Sequence[_Group] = self._client.list_groups(name, timeout=self._ask_s)
        except KafkaException as e:
            raise Unreachable(f"the group {name} cannot be described") from e
        group = next((group for group in found if group.id == name), None)
        if group is None or group.state != "Stable":
            return None
        owned: dict[str, set[int]] = {}
        for member in group.members:
            partitions = assigned_partitions(member.assignment, self._settings.input_topic)
            owned.setdefault(member.id[:-_ID_SUFFIX_CHARS], set()).update(partitions)
        return owned

    def nudge(self) -> None:
        """Join the group without a static name, wait for the assignment, leave again."""
        assigned = threading.Event()

        def on_assign(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            del consumer, partitions
            assigned.set()

        consumer = Consumer(
            {
                **self._settings.client,
                "bootstrap.servers": self._settings.bootstrap,
                "group.id": self._settings.group,
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": self._settings.commit.session_timeout_ms,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe([self._settings.input_topic], on_assign=on_assign)
            for _ in range(_NUDGE_POLLS):
                # Nothing is assigned, so nothing is read and nothing can be committed.
                consumer.poll(_POLL_S)
                if assigned.is_set():
                    break
        finally:
            consumer.close()


def assigned_partitions(assignment: bytes, topic: str) -> set[int]:
    """Partitions of `topic` in a member's assignment (ConsumerProtocolAssignment, any version).

    An assignment that is empty or cut has none: the member has not been given any yet.
    """
    try:
        return _assigned(assignment, topic)
    except struct.error:
        return set()


def _assigned(assignment: bytes, topic: str) -> set[int]:
    found: set[int] = set()
    (topics,) = struct.unpack_from(">i", assignment, 2)
    at = 6
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", assignment, at)
        name = assignment[at + 2 : at + 2 + size]
        at += 2 + size
        (count,) = struct.unpack_from(">i", assignment, at)
        partitions = struct.unpack_from(f">{count}i", assignment, at + 4)
        at += 4 + 4 * count
        if name == topic.encode():
            found.update(partitions)
    return found
