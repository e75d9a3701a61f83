"""The partition of a key on a real topic: where the client's producer has put it."""

import random

from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.partitioner import partition_of
from processor.runtime.topics import TopicNames, topic_specs
from tests.integration.assembler_rig import Rig


def test_every_key_lies_where_it_is_looked_for(
    kafka_bootstrap: str, topic_prefix: str, session_seed: int
) -> None:
    """Two hundred keys of every length, on seven partitions, written by the client itself."""
    rng = random.Random(session_seed)
    names = TopicNames.prefixed(topic_prefix)
    KafkaAdmin(kafka_bootstrap).create(topic_specs(names, partitions=7, replication_factor=1))
    made = Rig(kafka_bootstrap, topic_prefix, partitions=7)
    keys = [rng.randbytes(length) for length in range(1, 201)]
    made.write([(key, b"x") for key in keys])
    found = {message.key(): message.partition() for message in made.read(names.events)}
    made.kill_all()
    assert found == {key: partition_of(key, 7) for key in keys}
