"""Topics on a real broker: create, describe, check, and the command line around it."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from processor.cli.main import build_app
from processor.runtime.errors import Unreachable
from processor.runtime.kafka_admin import Created, KafkaAdmin
from processor.runtime.topics import TopicNames, TopicRefused, TopicSpec, topic_specs

CLOSED_PORT = "127.0.0.1:1"


def specs_of(names: TopicNames, partitions: int = 2) -> list[TopicSpec]:
    """Specs for a single broker."""
    return topic_specs(names, partitions=partitions, replication_factor=1)


def run(*arguments: str) -> tuple[int, str]:
    """Exit status and standard output of a `toolcalls` command."""
    result = CliRunner().invoke(build_app(), list(arguments))
    return result.exit_code, result.stdout


def test_topics_are_created_once_and_then_exist(kafka_bootstrap: str, topic_prefix: str) -> None:
    """A second create changes nothing and says so."""
    admin = KafkaAdmin(kafka_bootstrap)
    names = TopicNames.prefixed(topic_prefix, chunks=True)
    specs = specs_of(names)
    assert admin.create(specs) == [Created(spec.name, created=True, partitions=2) for spec in specs]
    before = admin.describe(names.by_role().values())
    assert admin.create(specs_of(names, 5)) == [
        Created(s.name, created=False, partitions=2) for s in specs
    ]
    assert admin.describe(names.by_role().values()) == before
    assert admin.check(names) == []


def test_a_description_has_id_partitions_and_settings(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """What was asked for is what the broker says; the id is the topic's own."""
    admin = KafkaAdmin(kafka_bootstrap)
    names = TopicNames.prefixed(topic_prefix)
    specs = specs_of(names, 3)
    admin.create(specs)
    found = [admin.describe_topic(spec.name) for spec in specs]
    for spec, topic in zip(specs, found, strict=True):
        assert (topic.name, topic.partitions, topic.replication_factor) == (spec.name, 3, 1)
        assert {name: topic.settings[name] for name in spec.settings} == spec.settings
    ids = {topic.topic_id for topic in found}
    assert len(ids) == len(found)
    assert all(len(topic_id) == 22 for topic_id in ids)


def test_a_topic_that_does_not_exist_is_refused_by_name(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """And is not created by asking for it."""
    admin = KafkaAdmin(kafka_bootstrap)
    name = f"{topic_prefix}missing"
    for _ in range(2):
        with pytest.raises(TopicRefused, match=f"topic_missing: the topic {name}"):
            admin.describe_topic(name)
    assert admin.describe([name]) == {}


def broken(specs: Sequence[TopicSpec], names: TopicNames) -> list[TopicSpec]:
    """Specs with a compacted events topic, a short retention and too few checkpoint partitions."""
    settings = {"cleanup.policy": "compact", "retention.ms": "1000"}
    return [
        replace(spec, settings={**spec.settings, **settings})
        if spec.name == names.events
        else replace(spec, partitions=1)
        if spec.name == names.checkpoints
        else spec
        for spec in specs
        if spec.name != names.usage
    ]


def test_wrong_topics_are_found_on_the_broker(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Missing, compacted, short-lived, and partitions that differ."""
    admin = KafkaAdmin(kafka_bootstrap)
    names = TopicNames.prefixed(topic_prefix)
    admin.create(broken(specs_of(names), names))
    findings = admin.check(names)
    assert [(finding.code, finding.topic) for finding in findings] == [
        ("events_compacted", names.events),
        ("retention_too_short", names.events),
        ("topic_missing", names.usage),
        ("partitions_differ", names.checkpoints),
    ]


def test_more_replicas_than_brokers_are_refused(kafka_bootstrap: str, topic_prefix: str) -> None:
    """The error names the topic and the reason."""
    names = TopicNames.prefixed(topic_prefix)
    specs = topic_specs(names, partitions=1, replication_factor=7)
    with pytest.raises(TopicRefused, match="fewer brokers than replicas"):
        KafkaAdmin(kafka_bootstrap).create(specs)


def test_no_broker_is_told_from_no_topic() -> None:
    """An address where nobody listens."""
    with pytest.raises(Unreachable, match=CLOSED_PORT):
        KafkaAdmin(CLOSED_PORT, request_timeout_s=0.5).describe_topic("x")


def test_the_command_creates_and_checks(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Text for people, JSON for machines, 0 when nothing is wrong."""
    where = ("--bootstrap", kafka_bootstrap, "--prefix", topic_prefix)
    status, text = run("topics", "create", *where, "--partitions", "2")
    assert status == 0
    assert text.count("created") == 7
    status, text = run("topics", "create", *where, "--json")
    assert status == 0
    events = f"{topic_prefix}toolcalls.events.v1"
    assert json.loads(text)[0] == {"topic": events, "created": False, "partitions": 2}
    assert run("topics", "check", *where) == (0, "7 topics, all as they must be.\n")
    assert run("topics", "check", *where, "--json") == (0, "[]\n")


def test_creating_again_says_that_a_topic_has_another_count_of_partitions(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """It stays as it is; whoever asked for more must not believe that it grew."""
    where = ("--bootstrap", kafka_bootstrap, "--prefix", topic_prefix)
    assert run("topics", "create", *where, "--partitions", "2")[0] == 0
    status, text = run("topics", "create", *where, "--partitions", "5")
    assert status == 0
    assert text.count("with 2 partitions, not 5") == 7
    assert "not 2" not in run("topics", "create", *where, "--partitions", "2")[1]


def test_the_command_reports_findings(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Exit status 3, each finding with its code and its fix."""
    where = ("--kafka-bootstrap", kafka_bootstrap, "--prefix", topic_prefix)
    status, text = run("topics", "check", *where)
    assert status == 3
    assert text.count("topic_missing: ") == text.count("topics create") == 7
    status, text = run("topics", "check", *where, "--json")
    assert status == 3
    assert {row["code"] for row in json.loads(text)} == {"topic_missing"}
