"""A topic that is another one under a running process ends it by name; silence does not."""

import pytest

from processor.core.errors import ProcessorError
from processor.runtime.errors import RestoreRefused, Unreachable
from processor.runtime.kafka import ClientErrors
from processor.runtime.restore import TopicFacts
from processor.runtime.topic_watch import TopicWatch

FACTS = TopicFacts("id-1", 3)


def ended(found: TopicFacts | None) -> ProcessorError | None:
    """What one look at `found` ends the process with."""
    errors = ClientErrors(lambda name: None)
    watch = TopicWatch("events", FACTS, lambda: found, errors.end)
    assert watch.look() == (errors.fatal is not None)
    return errors.fatal


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (TopicFacts("id-2", 3), "topic_recreated: events"),
        (TopicFacts("id-2", 4), "topic_recreated: events"),
        (TopicFacts("id-1", 4), "partitions_changed: events"),
    ],
)
def test_another_topic_under_the_name_ends_the_process_by_name(
    found: TopicFacts, code: str
) -> None:
    """With the error that a restart would end with."""
    error = ended(found)
    assert isinstance(error, RestoreRefused)
    assert str(error).startswith(code)


@pytest.mark.parametrize("found", [FACTS, None])
def test_the_same_topic_or_none_for_now_changes_nothing(found: TopicFacts | None) -> None:
    """A topic that is gone may be on its way to be made again."""
    assert ended(found) is None


def test_a_failure_to_ask_is_not_an_answer() -> None:
    """The loop itself says when Kafka is away."""

    def ask() -> TopicFacts:
        raise Unreachable("nobody answers")

    told: list[ProcessorError] = []
    assert not TopicWatch("events", FACTS, ask, told.append).look()
    assert not told


def test_the_first_error_is_what_the_process_ends_with() -> None:
    """What follows from it says less."""
    errors = ClientErrors(lambda name: None)
    first = Unreachable("first")
    errors.end(first)
    errors.end(Unreachable("second"))
    assert errors.fatal is first
