"""A transaction whose group assigned again before it was done, on a real broker."""

import time
from collections.abc import Sequence

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from processor.core.errors import ProcessorError
from processor.runtime.committer import REDO_MAX, Committer, Transaction
from processor.runtime.crash_points import never_crash
from processor.runtime.errors import CommitRefused
from processor.runtime.outbox import OutputRecord
from tests.integration.assembler_rig import Rig, rig, wait_until

pytestmark = pytest.mark.integration

TIMEOUT_S = 10.0


def member(made: Rig) -> Consumer:
    """One more member of the rig's group."""
    consumer = Consumer(
        {
            "bootstrap.servers": made.bootstrap,
            "group.id": made.group,
            "partition.assignment.strategy": "cooperative-sticky",
            "heartbeat.interval.ms": 500,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([made.input_topic])
    return consumer


def wait_owning(*members: Consumer) -> None:
    """Poll until each of `members` has a partition."""

    def owning() -> bool:
        for consumer in members:
            consumer.poll(0.05)
        return all(consumer.assignment() for consumer in members)

    wait_until(owning, "a partition for each member")


def commit_as(made: Rig, said: Sequence[object], offset: int) -> ProcessorError | None:
    """Commit one output and one offset, as who `said` says in turn; returns what went wrong."""
    producer = Producer(
        {
            "bootstrap.servers": made.bootstrap,
            "transactional.id": f"{made.group}-0",
            "transaction.timeout.ms": int(TIMEOUT_S * 1000),
        }
    )
    committer = Committer(producer, never_crash, timeout_s=TIMEOUT_S, clock=time.monotonic)
    committer.start()
    answers = iter(said)
    outputs = [OutputRecord(made.topics.completed, b"k", b"v", [], 0)]
    offsets = [TopicPartition(made.input_topic, 0, offset)]
    try:
        committer.submit(Transaction(outputs, offsets, lambda: next(answers)))
        committer.wait()
    except ProcessorError as e:
        return e
    finally:
        committer.stop()
    return None


def test_a_transaction_is_made_again_when_the_group_assigned_again_meanwhile(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """What it carries is still owned; it is committed once, under the new generation."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        first = member(made)
        wait_owning(first)
        old = first.consumer_group_metadata()
        second = member(made)
        wait_owning(first, second)
        new = first.consumer_group_metadata()
        assert commit_as(made, [old, new], offset=7) is None
        assert made.committed()[0][0] == 7
        assert len(made.read(made.topics.completed)) == 1
        second.close()
        first.close()


def test_a_transaction_of_a_generation_that_stays_old_is_given_up(
    kafka_bootstrap: str, topic_prefix: str
) -> None:
    """After some tries the process ends; nothing of it was committed."""
    with rig(kafka_bootstrap, topic_prefix) as made:
        first = member(made)
        wait_owning(first)
        old = first.consumer_group_metadata()
        second = member(made)
        wait_owning(first, second)
        assert isinstance(commit_as(made, [old] * REDO_MAX, offset=7), CommitRefused)
        assert not made.committed()
        assert not made.read(made.topics.completed)
        second.close()
        first.close()
