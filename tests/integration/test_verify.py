"""`toolcalls verify` on the real broker: it finds each fault, and nothing where there is none."""

import importlib
from typing import Any

import pytest
from typer.testing import CliRunner

from processor.cli.main import build_app
from processor.core.errors import ProcessorError
from tests.integration.assembler_rig import Rig, call_records, random_log, rig, wait_until
from tests.integration.verify_proof import Proof, arguments_of, faults_of, verified

pytestmark = pytest.mark.integration

CALLS = 5_000
BAD = 20
#: Untyped on purpose: the library's stubs do not export these names.
admin: Any = importlib.import_module("confluent_kafka.admin")
kafka: Any = importlib.import_module("confluent_kafka")


def refused(made: Rig, *more: str) -> tuple[str, str]:
    """Code and text of the error that a verification ends with."""
    result = CliRunner().invoke(build_app(), arguments_of(made, *more))
    assert isinstance(result.exception, ProcessorError), result.stdout
    return result.exception.code, str(result.exception)


def delete_below(made: Rig, topic: str, offset: int) -> None:
    """Delete the records of partition 0 below `offset`, as retention would."""
    client = admin.AdminClient({"bootstrap.servers": made.bootstrap})
    for future in client.delete_records([kafka.TopicPartition(topic, 0, offset)]).values():
        future.result(20)


def test_every_kind_of_fault_is_found_and_nothing_else(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """One altered byte, one altered header, one lost, doubled, moved, invented, a lost dead letter."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        proof = Proof(made)
        proof.write_events(CALLS, BAD)
        proof.alter_a_byte()
        proof.alter_a_header()
        proof.lose(made.topics.completed)
        proof.lose(made.topics.deadletter)
        proof.double()
        proof.reject_what_was_completed()
        proof.invent(at_offset=lambda offset: offset - 1)
        proof.invent(at_offset=lambda _: 10_000_000)
        proof.produce(proof.outputs)
        status, answer = verified(made)
        assert faults_of(answer) == sorted(proof.expected)
        assert status == 10
        assert answer["agree"] is False
        assert answer["expected"] == {"completed": CALLS, "deadletter": BAD}
        assert answer["agreeing"] == {"completed": CALLS - 4, "deadletter": BAD - 1}
        assert answer["undecided"] == {}


def test_what_a_real_assembler_writes_of_a_hostile_log_agrees(
    kafka_bootstrap: str, topic_prefix: str, session_seed: int
) -> None:
    """Repeats, holes, late events, bad bytes; also from the middle, where calls are open."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        made.write(random_log(session_seed, 200))
        process = made.start()
        made.wait_committed(process)
        made.stop(process)
        status, whole = verified(made)
        assert (status, whole["agree"], whole["undecided"]) == (0, True, {})
        assert sum(whole["agreeing"].values()) == len(made.actual())
        status, part = verified(made, "--from", "0:300,1:200", "--to", "1:500")
        assert (status, part["agree"], part["undecided"]) == (0, True, {})
        assert 0 < sum(part["agreeing"].values()) < len(made.actual())


def test_a_second_group_that_writes_the_same_topics_is_found(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Every output lies there twice; the ledger would let each take effect once."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        made.write([r for n in range(5) for r in call_records(n, b'{"a":1}', 2)])
        for group in (made.group, f"{made.group}-other"):
            process = made.start(group=group)
            wanted = 5 if group == made.group else 10
            wait_until(lambda: len(made.read(made.topics.completed)) == wanted, "the outputs")  # noqa: B023  # called at once
            made.stop(process)
        status, answer = verified(made)
        assert (status, answer["differences"]) == (10, {"doubled": 5})


def test_calls_that_were_open_where_the_log_now_begins_are_not_decidable(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Retention took the first event of a call: counted, and neither a loss nor an agreement."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        calls = [call_records(n, b'{"a":1}', 2) for n in range(3)]
        proof = Proof(made)
        made.write([record for row in zip(*calls, strict=True) for record in row])
        tasks, outputs = made.fold()
        proof.commit({0: tasks[0].next_offset})
        proof.produce(outputs)
        delete_below(made, made.topics.events, 2)
        status, answer = verified(made)
        assert (status, answer["agree"]) == (0, True)
        assert answer["undecided"] == {"open_before_range": 2}
        assert answer["agreeing"] == {"completed": 1}


def test_outputs_that_retention_has_deleted_are_not_called_lost(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """The events live longer than the outputs: what cannot be known is counted apart."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        proof = Proof(made)
        proof.write_events(4, 0)
        proof.produce(proof.outputs)
        delete_below(made, made.topics.completed, 3)
        status, answer = verified(made)
        assert (status, answer["undecided"]) == (0, {"output_deleted": 3})
        assert answer["agreeing"] == {"completed": 1}


def test_the_range_is_what_was_committed(kafka_bootstrap: str, topic_prefix: str) -> None:
    """Events above the committed offset are not decided yet, so nothing is missing."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        proof = Proof(made)
        proof.write_events(4, 0)
        proof.produce(proof.outputs[:3])
        proof.commit({0: 17})
        status, answer = verified(made)
        assert (status, answer["agreeing"], answer["events"]) == (10, {"completed": 2}, 17)
        assert answer["differences"] == {"invented": 1}


def test_a_group_without_commits_and_an_unknown_catalogue_are_refused(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Nothing is compared by guessed terms."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        code, text = refused(made)
        assert (code, "committed nothing" in text) == ("misuse", True)
        proof = Proof(made)
        proof.write_events(2, 0)
        proof.commit({0: 12}, catalogue_digest="ab" * 32)
        code, text = refused(made)
        assert (code, text.partition(":")[0]) == ("restore_refused", "catalogue_unknown")


def test_what_unknown_terms_decided_is_left_out_and_counted(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """Below the last change of terms nothing is compared, unless a person says which they were."""
    with rig(kafka_bootstrap, topic_prefix, partitions=1) as made:
        proof = Proof(made)
        proof.write_events(4, 0)
        proof.produce(proof.outputs[1:])
        proof.commit({0: 24}, since=12)
        status, answer = verified(made)
        assert (status, answer["agreeing"], answer["undecided"]) == (0, {"completed": 2}, {})
        [partition] = answer["partitions"]
        assert (partition["from"], partition["left_out"]) == (12, 12)
        status, answer = verified(made, "--assume-terms")
        assert (status, answer["differences"]) == (10, {"missing": 1})
