"""Settings are refused by name before a client is made, and never shown with their values."""

import pytest

from processor.core.errors import Misuse
from processor.publisher import PublisherSettings
from processor.publisher.producer import KafkaSink, client_settings
from processor.publisher.settings import OWNED_CLIENT_SETTINGS, ClientValue

SECRET = "sk-canary-0003"


def settings(client: dict[str, ClientValue]) -> PublisherSettings:
    """Settings with these further settings of the client."""
    return PublisherSettings(bootstrap="localhost:9092", client=client)


@pytest.mark.parametrize("name", sorted(OWNED_CLIENT_SETTINGS))
def test_a_setting_that_the_publisher_owns_is_refused_by_name(name: str) -> None:
    """Changing one of them would break a promise, or contradict a setting of ours."""
    with pytest.raises(Misuse, match=name) as caught:
        settings({name: SECRET}).checked()
    assert SECRET not in str(caught.value)


def test_what_keeps_the_events_whole_is_set_whatever_the_caller_adds() -> None:
    """Idempotent, all replicas, the partitioner of the Java clients; security is passed on."""
    made = client_settings(settings({"security.protocol": "ssl", "client.id": "gateway"}))
    assert made["enable.idempotence"] is True
    assert made["acks"] == "all"
    assert made["partitioner"] == "murmur2_random"
    assert made["security.protocol"] == "ssl"
    assert made["client.id"] == "gateway"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        (PublisherSettings(bootstrap=""), "bootstrap"),
        (PublisherSettings(bootstrap="x", events_topic=""), "events_topic"),
        (PublisherSettings(bootstrap="x", block_ms=-1), "block_ms"),
        (PublisherSettings(bootstrap="x", queue_events_max=0), "queue_events_max"),
        (PublisherSettings(bootstrap="x", record_bytes_max=10), "record_bytes_max"),
        (PublisherSettings(bootstrap="x", linger_ms=5, delivery_timeout_ms=5), "linger_ms"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: PublisherSettings, named: str) -> None:
    """Before any work."""
    with pytest.raises(Misuse, match=named):
        wrong.checked()


@pytest.mark.parametrize("name", ["no.such.setting", "security.protocol"])
def test_what_the_client_refuses_is_named_without_its_value(name: str) -> None:
    """The text of librdkafka quotes the value, so it is not passed on."""
    with pytest.raises(Misuse, match=name) as caught:
        KafkaSink(settings({name: SECRET}))
    assert SECRET not in str(caught.value)


def test_the_text_form_of_the_settings_shows_no_client_setting() -> None:
    """They may hold passwords."""
    assert SECRET not in repr(settings({"sasl.password": SECRET}))
