"""A transaction that somebody left open on an output: waited for, or refused by name."""

import pytest
from confluent_kafka import Producer

from processor.cli.exit_codes import ExitCode
from tests.integration.assembler_rig import Rig, call_records, rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def left_open(made: Rig, timeout_s: float) -> Producer:
    """A stranger's transaction with one record on the completed topic."""
    producer = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "transactional.id": f"{made.prefix}stranger",
            "transaction.timeout.ms": int(timeout_s * 1000),
            "log_level": 0,
        }
    )
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(made.topics.completed, b"{}", b"acme/req_0/resp_0/call_A", partition=0)
    assert producer.flush(20) == 0
    return producer


def test_nothing_is_committed_before_an_open_transaction_has_ended(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """It may be what a broker forgot of our own: our next marker would make it count."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write([r for n in range(20) for r in call_records(n, b'{"a":1}', 3)])
        stranger = left_open(made, 60)
        process = made.start()
        wait_until(lambda: "partition_assigned" in made.log(process), "the process in the group")
        assert not made.committed()
        stranger.abort_transaction(20)
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()


def test_a_transaction_that_does_not_end_refuses_the_start_by_name(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Exit status 8 with the place, and nothing was committed."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write([r for n in range(5) for r in call_records(n, b'{"a":1}', 3)])
        stranger = left_open(made, 60)
        process = made.start(transaction_timeout_ms="2000", session_timeout_ms="6000")
        process.wait(60)
        assert process.returncode == ExitCode.RESTORE_REFUSED, made.log(process)
        assert f"hanging_transaction: {made.topics.completed}[0]" in made.log(process)
        assert not made.committed()
        stranger.abort_transaction(20)
