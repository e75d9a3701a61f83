"""The input topic is deleted and made again, or grown, under a running process, on a real broker."""

import importlib
import subprocess
from typing import Any

import pytest

from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.topics import topic_specs
from tests.integration.assembler_rig import Rig, call_records, rig, wait_until

pytestmark = pytest.mark.integration

#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")
RESTORE_REFUSED = 8


def running(made: Rig) -> subprocess.Popen[bytes]:
    """A process that has committed something."""
    made.write([record for n in range(20) for record in call_records(n, b'{"n":%d}' % n, 3)])
    process = made.start(commit_interval_ms="10")
    made.wait_committed(process)
    return process


def assert_refused(made: Rig, process: subprocess.Popen[bytes], *codes: str) -> None:
    """The process ends by itself, by one of these names."""
    wait_until(lambda: process.poll() is not None, "the end of the process")
    assert process.returncode == RESTORE_REFUSED, made.log(process)
    assert any(code in made.log(process) for code in codes), made.log(process)


def test_more_partitions_end_the_process_and_every_restart_by_name(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Keys have moved, so no call may be folded on as if nothing were."""
    with rig(kafka_bootstrap, topic_prefix, partitions=2) as made:
        process = running(made)
        before = made.committed()
        client = admin.AdminClient({"bootstrap.servers": kafka_bootstrap})
        (future,) = client.create_partitions([admin.NewPartitions(made.input_topic, 3)]).values()
        future.result(20)
        assert_refused(made, process, "partitions_changed")
        # Its topics agree with one another again, so only the position can tell.
        (future,) = client.create_partitions(
            [admin.NewPartitions(made.topics.checkpoints, 3)]
        ).values()
        future.result(20)
        assert_refused(made, made.start(), "partitions_changed")
        assert made.committed() == before


def test_a_topic_made_again_ends_the_process_and_every_restart_by_name(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Offsets of the old topic mean nothing on the new one."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        process = running(made)
        client = admin.AdminClient({"bootstrap.servers": kafka_bootstrap})
        (future,) = client.delete_topics([made.input_topic]).values()
        future.result(20)
        specs = topic_specs(made.topics, partitions=1, replication_factor=1)
        again = [spec for spec in specs if spec.name == made.input_topic]
        described = KafkaAdmin(kafka_bootstrap)
        wait_until(lambda: described.create(again)[0].created, "the topic made again")
        # Records where the old topic had others. The consumer may have seen it empty before.
        made.write([r for n in range(100, 160) for r in call_records(n, b'{"n":%d}' % n, 3)])
        assert_refused(made, process, "topic_recreated", "offset_out_of_range")
        # The broker drops a group's offsets together with their topic.
        restarted = made.start(start="")
        assert_refused(made, restarted, "topic_recreated", "no_committed_offset")
