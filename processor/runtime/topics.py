"""The topics: their names, the settings that they must have, and what is wrong with those found.

Rules:
    Topics are created on purpose, never by auto-creation, and checked at every start.
    The events topic is the write-ahead log, and the chunks topic is the normaliser's: never
    compacted, never cut by size, and kept for at least four times the life of a call and a day, so
    that every open call can be read again.
    Its timestamps are the broker's: log time decides about expiry, and one producer with a wrong
    clock must not decide for all.
    A checkpoint lies in the partition of its call, so both topics have equally many partitions.
    A dead letter holds the original bytes and more, so its topic takes larger records.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Final, Literal

from processor.core._record import record
from processor.core.errors import Misuse, ProcessorError

TopicRole = Literal[
    "events", "completed", "rejected", "deadletter", "checkpoints", "results", "usage", "chunks"
]
FindingCode = Literal[
    "topic_missing",
    "events_compacted",
    "cleanup_policy_wrong",
    "retention_too_short",
    "retention_by_size",
    "partitions_differ",
    "timestamp_type_wrong",
    "message_bytes_too_small",
    "min_isr_too_low",
    "min_isr_above_replicas",
    "replication_too_low",
    "unclean_election",
]

#: What a fold reads: write-ahead logs, whose times decide.
LOGS: Final[frozenset[TopicRole]] = frozenset({"events", "chunks"})

HOUR_MS: Final = 60 * 60 * 1000
DAY_MS: Final = 24 * HOUR_MS
#: Default life of a call; the events topic must outlast it several times.
CALL_LIFE_MS: Final = HOUR_MS // 2
CALL_LIVES_MIN: Final = 4
RETENTION_MS: Final = 7 * DAY_MS
PARTITIONS: Final = 12
#: Kafka's own default (1 MiB and the overhead of a batch), written down so that it is checked.
MESSAGE_BYTES: Final = 1024 * 1024 + 12
#: Key and headers of a dead letter beyond what the original record had.
DEAD_LETTER_EXTRA_BYTES: Final = 64 * 1024
#: What the assembler's producer hands over at most.
PRODUCED_BYTES_MAX: Final = 16 * 1024 * 1024
DEAD_LETTER_BYTES: Final = 2 * 1024 * 1024
#: Kafka's limit of a topic name.
NAME_CHARACTERS_MAX: Final = 249

_NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)


class TopicRefused(ProcessorError):
    """A topic is missing or has wrong settings; the text holds every finding with its fix."""

    code = "topic_refused"


@record
class TopicNames:
    """What the topics are called. `chunks` None: nobody writes provider-native chunks."""

    events: str = "toolcalls.events.v1"
    completed: str = "toolcalls.completed.v1"
    rejected: str = "toolcalls.rejected.v1"
    deadletter: str = "toolcalls.deadletter.v1"
    checkpoints: str = "toolcalls.checkpoints.v1"
    results: str = "toolcalls.results.v1"
    usage: str = "toolcalls.usage.v1"
    chunks: str | None = None

    @staticmethod
    def prefixed(prefix: str, *, chunks: bool = False) -> "TopicNames":
        """The default names behind `prefix`. Raises: `Misuse` when that is no legal name."""
        standard = TopicNames(chunks="toolcalls.chunks.v1" if chunks else None)
        made = TopicNames(
            *(None if name is None else prefix + name for _, name in standard._items())  # type: ignore[arg-type]  # only `chunks` is None
        )
        return made.checked()

    def checked(self) -> "TopicNames":
        """Return these names, or refuse what Kafka does not take, and names used twice."""
        names = self.by_role()
        for role, name in names.items():
            if not 0 < len(name) <= NAME_CHARACTERS_MAX or not _NAME_CHARACTERS.issuperset(name):
                raise Misuse(
                    f"topics.{role} is no legal topic name: 1 to {NAME_CHARACTERS_MAX} of the"
                    " characters a-z A-Z 0-9 . _ -"
                )
        if len(set(names.values())) < len(names):
            raise Misuse("topics: one name is given to two topics; every topic needs its own")
        return self

    def by_role(self) -> dict[TopicRole, str]:
        """The names that are in use."""
        return {role: name for role, name in self._items() if name is not None}

    def _items(self) -> list[tuple[TopicRole, str | None]]:
        return [(field.name, getattr(self, field.name)) for field in fields(self)]  # type: ignore[misc]  # the fields are the roles


@record
class TopicSpec:
    """A topic as it is created. `settings` are Kafka's topic settings by their own names."""

    role: TopicRole
    name: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@record
