"""Chunks to verdicts by call id."""

from collections.abc import Iterable, Mapping

from processor.core.outcomes import CallCompleted
from processor.dialects.stream import KeyedEvent
from tests.golden.replay import fold, stream


def events(dialect: str, chunks: Iterable[Mapping[str, object]]) -> list[KeyedEvent]:
    """All events of a response that has these chunks and then ends."""
    of = stream(dialect)
    return [event for chunk in chunks for event in of.observe(chunk)] + of.end()


def verdicts(dialect: str, chunks: Iterable[Mapping[str, object]]) -> dict[str, str]:
    """The exact text of a completed call, the reason of a rejected one; one verdict per call."""
    found: dict[str, str] = {}
    for outcome in fold(events(dialect, chunks)):
        assert outcome.key.call_id not in found
        if isinstance(outcome, CallCompleted):
            found[outcome.key.call_id] = outcome.arguments.decode()
        else:
            found[outcome.key.call_id] = outcome.reason
    return found
