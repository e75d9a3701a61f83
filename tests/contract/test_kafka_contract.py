"""What the exactly-once loop relies on, stated once and asked of both brokers: who may commit what.

The simulated broker is only worth something as long as it answers like the real one.
"""

from collections.abc import Iterator
from functools import partial

import pytest
from confluent_kafka import KafkaError, TopicPartition

from tests.contract.kafka_harness import (
    ASK_S,
    BOTH,
    Broker,
    Member,
    anonymous,
    begun,
    committed,
    drive,
    error_of,
    opened,
    read,
    send,
    values_of,
    write,
)

SHORT_S = 0.7


@pytest.fixture(params=BOTH)
def broker(request: pytest.FixtureRequest, topic_prefix: str) -> Iterator[Broker]:
    """Each broker in turn."""
    with opened(request, topic_prefix) as made:
        yield made


# --- transactions -------------------------------------------------------------------------------


def test_records_of_an_open_transaction_are_hidden_from_readers_of_committed_data(
    broker: Broker,
) -> None:
    """They are there for others, and for all once it has committed."""
    topic = broker.topic()
    producer = begun(broker)
    write(producer, topic, b"one")
    assert values_of(broker, topic, held=True) == []
    assert values_of(broker, topic, "read_uncommitted", held=True) == [b"one"]
    producer.commit_transaction(ASK_S)
    assert values_of(broker, topic) == [b"one"]


def test_an_open_transaction_holds_back_what_others_wrote_behind_it(broker: Broker) -> None:
    """Readers of committed data stop at the last stable offset."""
    topic = broker.topic()
    producer = begun(broker)
    write(producer, topic, b"open")
    write(broker.producer(), topic, b"plain")
    assert values_of(broker, topic, held=True) == []
    producer.abort_transaction(ASK_S)
    assert values_of(broker, topic) == [b"plain"]


def test_aborted_records_stay_hidden_and_keep_their_offsets(broker: Broker) -> None:
    """An abort leaves records, and a control record, that no reader of committed data sees."""
    topic = broker.topic()
    producer = begun(broker)
    write(producer, topic, b"gone")
    producer.abort_transaction(ASK_S)
    write(broker.producer(), topic, b"kept")
    found = read(broker, topic)
    assert [(m.offset(), m.value()) for m in found] == [(2, b"kept")]
    assert values_of(broker, topic, "read_uncommitted") == [b"gone", b"kept"]


def test_a_control_record_takes_an_offset(broker: Broker) -> None:
    """Two transactions of one record each: the second record has offset 2, the end is 4."""
    topic = broker.topic()
    producer = begun(broker)
    write(producer, topic, b"one")
    producer.commit_transaction(ASK_S)
    producer.begin_transaction()
    write(producer, topic, b"two")
    producer.commit_transaction(ASK_S)
    assert [m.offset() for m in read(broker, topic)] == [0, 2]
    consumer = anonymous(broker, "g")
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), ASK_S) == (0, 4)


def test_a_second_producer_of_the_same_id_fences_the_first_and_aborts_its_transaction(
    broker: Broker,
) -> None:
    """The first is told so by a fatal error; what it wrote never shows."""
    topic = broker.topic()
    first = begun(broker)
    write(first, topic, b"zombie")
    second = begun(broker)
    write(second, topic, b"alive")
    error = error_of(lambda: first.commit_transaction(ASK_S))
    assert error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    assert error.fatal()
    second.commit_transaction(ASK_S)
    assert values_of(broker, topic) == [b"alive"]


def test_a_transaction_past_its_time_limit_is_aborted_and_its_producer_fenced(
    broker: Broker,
) -> None:
    """Nobody else has come, and still the owner is told that it is fenced."""
    topic = broker.topic()
    producer = begun(broker, transaction_timeout_ms=1_000)
    write(producer, topic, b"late")
    write(broker.producer(), topic, b"behind")
    reader = broker.consumer(group_id="g")
    reader.assign([TopicPartition(topic, 0, 0)])
    message = reader.poll(ASK_S)
    assert message is not None
    assert message.value() == b"behind"
    error = error_of(lambda: producer.commit_transaction(ASK_S))
    assert error.fatal()
    assert error.code() == KafkaError._FENCED


def test_records_and_commits_outside_of_a_transaction_are_refused(broker: Broker) -> None:
    """The client knows its state; none of these reaches the broker."""
    topic = broker.topic()
    producer = broker.producer(transactional_id=f"{broker.prefix}a")
    assert error_of(producer.begin_transaction).code() == KafkaError._STATE
    producer.init_transactions(ASK_S)
    assert error_of(lambda: producer.produce(topic, b"v")).code() == KafkaError._STATE
    assert error_of(lambda: producer.commit_transaction(ASK_S)).code() == KafkaError._STATE
    producer.begin_transaction()
    assert error_of(producer.begin_transaction).code() == KafkaError._STATE
    producer.commit_transaction(ASK_S)


