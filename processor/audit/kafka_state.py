"""What a cluster says about itself: ends of logs, brokers' settings, rights, members of a group.

Rules:
    Only questions; nothing here changes anything.
    A question that is denied is an answer: `Denied` names what was asked.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar, cast

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec  # type: ignore[attr-defined]  # no stub

from processor.core._record import record
from processor.core.errors import ProcessorError
from processor.runtime.errors import Unreachable

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 10.0
_DENIED: Final = "AUTHORIZATION_FAILED"
#: A new or moved partition has no leader for a moment, a new broker no coordinator.
_PASSING: Final = frozenset(
    {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_LEADER_FOR_PARTITION",
    }
)
_TRIES: Final = 20
#: Untyped in the library.
_SPEC: Any = OffsetSpec
_PAUSE_S: Final = 0.2


class Denied(ProcessorError):
    """The cluster does not let these credentials ask that; the text names what was asked."""

    code = "kafka_denied"


@record
class LogState:
    """One partition's log. `stable` lies below `high` while a transaction is open.

    `newest_ms` is the largest record timestamp, epoch milliseconds, None for an empty log.
    """

    first: int
    stable: int
    high: int
    newest_ms: int | None


@record
class BrokerState:
    """One broker: its id and those of its settings that it shows."""

    broker_id: int
    settings: Mapping[str, str]


@record
class GroupState:
    """A group: its state, protocol, and the partitions of one topic by member."""

    state: str
    kind: str
    members: Mapping[str, tuple[int, ...]]
    operations: frozenset[str] | None


class KafkaState:
    """Asks one cluster. Every answer takes at most `request_timeout_s`.

    Raises, from every method: `Unreachable` when nobody answers, `Denied`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client: Mapping[str, str] | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = request_timeout_s
        # `Any`: the library's own annotations leave the types of its answers open.
        self._client: Any = AdminClient(
            {**(client or {}), "bootstrap.servers": bootstrap, "log_level": 0}
        )

    def brokers(self) -> list[int]:
        """Ids of the brokers."""
        return [node.id for node in self._cluster().nodes]

    def cluster_operations(self) -> frozenset[str] | None:
        """What these credentials may do with the cluster; None when it does not say."""
        return _operations(self._cluster())

    def _cluster(self) -> Any:  # the library's answer has no type
        asked = self._client.describe_cluster(
            include_authorized_operations=True, request_timeout=self._timeout_s
        )
        return self._result(cast("Future[Any]", asked), "the cluster")

    def broker_settings(self, broker_id: int) -> BrokerState:
        """The settings of one broker."""
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker_id))
        asked: dict[Any, Future[Any]] = self._client.describe_configs(
            [resource], request_timeout=self._timeout_s
        )
        [future] = asked.values()
        entries = self._result(future, f"the settings of broker {broker_id}")
        return BrokerState(
            broker_id, {n: e.value for n, e in entries.items() if e.value is not None}
        )

    def topic_operations(self, names: Sequence[str]) -> dict[str, frozenset[str] | None]:
        """What these credentials may do with the topics of `names` that exist."""
        asked: dict[str, Future[Any]] = self._client.describe_topics(
            TopicCollection(list(names)),
            include_authorized_operations=True,
            request_timeout=self._timeout_s,
        )
        found: dict[str, frozenset[str] | None] = {}
        for name, future in asked.items():
            try:
                found[name] = _operations(self._result(future, f"the topic {name}"))
            except UnknownTopic:
                continue
        return found

    def log_states(self, topic: str, partitions: Sequence[int]) -> dict[int, LogState]:
        """Where the logs of a topic begin and end now."""
        return self._patiently(lambda: self._log_states(topic, partitions))

    def _log_states(self, topic: str, partitions: Sequence[int]) -> dict[int, LogState]:
        first = self._offsets(topic, partitions, _SPEC.earliest(), committed=False)
        stable = self._offsets(topic, partitions, _SPEC.latest(), committed=True)
        high = self._offsets(topic, partitions, _SPEC.latest(), committed=False)
        newest = self._offsets(topic, partitions, _SPEC.max_timestamp(), committed=False)
        return {
            p: LogState(
                first[p].offset,
                stable[p].offset,
                high[p].offset,
                newest[p].timestamp if newest[p].timestamp >= 0 else None,
            )
            for p in partitions
        }

    def group(self, name: str, topic: str) -> GroupState:
        """A group's members; an unknown group is `DEAD` and has none."""
        return self._patiently(lambda: self._group(name, topic))

    def _group(self, name: str, topic: str) -> GroupState:
        asked: dict[str, Future[Any]] = self._client.describe_consumer_groups(
            [name], include_authorized_operations=True, request_timeout=self._timeout_s
        )
        found = self._result(asked[name], f"the group {name}")
        members = {
            str(member.group_instance_id or member.member_id): tuple(
                sorted(tp.partition for tp in _assigned(member) if tp.topic == topic)
            )
            for member in found.members
        }
        return GroupState(found.state.name, found.type.name, members, _operations(found))

    def _offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        spec: Any,  # the library's own union of kinds
        *,
        committed: bool,
    ) -> dict[int, Any]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked: dict[TopicPartition, Future[Any]] = self._client.list_offsets(
            {TopicPartition(topic, p): spec for p in partitions},
            isolation_level=level,
            request_timeout=self._timeout_s,
        )
        return {
            tp.partition: self._result(future, f"the log of {topic}[{tp.partition}]")
            for tp, future in asked.items()
        }

    def _patiently(self, ask: Callable[[], T]) -> T:
        pause = threading.Event()
        for _ in range(_TRIES):
            try:
                return ask()
            except _Passing:
                pause.wait(_PAUSE_S)
        return ask()

    def _result(self, future: "Future[T]", what: str) -> T:
        try:
            return future.result(self._timeout_s + 2)
        except TimeoutError:
            raise Unreachable(
                f"asking for {what} at {self._bootstrap}: no answer within {self._timeout_s:.0f} s"
            ) from None
        except KafkaException as e:
            raise _translated(e, f"asking for {what} at {self._bootstrap}") from e


class UnknownTopic(ProcessorError):
    """A topic that does not exist."""

    code = "unknown_topic"


class _Passing(Unreachable):
    """An answer that another try may change."""


def _translated(error: KafkaException, doing: str) -> ProcessorError:
    inner: object = error.args[0]
    name = inner.name() if isinstance(inner, KafkaError) else type(inner).__name__
    if name.endswith(_DENIED):
        return Denied(f"{doing}: {name}")
    if name == "UNKNOWN_TOPIC_OR_PART":
        return UnknownTopic(f"{doing}: {name}")
    family = _Passing if name in _PASSING else Unreachable
    return family(f"{doing}: {name}. Check the address, the listener and the credentials")


def _operations(found: Any) -> frozenset[str] | None:  # the library's answers
    operations = found.authorized_operations
    return None if operations is None else frozenset(o.name for o in operations)


def _assigned(member: Any) -> list[TopicPartition]:  # the library's answer
    assignment = member.assignment
    return [] if assignment is None else cast("list[TopicPartition]", assignment.topic_partitions)
