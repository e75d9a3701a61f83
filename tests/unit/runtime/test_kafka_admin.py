"""What an error of the admin client means for whoever asked."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from processor.core.errors import ProcessorError
from processor.runtime.errors import Unreachable
from processor.runtime.kafka_admin import translated
from processor.runtime.topics import TopicRefused


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_TRANSPORT", Unreachable),
        ("_ALL_BROKERS_DOWN", Unreachable),
        ("_TIMED_OUT", Unreachable),
        ("_DESTROY_BROKER", Unreachable),
        ("TOPIC_AUTHORIZATION_FAILED", TopicRefused),
        ("INVALID_REPLICATION_FACTOR", TopicRefused),
        ("INVALID_CONFIG", TopicRefused),
    ],
)
def test_what_may_be_answered_a_moment_later_is_not_refused(
    name: str, kind: type[ProcessorError]
) -> None:
    """A supervisor restarts after `Unreachable`, and does not after a refusal."""
    codes = {KafkaError(code).name(): code for code in range(-200, 130)}
    error = translated(KafkaException(KafkaError(codes[name])), "describing events at host:1")
    assert type(error) is kind
    assert name in str(error)
    assert "host:1" in str(error)


def test_an_error_that_the_client_calls_retriable_is_not_refused() -> None:
    """Whatever its name."""
    passing = KafkaError(KafkaError._FAIL, retriable=True)
    assert type(translated(KafkaException(passing), "describing")) is Unreachable