def test_an_empty_transaction_commits_and_leaves_nothing(broker: Broker) -> None:
    """The broker never hears of it."""
    topic = broker.topic()
    begun(broker).commit_transaction(ASK_S)
    consumer = anonymous(broker, "g")
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), ASK_S) == (0, 0)


# --- offsets in transactions --------------------------------------------------------------------


def test_offsets_and_metadata_show_when_their_transaction_has_committed(broker: Broker) -> None:
    """Before the first there is -1001; the metadata comes back as it was given."""
    topic, consumer = broker.topic(), anonymous(broker, f"{broker.prefix}g")
    assert committed(consumer, topic) == (-1001, "")
    producer = begun(broker)
    send(producer, consumer, topic, 7, "seven")
    producer.commit_transaction(ASK_S)
    assert committed(consumer, topic) == (7, "seven")


def test_an_aborted_transaction_leaves_the_old_offset_and_metadata(broker: Broker) -> None:
    """Offset and metadata move together or not at all."""
    topic, consumer = broker.topic(), anonymous(broker, f"{broker.prefix}g")
    producer = begun(broker)
    send(producer, consumer, topic, 7, "seven")
    producer.commit_transaction(ASK_S)
    producer.begin_transaction()
    send(producer, consumer, topic, 9, "nine")
    producer.abort_transaction(ASK_S)
    assert committed(consumer, topic) == (7, "seven")


def test_the_last_offset_given_in_a_transaction_counts(broker: Broker) -> None:
    """A second call for the same partition replaces the first one's offset."""
    topic, consumer = broker.topic(), anonymous(broker, f"{broker.prefix}g")
    producer = begun(broker)
    send(producer, consumer, topic, 7, "seven")
    send(producer, consumer, topic, 5, "five")
    producer.commit_transaction(ASK_S)
    assert committed(consumer, topic) == (5, "five")


def test_committed_waits_while_a_transaction_may_still_move_the_offset(broker: Broker) -> None:
    """A reader of committed data gets no unstable offset, but an error when its time is over."""
    topic, consumer = broker.topic(), anonymous(broker, f"{broker.prefix}g")
    producer = begun(broker)
    send(producer, consumer, topic, 7, "seven")
    error = error_of(lambda: committed(consumer, topic, SHORT_S))
    assert error.code() == KafkaError._TIMED_OUT
    producer.commit_transaction(ASK_S)
    assert committed(consumer, topic) == (7, "seven")


def test_a_fenced_producer_leaves_no_unstable_offset(broker: Broker) -> None:
    """The takeover aborts the pending offset too."""
    topic, consumer = broker.topic(), anonymous(broker, f"{broker.prefix}g")
    send(begun(broker), consumer, topic, 7, "zombie")
    begun(broker)
    assert committed(consumer, topic) == (-1001, "")


def test_metadata_of_a_consumer_that_never_joined_fences_nothing(broker: Broker) -> None:
    """The broker takes such a commit although the group has members: the loop must refuse it."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    member = Member(broker, topic, group)
    drive([member], lambda: member.owned == {0})
    stranger = anonymous(broker, group)
    assert not stranger.memberid()
    producer = begun(broker)
    send(producer, stranger, topic, 3)
    producer.commit_transaction(ASK_S)
    assert committed(member.consumer, topic)[0] == 3


def test_metadata_with_a_slot_name_fences_even_before_the_join(broker: Broker) -> None:
    """A process with a static name that has not joined commits nothing."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    member = Member(broker, topic, group, group_instance_id="0")
    drive([member], lambda: member.owned == {0})
    for slot, code in (
        ("0", KafkaError.FENCED_INSTANCE_ID),
        ("1", KafkaError.UNKNOWN_MEMBER_ID),
    ):
        stranger = broker.consumer(group_id=group, group_instance_id=slot)
        producer = begun(broker, slot)
        error = error_of(partial(send, producer, stranger, topic, 3))
        assert error.code() == code
        assert error.txn_requires_abort()


def test_a_commit_of_an_older_generation_is_refused_and_the_transaction_must_be_aborted(
    broker: Broker,
) -> None:
    """KIP-447: metadata taken before a rebalance does not count after it."""
    topic, group = broker.topic(2), f"{broker.prefix}g"
    first = Member(broker, topic, group)
    drive([first], lambda: first.owned == {0, 1})
    old = first.consumer.consumer_group_metadata()
    second = Member(broker, topic, group)
    drive([first, second], lambda: bool(second.owned))
    producer = begun(broker)
    error = error_of(
        lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], old, ASK_S)
    )
    assert error.code() == KafkaError.ILLEGAL_GENERATION
    assert error.txn_requires_abort()
    assert not error.fatal()
    producer.abort_transaction(ASK_S)
    assert committed(first.consumer, topic)[0] == -1001


