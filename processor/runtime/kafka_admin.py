"""Topics on the broker: create, describe, check.

Rules:
    Creating is repeatable: a topic that exists is left as it is, and reported as such.
    Nothing here alters or deletes a topic; a finding names the command, a person runs it.
"""

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, Protocol, TypeVar, cast

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # no stub

from processor.core._record import record
from processor.core.errors import ProcessorError
from processor.runtime.errors import Unreachable
from processor.runtime.restore import TopicFacts
from processor.runtime.topics import (
    CALL_LIFE_MS,
    Finding,
    TopicDescription,
    TopicNames,
    TopicRefused,
    TopicSpec,
    check_topics,
)

T = TypeVar("T")

#: How long one request may take, and how long new topics may take until every broker knows them.
REQUEST_TIMEOUT_S: Final = 10.0
VISIBLE_TIMEOUT_S: Final = 15.0

#: Names of the client's errors, by what they mean here.
_UNREACHABLE: Final = frozenset(
    {
        "REQUEST_TIMED_OUT",
        "_ALL_BROKERS_DOWN",
        "_AUTHENTICATION",
        # A broker went away while it was asked: the client forgets it with all its questions.
        "_DESTROY_BROKER",
        "_RESOLVE",
        "_SSL",
        "_TIMED_OUT",
        "_TRANSPORT",
    }
)
_DENIED: Final = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
    }
)


class _Partition(Protocol):
    replicas: list[object]


class _FoundTopic(Protocol):
    topic_id: object
    partitions: list[_Partition]


class _Cluster(Protocol):
    nodes: list[object]


class _Entry(Protocol):
    value: str | None


class _Client(Protocol):
    """What is used of the admin client, with the types that its own annotations leave open."""

    def create_topics(
        self, new_topics: list[NewTopic], *, request_timeout: float
    ) -> Mapping[str, "Future[None]"]: ...

    def describe_topics(
        self, topics: TopicCollection, *, request_timeout: float
    ) -> Mapping[str, "Future[_FoundTopic]"]: ...

    def describe_configs(
        self, resources: list[ConfigResource], *, request_timeout: float
    ) -> Mapping[ConfigResource, "Future[Mapping[str, _Entry]]"]: ...

    def describe_cluster(self, *, request_timeout: float) -> "Future[_Cluster]": ...


@record
class Created:
    """What came of one topic of a `create`; `created` False when it existed before.

    `partitions` is how many it has, which is another number than asked for when it existed so.
    """

    name: str
    created: bool
    partitions: int


