"""What is wrong with the brokers' settings for an exactly-once group; pure.

Rules:
    A setting that a broker does not show is not judged.
    The brokers must take our timeouts: a refused transaction or session ends every process at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from processor.audit.doctor_report import Diagnosed
from processor.audit.kafka_state import BrokerState
from processor.runtime.settings import CommitSettings

#: What the metadata of a commit takes at most, with two sets of terms.
METADATA_BYTES: Final = 600
OFFSETS_RETENTION_LEAST_MINUTES: Final = 24 * 60

_INNER_TOPICS: Final = (
    ("transaction.state.log.replication.factor", "transaction.state.log.min.isr", "transactions"),
    ("offsets.topic.replication.factor", None, "committed offsets"),
)


def judge_brokers(brokers: Sequence[BrokerState], commit: CommitSettings) -> list[Diagnosed]:
    """Every finding, each setting once, at the first broker that has it."""
    found: dict[tuple[str, str], Diagnosed] = {}
    for broker in brokers:
        numbers = _numbers(broker.settings)
        for diagnosed, setting in _judge(broker.broker_id, numbers, len(brokers), commit):
            found.setdefault((diagnosed.code, setting), diagnosed)
    return list(found.values())


def _numbers(settings: Mapping[str, str]) -> dict[str, int]:
    return {name: int(value) for name, value in settings.items() if value.lstrip("-").isdecimal()}


def _judge(
    broker_id: int, numbers: Mapping[str, int], brokers_count: int, commit: CommitSettings
) -> Iterator[tuple[Diagnosed, str]]:
    """Each finding with the setting that it is about."""
    subject = f"broker {broker_id}"
    for factor_name, in_sync_name, what in _INNER_TOPICS:
        if factor_name in numbers:
            found = _judge_inner_topic(
                subject,
                (factor_name, in_sync_name, what),
                (numbers[factor_name], numbers.get(in_sync_name or "", 1)),
                brokers_count,
            )
            if found is not None:
                yield found, factor_name
    for code, name, ours, is_least in _bounds(commit):
        value = numbers.get(name)
        if value is not None and (value < ours if is_least else value > ours):
            bound, other = ("at least", "larger") if is_least else ("at most", "smaller")
            sentence = f"{name} is {value}, {bound} {ours} is needed"
            fix = f"set {name}={ours} on every broker, or a {other} value"
            yield Diagnosed(code, subject, sentence, fix), name


def _judge_inner_topic(
    subject: str, names: tuple[str, str | None, str], values: tuple[int, int], brokers_count: int
) -> Diagnosed | None:
    (factor_name, in_sync_name, what), (factor, in_sync) = names, values
    if factor > brokers_count or in_sync > factor:
        return Diagnosed(
            "inner_topic_unavailable",
            subject,
            f"the log of {what} wants {factor} replicas, {in_sync} in sync, in a cluster of"
            f" {brokers_count} brokers: none can be made",
            f"set {factor_name} to at most {brokers_count} on every broker",
        )
    if brokers_count > 2 and (factor < 3 or (in_sync_name is not None and in_sync < 2)):
        settings = f"{factor_name}=3" + (f" and {in_sync_name}=2" if in_sync_name else "")
        return Diagnosed(
            "inner_topic_at_risk",
            subject,
            f"the log of {what} has {factor} replicas, {in_sync} in sync: the loss of a broker"
            " loses it, and with it what exactly-once rests on",
            f"set {settings}, and give the topic that exists three replicas with"
            " `kafka-reassign-partitions.sh`",
        )
    return None


def _bounds(commit: CommitSettings) -> tuple[tuple[str, str, int, bool], ...]:
    """Code, setting, what we need, and whether that is the least or the most."""
    transaction_ms, session_ms = commit.transaction_timeout_ms, commit.session_timeout_ms
    retention = OFFSETS_RETENTION_LEAST_MINUTES
    return (
        ("transaction_timeout_refused", "transaction.max.timeout.ms", transaction_ms, True),
        ("session_timeout_refused", "group.max.session.timeout.ms", session_ms, True),
        ("session_timeout_refused", "group.min.session.timeout.ms", session_ms, False),
        ("offset_metadata_too_small", "offset.metadata.max.bytes", METADATA_BYTES, True),
        ("offsets_retention_too_short", "offsets.retention.minutes", retention, True),
    )
