"""What a command's exit status says about an error."""

import pytest

from processor.cli.demo_story import DemoFailed
from processor.cli.exit_codes import MEANINGS, ExitCode, exit_code_of
from processor.core.errors import Misuse, ProcessorError
from processor.dialects.stream import DialectError
from processor.publisher.errors import (
    ChunkRefused,
    DeliveryFailed,
    ProducerFailed,
    PublishQueueFull,
    Undelivered,
    Where,
)

WHERE = Where("req_1", "events")


def test_every_exit_code_has_a_meaning() -> None:
    """The list in the help is complete."""
    assert set(MEANINGS) == set(ExitCode)


def test_an_error_without_a_row_takes_its_parents_exit_code() -> None:
    """A subclass of Misuse is wrong usage, whatever its own code is."""

    class Narrower(Misuse):
        """A special case."""

        code = "narrower"

    assert exit_code_of(Narrower("x")) is ExitCode.USAGE
    assert exit_code_of(ProcessorError("x")) is ExitCode.CHECK_FAILED


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (DeliveryFailed(WHERE, "_MSG_TIMED_OUT"), ExitCode.UNREACHABLE),
        (PublishQueueFull(WHERE, "the queue stayed full"), ExitCode.UNREACHABLE),
        (ProducerFailed(WHERE, "the client is done"), ExitCode.UNREACHABLE),
        (Undelivered(1, ("req_1",)), ExitCode.UNREACHABLE),
        (ChunkRefused(WHERE, "no chunk of the dialect"), ExitCode.CHECK_FAILED),
        (DialectError("an event is too large"), ExitCode.USAGE),
        (DemoFailed("waited in vain"), ExitCode.CHECK_FAILED),
    ],
    ids=lambda value: value.code if isinstance(value, ProcessorError) else value.name,
)
def test_the_exit_status_says_whether_kafka_or_the_input_is_to_blame(
    error: ProcessorError, status: ExitCode
) -> None:
    """A broker that does not confirm is 4, for a supervisor to retry; bad input is not."""
    assert exit_code_of(error) is status