class TopicDescription:
    """A topic as it was found. `topic_id` changes when the topic is recreated."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    settings: Mapping[str, str]


@record
class Finding:
    """One thing that is wrong: a stable code, a sentence, and the command or step that mends it."""

    code: FindingCode
    topic: str
    sentence: str
    fix: str


def events_retention_least_ms(call_life_ms: int = CALL_LIFE_MS) -> int:
    """How long the events topic must keep its records at least."""
    return max(DAY_MS, CALL_LIVES_MIN * call_life_ms)


def topic_specs(
    names: TopicNames,
    *,
    partitions: int = PARTITIONS,
    replication_factor: int,
    call_life_ms: int = CALL_LIFE_MS,
) -> list[TopicSpec]:
    """Every topic of `names` as it is to be created. Raises: `Misuse` for numbers below 1."""
    if partitions < 1 or replication_factor < 1:
        raise Misuse("topics: partitions and replication factor are at least 1")
    return [
        TopicSpec(
            role,
            name,
            partitions,
            replication_factor,
            _settings(role, replication_factor, call_life_ms),
        )
        for role, name in names.checked().by_role().items()
    ]


_COMPACTION: Final = {
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": str(HOUR_MS // 6),
}


def _settings(role: TopicRole, replication_factor: int, call_life_ms: int) -> dict[str, str]:
    retention_ms = max(RETENTION_MS, events_retention_least_ms(call_life_ms))
    settings = {
        "cleanup.policy": "compact" if role == "checkpoints" else "delete",
        "max.message.bytes": str(DEAD_LETTER_BYTES if role == "deadletter" else MESSAGE_BYTES),
        "message.timestamp.type": "LogAppendTime" if role in LOGS else "CreateTime",
        "min.insync.replicas": "2" if replication_factor >= 3 else "1",
        "unclean.leader.election.enable": "false",
    }
    if role == "checkpoints":
        # A restart reads all of it, so what is out of date must not stay for long.
        settings |= _COMPACTION
    else:
        settings |= {"retention.ms": str(retention_ms), "retention.bytes": "-1"}
    return settings


def check_topics(
    names: TopicNames,
    found: Mapping[str, TopicDescription],
    *,
    brokers_count: int = 1,
    call_life_ms: int = CALL_LIFE_MS,
) -> list[Finding]:
    """What is wrong with the topics of `names`, as far as `found` describes them; empty: nothing.

    A topic that `found` does not have is missing.
    """
    findings: list[Finding] = []
    roles = names.by_role()
    for role, name in roles.items():
        topic = found.get(name)
        if topic is None:
            findings.append(
                Finding("topic_missing", name, f"the topic {name} does not exist", _CREATE)
            )
            continue
        findings += _check_policy(role, topic)
        findings += _check_safety(topic, brokers_count)
        if role in LOGS:
            findings += _check_log(topic, call_life_ms)
    findings += _check_partitions(found.get(names.events), found.get(names.checkpoints))
    findings += _check_sizes(roles, found)
    return findings


def refuse(findings: Sequence[Finding]) -> None:
    """Raise `TopicRefused` with every finding and its fix, if there is one."""
    if findings:
        raise TopicRefused("; ".join(f"{f.code}: {f.sentence}. {f.fix}" for f in findings))


_CREATE: Final = "run `toolcalls topics create`"


def _alter(name: str, setting: str, value: str) -> str:
    return (
        f"run `kafka-configs.sh --alter --entity-type topics --entity-name {name}"
        f" --add-config {setting}={value}`"
    )


def _check_policy(role: TopicRole, topic: TopicDescription) -> list[Finding]:
    policy = topic.settings.get("cleanup.policy", "delete")
    wanted = "compact" if role == "checkpoints" else "delete"
    if policy == wanted:
        return []
    name = topic.name
    if role in LOGS:
        return [
            Finding(
                "events_compacted",
                name,
                f"{name} has cleanup.policy {policy}: compaction keeps one record of each key and"
                " loses the others",
                _alter(name, "cleanup.policy", "delete")
                + "; what was compacted already is lost, so start a new group at the end",
            )
        ]
    return [
        Finding(
            "cleanup_policy_wrong",
            name,
            f"{name} has cleanup.policy {policy}, it must be {wanted}",
            _alter(name, "cleanup.policy", wanted),
        )
    ]


def _check_log(topic: TopicDescription, call_life_ms: int) -> list[Finding]:
    findings: list[Finding] = []
    name = topic.name
    least_ms = events_retention_least_ms(call_life_ms)
    retention_ms = _number(topic, "retention.ms", RETENTION_MS)
    if 0 <= retention_ms < least_ms:
        findings.append(
            Finding(
                "retention_too_short",
                name,
                f"{name} keeps records for {retention_ms} ms, at least {least_ms} ms are needed to"
                " read what is open again after a restart",
                _alter(name, "retention.ms", str(max(least_ms, RETENTION_MS))),
            )
        )
    if _number(topic, "retention.bytes", -1) >= 0:
        findings.append(
            Finding(
                "retention_by_size",
                name,
                f"{name} drops records by size, so a busy hour could drop those of open calls",
                _alter(name, "retention.bytes", "-1"),
            )
        )
    timestamp_type = topic.settings.get("message.timestamp.type", "CreateTime")
    if timestamp_type != "LogAppendTime":
        findings.append(
            Finding(
                "timestamp_type_wrong",
                name,
                f"{name} takes the timestamps of producers ({timestamp_type}): one wrong clock"
                " would let every open call expire",
                _alter(name, "message.timestamp.type", "LogAppendTime"),
            )
        )
    return findings


def _check_safety(topic: TopicDescription, brokers_count: int) -> list[Finding]:
    findings: list[Finding] = []
    name, replicas = topic.name, topic.replication_factor
    in_sync = _number(topic, "min.insync.replicas", 1)
    if in_sync > replicas:
        findings.append(
            Finding(
                "min_isr_above_replicas",
                name,
                f"{name} demands {in_sync} replicas in sync and has {replicas}: nothing can be"
                " written",
                _alter(name, "min.insync.replicas", "2" if replicas > 2 else "1"),
            )
        )
    elif replicas > 2 and in_sync < 2:
        findings.append(
            Finding(
                "min_isr_too_low",
                name,
                f"{name} takes a write that one replica has: the loss of one broker loses it",
                _alter(name, "min.insync.replicas", "2"),
            )
        )
    if brokers_count > 2 and replicas < 3:
        findings.append(
            Finding(
                "replication_too_low",
                name,
                f"{name} has {replicas} replicas in a cluster of {brokers_count} brokers",
                "give it three with `kafka-reassign-partitions.sh`, or create it anew while empty",
            )
        )
    if topic.settings.get("unclean.leader.election.enable", "false") != "false":
        findings.append(
            Finding(
                "unclean_election",
                name,
                f"{name} may elect a replica that lacks committed records",
                _alter(name, "unclean.leader.election.enable", "false"),
            )
        )
    return findings


def _check_partitions(
    events: TopicDescription | None, checkpoints: TopicDescription | None
) -> list[Finding]:
    if events is None or checkpoints is None or events.partitions == checkpoints.partitions:
        return []
    return [
        Finding(
            "partitions_differ",
            checkpoints.name,
            f"{checkpoints.name} has {checkpoints.partitions} partitions, {events.name} has"
            f" {events.partitions}: a checkpoint lies in the partition of its call",
            f"delete {checkpoints.name} while no assembler runs and {_CREATE}"
            f" --partitions {events.partitions}; open calls are then read from the events",
        )
    ]


def _check_sizes(
    roles: Mapping[TopicRole, str], found: Mapping[str, TopicDescription]
) -> list[Finding]:
    findings: list[Finding] = []
    events = found.get(roles["events"])
    dead_letter_bytes = DEAD_LETTER_EXTRA_BYTES + (
        MESSAGE_BYTES if events is None else _message_bytes(events)
    )
    for role, name in roles.items():
        topic = found.get(name)
        least_bytes = dead_letter_bytes if role == "deadletter" else MESSAGE_BYTES
        if topic is not None and _message_bytes(topic) < least_bytes:
            findings.append(
                Finding(
                    "message_bytes_too_small",
                    name,
                    f"{name} takes records of {_message_bytes(topic)} bytes, {least_bytes} are"
                    " needed; the first larger one would stop its writer",
                    _alter(name, "max.message.bytes", str(least_bytes)),
                )
            )
    return findings


def _message_bytes(topic: TopicDescription) -> int:
    return _number(topic, "max.message.bytes", MESSAGE_BYTES)


def _number(topic: TopicDescription, setting: str, default: int) -> int:
    try:
        return int(topic.settings.get(setting, default))
    except ValueError:
        return default


def dead_letter_bytes(settings: Mapping[str, str]) -> int:
    """The largest key and value together that a dead-letter topic with `settings` surely takes."""
    taken = int(settings.get("max.message.bytes", MESSAGE_BYTES))
    return min(taken, PRODUCED_BYTES_MAX) - DEAD_LETTER_EXTRA_BYTES
