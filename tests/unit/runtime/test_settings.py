"""Settings are checked as a whole, and a refusal names what is wrong."""

import pytest
from confluent_kafka import KafkaError

from processor.config import read_environment
from processor.core.errors import Misuse
from processor.runtime.kafka import ClientErrors, ends_consumption, make_consumer
from processor.runtime.settings import CommitSettings, RuntimeSettings


def settings(**changes: object) -> RuntimeSettings:
    """Settings that are right but for `changes`."""
    given = {"bootstrap": "localhost:9092", "input_topic": "events", **changes}
    return RuntimeSettings(**given)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"slot": ""}, "runtime.slot"),
        ({"slot": "a-b"}, "runtime.slot"),
        ({"group": ""}, "runtime.group"),
        ({"client": {"acks": "1"}}, "acks"),
        ({"commit": CommitSettings(transaction_timeout_ms=12_000)}, "transaction_timeout_ms"),
        ({"commit": CommitSettings(session_timeout_ms=60_000)}, "session_timeout_ms"),
        ({"commit": CommitSettings(interval_ms=0)}, "interval_ms"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(changes: dict[str, object], named: str) -> None:
    """Time limits rise from transaction to session to poll interval; owned settings stay ours."""
    settings().checked()
    with pytest.raises(Misuse, match=named):
        settings(**changes).checked()


def test_a_transaction_may_not_outlive_the_session_that_the_group_has_on_the_broker() -> None:
    """The rule of the classic client settings holds for KIP-848's group setting as well."""
    settings().check_session(8_001)
    with pytest.raises(Misuse, match=r"consumer\.session\.timeout\.ms"):
        settings().check_session(8_000)


def test_with_kip_848_the_client_is_given_no_setting_that_belongs_to_the_group() -> None:
    """The client refuses them, so a consumer that can be made has none of them."""
    make_consumer(settings(group_protocol="consumer"), ClientErrors(lambda name: None)).close()


def test_every_wrong_variable_is_named_at_once_and_none_is_quoted() -> None:
    """One message for all of them, without the values."""
    wrong = {
        "slot": "SECRET-1",
        "group": "",
        "linger_ms": "SECRET-2",
        "open_calls_max": 0,
        "fragments_max": 10**9,
    }
    with pytest.raises(Misuse) as caught:
        read_environment(**wrong)
    for name in wrong:
        assert f"TOOLCALLS_{name.upper()}" in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_a_consumer_error_that_is_not_known_to_pass_ends_the_process() -> None:
    """Bad compression, for one, means records that were skipped."""
    assert ends_consumption(KafkaError(KafkaError._BAD_COMPRESSION)) is not None
    assert ends_consumption(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)) is not None
    assert ends_consumption(KafkaError(KafkaError._TRANSPORT)) is None
    assert ends_consumption(KafkaError(KafkaError.NOT_COORDINATOR)) is None
