"""Foreign transactions beside the assembler: they may delay it, and change nothing it says."""

from collections.abc import Sequence

import pytest
from confluent_kafka import Producer

from processor.cli.exit_codes import ExitCode
from tests.integration.assembler_rig import Record, Rig, call_records, rig, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.faults]


def rogue(made: Rig, transactional_id: str) -> Producer:
    """A transactional producer that is not ours, past its initialisation."""
    producer = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
        }
    )
    producer.init_transactions(20)
    return producer


def write_open(producer: Producer, made: Rig, records: Sequence[Record]) -> None:
    """Write into partition 0 inside of a transaction, and leave it open."""
    producer.begin_transaction()
    for key, value in records:
        producer.produce(made.input_topic, value, key, partition=0)
    assert producer.flush(20) == 0


def completed(made: Rig) -> int:
    """How many calls are on the topic of completed calls."""
    return len(made.read(made.topics.completed))


def test_a_foreign_open_transaction_delays_its_partition_alone_and_goes_when_aborted(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Nothing behind it is folded before its end, and nothing in it after its abort."""
    with rig(kafka_bootstrap, topic_prefix, partitions=2) as made:
        producer = rogue(made, f"{topic_prefix}foreign")
        write_open(producer, made, call_records(1, b'{"a":1}', 3))
        behind = call_records(2, b'{"b":2}', 3)
        made.write(behind, partition=0)
        beside = call_records(3, b'{"c":3}', 3)
        made.write(beside, partition=1)
        process = made.start()
        wait_until(
            lambda: made.committed().get(1, (0, ""))[0] >= len(beside),
            "the end of the other partition",
        )
        assert made.committed().get(0, (0, ""))[0] == 0
        assert completed(made) == 1
        producer.abort_transaction(20)
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()
        assert completed(made) == 2


def test_aborted_records_and_markers_between_fragments_are_gaps_also_at_a_restart(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """A position behind a gap is found again, with calls open across it."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        producer = rogue(made, f"{topic_prefix}foreign")
        fragments = call_records(1, b'{"text":"abcdefgh"}', 6)
        half = len(fragments) // 2
        for part in (fragments[:half], fragments[half:]):
            for record in part:
                write_open(producer, made, call_records(9, b'{"never":1}', 1))
                producer.abort_transaction(20)
                write_open(producer, made, [record])
                producer.commit_transaction(20)
            process = made.start()
            made.wait_committed(process)
            made.stop(process)
        made.assert_exact()
        assert completed(made) == 1


def test_a_second_producer_with_our_transactional_id_ends_the_process_and_costs_nothing(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The fenced process ends with its own exit status; the next one goes on exactly."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write([r for n in range(20) for r in call_records(n, b'{"a":1}', 3)])
        process = made.start()
        made.wait_committed(process)
        rogue(made, f"{made.group}-0")
        made.write([r for n in range(20, 40) for r in call_records(n, b'{"a":1}', 3)])
        process.wait(60)
        assert process.returncode == ExitCode.FENCED, made.log(process)
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        made.assert_exact()
