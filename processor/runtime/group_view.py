"""The consumer group seen from outside: who owns what, and how to make it assign again."""

import threading
from concurrent.futures import Future
from typing import Any, Final, cast

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from processor.runtime.errors import Unreachable
from processor.runtime.settings import RuntimeSettings

_ASK_S: Final = 5.0
#: How long the passing member waits for its turn; a group that is busy assigns anyway.
_NUDGE_POLLS: Final = 150
_POLL_S: Final = 0.1


class KafkaGroupView:
    """Describes one group through the broker. Raises: `Unreachable` when nobody answers."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._client: Any = AdminClient(
            {**settings.client, "bootstrap.servers": settings.bootstrap, "log_level": 0}
        )

    def owned(self) -> dict[str, set[int]] | None:
        """Partitions of the events topic by slot; None while the group is not stable."""
        group, topic = self._settings.group, self._settings.input_topic
        try:
            asked: dict[str, Future[Any]] = self._client.describe_consumer_groups(
                [group], request_timeout=_ASK_S
            )
            found = asked[group].result(_ASK_S + 1)
        except (KafkaException, TimeoutError) as e:
            raise Unreachable(f"the group {group} cannot be described") from e
        if found.state.name != "STABLE":
            return None
        return {
            str(member.group_instance_id or member.member_id): {
                cast("int", tp.partition)
                for tp in member.assignment.topic_partitions
                if tp.topic == topic
            }
            for member in found.members
        }

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
