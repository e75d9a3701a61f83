"""What was done to topic or group while no process ran: refused by name, or harmless."""

import functools
import importlib
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from processor.cli.exit_codes import ExitCode
from processor.runtime.offset_metadata import decode_metadata
from tests.integration.assembler_rig import Rig, call_records, rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]

#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")


def folded(made: Rig) -> int:
    """Fold a whole and an open call, stop, and return the low-water offset of partition 0."""
    made.write(call_records(1, b'{"a":1}', 3), partition=0)
    made.write(call_records(2, b'{"b":2}', 3)[:2], partition=0)
    process = made.start()
    made.wait_committed(process)
    made.stop(process)
    return decode_metadata(made.committed()[0][1]).low


def refused(made: Rig, status: ExitCode, **settings: str) -> str:
    """What a process says that must end by itself with `status`."""
    process = made.start(**settings)
    process.wait(60)
    assert process.returncode == status, made.log(process)
    return made.log(process)


@functools.cache
def client(bootstrap: str) -> Any:
    """An admin client, kept: a future of one that was collected never ends."""
    return admin.AdminClient({"bootstrap.servers": bootstrap})


def brokers(made: Rig) -> Any:
    """An admin client of the rig's broker."""
    return client(made.bootstrap)


def delete_below(made: Rig, offset: int) -> None:
    """Let the log of partition 0 begin at `offset`."""
    place = TopicPartition(made.input_topic, 0, offset)
    for future in brokers(made).delete_records([place]).values():
        future.result(20)


def test_records_deleted_below_low_are_not_missed(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Retention may take what no open call needs; the open call still completes."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        low = folded(made)
        assert low > 0
        delete_below(made, low)
        made.write(call_records(2, b'{"b":2}', 3)[2:], partition=0)
        process = made.start()
        wait_until(lambda: len(made.read(made.topics.completed)) == 2, "the second call")
        made.stop(process)
        assert len(made.read(made.topics.completed)) == 2


def test_records_deleted_above_low_are_refused_by_name(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Records that an open call needs are gone: no fold, no output, a code."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        delete_below(made, folded(made) + 1)
        assert "offset_out_of_range" in refused(made, ExitCode.RESTORE_REFUSED)
        assert len(made.read(made.topics.completed)) == 1


def test_a_position_that_was_deleted_is_no_new_group_by_itself(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Expired or deleted offsets are refused when nobody says where to start."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        folded(made)
        made.delete_group()
        assert "no_committed_offset" in refused(made, ExitCode.RESTORE_REFUSED, start="")


def test_partitions_added_to_the_input_while_nobody_ran_are_refused(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Keys have moved; whether by position or by the check of topics, a start says so."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        folded(made)
        added = [admin.NewPartitions(made.input_topic, 2)]
        for future in brokers(made).create_partitions(added).values():
            future.result(20)
        process = made.start()
        process.wait(60)
        assert process.returncode in (ExitCode.REFUSED, ExitCode.RESTORE_REFUSED)
        assert "partitions" in made.log(process)


def test_a_compacted_events_topic_is_refused(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Compaction would take fragments out of a call: the checked start names the setting."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        entry = admin.ConfigEntry(
            "cleanup.policy", "compact", incremental_operation=admin.AlterConfigOpType.SET
        )
        resource = admin.ConfigResource(
            admin.ResourceType.TOPIC, made.input_topic, incremental_configs=[entry]
        )
        for future in brokers(made).incremental_alter_configs([resource]).values():
            future.result(20)
        assert "events_compacted" in refused(made, ExitCode.REFUSED)
