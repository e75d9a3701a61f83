"""Somebody operates on the checkpoint topic: a restart notices, and says what it was."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from processor.cli.exit_codes import ExitCode
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.topics import topic_specs
from tests.integration.assembler_rig import Rig, admin, call_records, rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]

_kafka: Any = importlib.import_module("confluent_kafka")


def client(made: Rig) -> Any:
    """An admin client of the rig's broker."""
    return admin.AdminClient({"bootstrap.servers": made.bootstrap, "log_level": 0})


def recreate(made: Rig, topic: str) -> None:
    """Delete a topic and make it again as it was."""
    operator = client(made)
    for future in operator.delete_topics([topic], operation_timeout=30).values():
        future.result(60)
    wait_until(lambda: topic not in operator.list_topics(timeout=10).topics, "the topic's end")
    specs = topic_specs(made.topics, partitions=made.partitions, replication_factor=1)
    KafkaAdmin(made.bootstrap).create([spec for spec in specs if spec.name == topic])


def set_cleanup(made: Rig, policy: str) -> None:
    """Change how the checkpoint topic forgets."""
    entry = admin.ConfigEntry(
        "cleanup.policy", policy, incremental_operation=admin.AlterConfigOpType.SET
    )
    resource = admin.ConfigResource(
        admin.ResourceType.TOPIC, made.topics.checkpoints, incremental_configs=[entry]
    )
    operator = client(made)  # kept: its questions end with it
    for future in operator.incremental_alter_configs([resource]).values():
        future.result(60)


def empty_by_deletion(made: Rig) -> None:
    """Delete every record of the checkpoint topic, as a wrong policy would for a while."""
    topic = made.topics.checkpoints
    places = [_kafka.TopicPartition(topic, p, _kafka.OFFSET_END) for p in range(made.partitions)]
    set_cleanup(made, "delete")
    operator = client(made)
    for future in operator.delete_records(places).values():
        future.result(60)
    set_cleanup(made, "compact")


def empty_by_recreation(made: Rig) -> None:
    """Delete the checkpoint topic and make it again."""
    recreate(made, made.topics.checkpoints)


@pytest.mark.parametrize("empty", [empty_by_deletion, empty_by_recreation])
def test_checkpoints_that_are_gone_refuse_a_restart_instead_of_losing_their_calls(
    kafka_bootstrap: str, topic_prefix: str, empty: Callable[[Rig], None]
) -> None:
    """The commit knows how many there were; the refusal says what to do."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        made.write(call_records(0, b'{"order_id":"ORDER-1001"}', 5)[:3])
        for number in (1, 2):
            made.write(call_records(number, b"{}", 1))
            process = made.start(commit_interval_ms="10", checkpoint_after_ms="0")
            made.wait_committed(process)
            made.stop(process)
        empty(made)
        process = made.start()
        process.wait(60)
        assert process.returncode == ExitCode.RESTORE_REFUSED, made.log(process)
        assert "checkpoints_missing: " in made.log(process)
        assert "--accept-reset" in made.log(process)
