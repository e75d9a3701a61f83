"""Names, settings and findings of the topics, without a broker."""

from dataclasses import replace
from typing import get_args

import pytest

from processor.core.errors import Misuse
from processor.runtime.topics import (
    DAY_MS,
    MESSAGE_BYTES,
    RETENTION_MS,
    FindingCode,
    TopicDescription,
    TopicNames,
    TopicRefused,
    check_topics,
    events_retention_least_ms,
    refuse,
    topic_specs,
)

NAMES = TopicNames()
Found = dict[str, TopicDescription]


def described(names: TopicNames = NAMES, replication_factor: int = 3) -> Found:
    """The topics as the broker describes them after a create."""
    return {
        spec.name: TopicDescription(
            spec.name, f"id-{spec.role}", spec.partitions, spec.replication_factor, spec.settings
        )
        for spec in topic_specs(names, partitions=12, replication_factor=replication_factor)
    }


def with_setting(name: str, setting: str, value: str) -> Found:
    """The topics with one setting of one of them changed."""
    found = described()
    topic = found[name]
    return found | {name: replace(topic, settings={**topic.settings, setting: value})}


def codes(found: Found, brokers_count: int = 3) -> list[tuple[str, str]]:
    """Code and topic of every finding."""
    return [(f.code, f.topic) for f in check_topics(NAMES, found, brokers_count=brokers_count)]


def test_the_default_names_are_those_of_the_design() -> None:
    """And a prefix goes before each of them."""
    assert NAMES.by_role() == {
        "events": "toolcalls.events.v1",
        "completed": "toolcalls.completed.v1",
        "rejected": "toolcalls.rejected.v1",
        "deadletter": "toolcalls.deadletter.v1",
        "checkpoints": "toolcalls.checkpoints.v1",
        "results": "toolcalls.results.v1",
        "usage": "toolcalls.usage.v1",
    }
    prefixed = TopicNames.prefixed("t1-", chunks=True).by_role()
    assert prefixed == {
        **{role: f"t1-{name}" for role, name in NAMES.by_role().items()},
        "chunks": "t1-toolcalls.chunks.v1",
    }
    assert TopicNames.prefixed("") == NAMES


@pytest.mark.parametrize(
    "names",
    [
        TopicNames(events=""),
        TopicNames(events="a b"),
        TopicNames(events="a/b"),
        TopicNames(events="x" * 250),
        TopicNames(events="same", completed="same"),
    ],
)
def test_names_that_kafka_does_not_take_are_refused(names: TopicNames) -> None:
    """By role, before the broker is asked."""
    with pytest.raises(Misuse, match=r"^topics"):
        names.checked()


def test_the_events_topic_is_kept_for_four_lives_and_a_day() -> None:
    """Whichever is longer, and never less than what is created by default."""
    assert events_retention_least_ms(1) == DAY_MS
    assert events_retention_least_ms(10 * DAY_MS) == 40 * DAY_MS
    specs = topic_specs(NAMES, replication_factor=1, call_life_ms=10 * DAY_MS)
    assert specs[0].settings["retention.ms"] == str(40 * DAY_MS)
    assert topic_specs(NAMES, replication_factor=1)[0].settings["retention.ms"] == str(RETENTION_MS)


def test_only_the_checkpoints_are_compacted() -> None:
    """The events topic is the write-ahead log."""
    specs = topic_specs(TopicNames.prefixed("", chunks=True), replication_factor=3)
    compacted = [s.role for s in specs if s.settings["cleanup.policy"] == "compact"]
    assert compacted == ["checkpoints"]
    assert {s.settings["min.insync.replicas"] for s in specs} == {"2"}
    assert {s.partitions for s in specs} == {12}


@pytest.mark.parametrize(("partitions", "replication_factor"), [(0, 1), (1, 0)])
def test_numbers_below_one_are_refused(partitions: int, replication_factor: int) -> None:
    """At once, not by the broker."""
    with pytest.raises(Misuse):
        topic_specs(NAMES, partitions=partitions, replication_factor=replication_factor)


@pytest.mark.parametrize("replication_factor", [1, 2, 3])
def test_what_is_created_passes_the_check(replication_factor: int) -> None:
    """Create and check agree, for every size of cluster."""
    found = described(replication_factor=replication_factor)
    assert codes(found, brokers_count=replication_factor) == []