def test_a_commit_of_a_member_that_was_removed_is_refused(broker: Broker) -> None:
    """The member id is unknown to the group."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    first = Member(broker, topic, group)
    drive([first], lambda: first.owned == {0})
    old = first.consumer.consumer_group_metadata()
    first.consumer.close()
    second = Member(broker, topic, group)
    drive([second], lambda: second.owned == {0})
    producer = begun(broker)
    error = error_of(
        lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], old, ASK_S)
    )
    assert error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert error.txn_requires_abort()


def test_a_commit_of_a_replaced_static_member_is_refused(broker: Broker) -> None:
    """The newcomer has its name; the old member id is fenced."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    first = Member(broker, topic, group, group_instance_id="0")
    drive([first], lambda: first.owned == {0})
    old = first.consumer.consumer_group_metadata()
    second = Member(broker, topic, group, group_instance_id="0")
    drive([second], lambda: second.owned == {0})
    producer = begun(broker)
    error = error_of(
        lambda: producer.send_offsets_to_transaction([TopicPartition(topic, 0, 3)], old, ASK_S)
    )
    assert error.code() == KafkaError.FENCED_INSTANCE_ID
    assert error.txn_requires_abort()
    assert not error.fatal()


# --- group --------------------------------------------------------------------------------------


def test_a_new_member_takes_only_what_it_gets_and_the_rest_stays_where_it_is(
    broker: Broker,
) -> None:
    """Cooperative: what moves is revoked first, and assigned only after that."""
    topic, group = broker.topic(4), f"{broker.prefix}g"
    first = Member(broker, topic, group)
    drive([first], lambda: len(first.owned) == 4)
    second = Member(broker, topic, group)
    drive([first, second], lambda: len(second.owned) == 2)
    moved = [(kind, numbers) for kind, numbers in first.said if numbers]
    assert [kind for kind, _ in moved] == ["assign", "revoke"]
    assert set(moved[1][1]) == second.owned
    assert first.owned | second.owned == {0, 1, 2, 3}


def test_a_rebalance_that_brings_nothing_is_told_too(broker: Broker) -> None:
    """The callback gets an empty list, and what it does with one is no error."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    first = Member(broker, topic, group)
    drive([first], lambda: first.owned == {0})
    second = Member(broker, topic, group)
    drive([first, second], lambda: ("assign", ()) in second.said and ("assign", ()) in first.said)
    assert first.consumer.committed([], ASK_S) == []
    first.consumer.incremental_unassign([])
    assert first.owned == {0}


def test_partitions_of_a_dynamic_member_that_closes_go_to_the_others(broker: Broker) -> None:
    """It leaves the group, so nobody waits for its session."""
    topic, group = broker.topic(2), f"{broker.prefix}g"
    first, second = Member(broker, topic, group), Member(broker, topic, group)
    drive([first, second], lambda: len(first.owned) == len(second.owned) == 1)
    second.consumer.close()
    drive([first], lambda: first.owned == {0, 1})
    assert second.said[-1][0] == "revoke"


def test_a_static_member_that_comes_back_takes_its_partitions_without_a_rebalance(
    broker: Broker,
) -> None:
    """KIP-345: the other member hears of nothing, and the generation stays."""
    topic, group = broker.topic(2), f"{broker.prefix}g"
    first = Member(broker, topic, group, group_instance_id="0")
    second = Member(broker, topic, group, group_instance_id="1")
    drive([first, second], lambda: len(first.owned) == len(second.owned) == 1)
    said, had = list(second.said), first.owned
    first.consumer.close()
    again = Member(broker, topic, group, group_instance_id="0")
    drive([again, second], lambda: again.owned == had)
    assert second.said == said


def test_a_static_member_that_is_replaced_ends_with_a_fatal_error(broker: Broker) -> None:
    """Two processes of one slot: the older one is told, by the code and the text of a message."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    first = Member(broker, topic, group, group_instance_id="0")
    drive([first], lambda: first.owned == {0})
    second = Member(broker, topic, group, group_instance_id="0")
    drive([first, second], lambda: bool(first.errors) and second.owned == {0})
    error = first.errors[0]
    assert error.code() == KafkaError._FATAL
    assert not error.fatal()
    assert "fenced" in error.str().lower()


def test_a_member_that_is_not_heard_of_is_replaced_after_its_session(broker: Broker) -> None:
    """A static one that closes does not leave: its partitions wait for the session's end."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    first = Member(broker, topic, group, group_instance_id="0", session_timeout_ms=1_500)
    drive([first], lambda: first.owned == {0})
    first.consumer.close()
    second = Member(broker, topic, group, group_instance_id="1", session_timeout_ms=1_500)
    drive([second], lambda: second.owned == {0})


def test_a_member_has_an_id_from_its_join_on(broker: Broker) -> None:
    """Empty before: that is how a process knows that its metadata would fence nothing."""
    topic, group = broker.topic(), f"{broker.prefix}g"
    member = Member(broker, topic, group)
    drive([member], lambda: member.owned == {0})
    assert member.consumer.memberid()