class KafkaAdmin:
    """Admin requests to one cluster. `client` are further client settings, such as TLS and SASL."""

    def __init__(
        self,
        bootstrap: str,
        *,
        client: Mapping[str, str] | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = request_timeout_s
        settings: dict[str, str | int | float | bool] = {
            **(client or {}),
            "bootstrap.servers": bootstrap,
            # What the client would log is raised as an error here, once.
            "log_level": 0,
        }
        self._client = cast("_Client", AdminClient(settings))

    def create(self, specs: Sequence[TopicSpec]) -> list[Created]:
        """Create the topics that do not exist, and wait until they can be described.

        Raises: `Unreachable`; `TopicRefused` naming the topic that the cluster refused.
        """
        asked = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                config=dict(spec.settings),
            )
            for spec in specs
        ]
        futures = self._client.create_topics(asked, request_timeout=self._timeout_s)
        created = [self._was_created(spec, futures) for spec in specs]
        found = self._wait_visible([spec.name for spec in specs])
        return [
            Created(spec.name, was_created, len(found[spec.name].partitions))
            for spec, was_created in zip(specs, created, strict=True)
        ]

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics of `names` that exist, with all their settings. Raises: `Unreachable`."""
        found = self._found(list(names))
        if not found:
            return {}
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in found]
        answers = self._client.describe_configs(resources, request_timeout=self._timeout_s)
        settings: dict[str, dict[str, str]] = {}
        for resource, future in answers.items():
            entries = self._result(future, "reading settings of")
            settings[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
        return {
            name: TopicDescription(
                name=name,
                topic_id=str(topic.topic_id),
                partitions=len(topic.partitions),
                replication_factor=min(len(p.replicas) for p in topic.partitions),
                settings=settings[name],
            )
            for name, topic in found.items()
        }

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic that must exist. Raises: `TopicRefused` when it does not; `Unreachable`."""
        found = self.describe([name]).get(name)
        if found is None:
            raise TopicRefused(
                f"topic_missing: the topic {name} does not exist at {self._bootstrap}."
                " Run `toolcalls topics create`"
            )
        return found

    def topic_facts(self, name: str) -> TopicFacts | None:
        """Id and partition count of a topic; None without it. Raises: `Unreachable`."""
        found = self._found([name]).get(name)
        return None if found is None else TopicFacts(str(found.topic_id), len(found.partitions))

    def brokers_count(self) -> int:
        """Number of brokers in the cluster. Raises: `Unreachable`."""
        future = self._client.describe_cluster(request_timeout=self._timeout_s)
        return len(self._result(future, "describing").nodes)

    def check(self, names: TopicNames, *, call_life_ms: int = CALL_LIFE_MS) -> list[Finding]:
        """What is wrong with the topics of `names`; empty: nothing. Raises: `Unreachable`."""
        return check_topics(
            names,
            self.describe(names.by_role().values()),
            brokers_count=self.brokers_count(),
            call_life_ms=call_life_ms,
        )

    def _found(self, names: list[str]) -> dict[str, _FoundTopic]:
        answers = self._client.describe_topics(
            TopicCollection(names), request_timeout=self._timeout_s
        )
        found: dict[str, _FoundTopic] = {}
        for name, future in answers.items():
            try:
                found[name] = future.result()
            except KafkaException as e:
                if _name(e) != "UNKNOWN_TOPIC_OR_PART":
                    raise self._translated(e, f"describing {name} at") from e
        return found

    def group_session_ms(self, group: str) -> int:
        """How long a group of the protocol `consumer` waits for a silent member, in milliseconds.

        Raises: `Unreachable`; `TopicRefused` when this user may not read the group's settings.
        """
        resource = ConfigResource(ConfigResource.Type.GROUP, group)
        asked = self._client.describe_configs([resource], request_timeout=self._timeout_s)
        try:
            found = asked[resource].result()
        except KafkaException as e:
            raise self._translated(e, f"reading the settings of the group {group} at") from e
        return int(found["consumer.session.timeout.ms"].value or 0)

    def _was_created(self, spec: TopicSpec, futures: Mapping[str, "Future[None]"]) -> bool:
        try:
            futures[spec.name].result()
        except KafkaException as e:
            if _name(e) == "TOPIC_ALREADY_EXISTS":
                return False
            raise self._translated(e, f"creating {spec.name} at") from e
        return True

    def _wait_visible(self, names: list[str]) -> dict[str, _FoundTopic]:
        """A new topic is known to the controller first, to the other brokers a moment later."""
        pause = threading.Event()
        give_up_s = time.monotonic() + VISIBLE_TIMEOUT_S
        while len(found := self._found(names)) < len(names):
            if time.monotonic() > give_up_s:
                raise Unreachable(
                    f"the new topics are not visible at {self._bootstrap} after"
                    f" {VISIBLE_TIMEOUT_S:.0f} s; check the brokers and run the command again"
                )
            pause.wait(0.05)
        return found

    def _result(self, future: "Future[T]", doing: str) -> T:
        try:
            return future.result()
        except KafkaException as e:
            raise self._translated(e, f"{doing} topics at") from e

    def _translated(self, error: KafkaException, doing: str) -> ProcessorError:
        return translated(error, f"{doing} {self._bootstrap}")


def translated(error: KafkaException, doing: str) -> ProcessorError:
    """The error of `doing` for its caller: not reached, which may be tried again, or refused."""
    name = _name(error)
    said = f"{doing}: {name}"
    if name in _UNREACHABLE or _is_passing(error):
        return Unreachable(f"{said}. Check the address, the listener and the credentials")
    if name in _DENIED:
        return TopicRefused(f"{said}. Give this user the rights of the README's table of ACLs")
    if name == "INVALID_REPLICATION_FACTOR":
        return TopicRefused(f"{said}. The cluster has fewer brokers than replicas were asked for")
    return TopicRefused(f"{said}. See the broker's log")


def _name(error: KafkaException) -> str:
    inner: object = error.args[0]
    return inner.name() if isinstance(inner, KafkaError) else type(inner).__name__


def _is_passing(error: KafkaException) -> bool:
    """True when the same question may be answered a moment later."""
    inner: object = error.args[0]
    return isinstance(inner, KafkaError) and inner.retriable()