EVENTS, COMPLETED, CHECKPOINTS = NAMES.events, NAMES.completed, NAMES.checkpoints
WRONG: list[tuple[str, str, str, str]] = [
    ("events_compacted", EVENTS, "cleanup.policy", "compact"),
    ("events_compacted", EVENTS, "cleanup.policy", "compact,delete"),
    ("cleanup_policy_wrong", COMPLETED, "cleanup.policy", "compact"),
    ("cleanup_policy_wrong", CHECKPOINTS, "cleanup.policy", "delete"),
    ("retention_too_short", EVENTS, "retention.ms", str(DAY_MS - 1)),
    ("retention_by_size", EVENTS, "retention.bytes", "1000000"),
    ("timestamp_type_wrong", EVENTS, "message.timestamp.type", "CreateTime"),
    ("message_bytes_too_small", COMPLETED, "max.message.bytes", str(MESSAGE_BYTES - 1)),
    ("message_bytes_too_small", NAMES.deadletter, "max.message.bytes", str(MESSAGE_BYTES)),
    ("message_bytes_too_small", NAMES.deadletter, "max.message.bytes", "not a number"),
    ("min_isr_too_low", COMPLETED, "min.insync.replicas", "1"),
    ("min_isr_above_replicas", COMPLETED, "min.insync.replicas", "4"),
    ("unclean_election", COMPLETED, "unclean.leader.election.enable", "true"),
]


@pytest.mark.parametrize(("code", "name", "setting", "value"), WRONG)
def test_a_wrong_setting_is_the_only_finding(
    code: str, name: str, setting: str, value: str
) -> None:
    """Found by its code, with the topic in the sentence and a fix."""
    found = with_setting(name, setting, value)
    (finding,) = check_topics(NAMES, found, brokers_count=3)
    assert (finding.code, finding.topic) == (code, name)
    assert name in finding.sentence
    assert setting in finding.fix or finding.code == "events_compacted"


@pytest.mark.parametrize(
    ("setting", "value"), [("retention.ms", "-1"), ("retention.ms", "86400000")]
)
def test_retention_that_is_long_enough_passes(setting: str, value: str) -> None:
    """Without end, and exactly a day."""
    assert codes(with_setting(EVENTS, setting, value)) == []


def test_a_larger_record_on_the_events_topic_needs_a_larger_dead_letter() -> None:
    """Otherwise the first such bad record would stop the assembler."""
    found = with_setting(EVENTS, "max.message.bytes", str(8 * 1024 * 1024))
    assert codes(found) == [("message_bytes_too_small", NAMES.deadletter)]


def test_a_missing_topic_is_named_and_nothing_else() -> None:
    """Every topic of the names in use."""
    assert codes({}) == [("topic_missing", name) for name in NAMES.by_role().values()]
    found = described()
    del found[CHECKPOINTS]
    assert codes(found) == [("topic_missing", CHECKPOINTS)]


def test_checkpoints_have_as_many_partitions_as_events() -> None:
    """A checkpoint lies in the partition of its call; the other topics are free."""
    found = described()
    found[CHECKPOINTS] = replace(found[CHECKPOINTS], partitions=6)
    assert codes(found) == [("partitions_differ", CHECKPOINTS)]
    found = described()
    found[COMPLETED] = replace(found[COMPLETED], partitions=3)
    assert codes(found) == []


def test_one_replica_in_a_cluster_of_three_is_a_finding() -> None:
    """On a single broker it is all that there can be."""
    found = described(replication_factor=1)
    assert codes(found, brokers_count=1) == []
    assert {code for code, _ in codes(found, brokers_count=3)} == {"replication_too_low"}


def test_every_code_is_tested_here() -> None:
    """A new code needs a case."""
    tested = {code for code, *_ in WRONG}
    tested |= {"topic_missing", "partitions_differ", "replication_too_low"}
    assert tested == set(get_args(FindingCode))


def test_a_start_is_refused_with_every_finding() -> None:
    """One error names them all, each with its fix."""
    refuse([])
    found = with_setting(EVENTS, "cleanup.policy", "compact")
    found[COMPLETED] = with_setting(COMPLETED, "cleanup.policy", "compact")[COMPLETED]
    findings = check_topics(NAMES, found)
    with pytest.raises(TopicRefused, match="events_compacted") as caught:
        refuse(findings)
    assert "cleanup_policy_wrong" in str(caught.value)
    assert caught.value.code == "topic_refused"
