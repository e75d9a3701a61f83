"""What a publisher made of an SDK's stream, what the bytes say, and in which way the two differ.

Rules:
    Only the public interface is used: `wrap`, the records on the sink, the core's `Assembly`.
    The kinds of difference are ordered: the first that applies names it.
"""

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Literal

from processor.codec.records import decode_event, decode_usage
from processor.core._record import record
from processor.core.events import Body, StreamEvent
from processor.core.identity import decode_call_key
from processor.core.outcomes import CallCompleted, Outcome
from processor.dialects.stream import KeyedEvent
from processor.publisher import AsyncPublisher, MemorySink, Publisher, PublisherSettings
from processor.publisher.errors import PublishError
from tests.golden.replay import events_of, fold, stream

SETTINGS = PublisherSettings(bootstrap="unused:9092")
REQUEST = {"tenant": "acme", "request_id": "req_1"}

Kind = Literal["raises", "unseen", "refused", "unproven", "arguments", "identity", "reason"]


@record
class Told:
    """Everything that one response came to."""

    events: list[KeyedEvent]
    outcomes: list[Outcome]
    counters: dict[str, int] | None
    model: str | None
    error: Exception | None = None
    faults: tuple[PublishError, ...] = ()

    @property
    def completed(self) -> list[CallCompleted]:
        """The calls that may run."""
        return [one for one in self.outcomes if isinstance(one, CallCompleted)]


def told_by_bytes(dialect: str, data: bytes) -> Told:
    """The raw way: the bytes as they came."""
    events = events_of(dialect, data)
    response = stream(dialect)
    response.observe_bytes(data)
    response.end()
    usage = response.usage
    counters = None if usage is None else dict(usage.provider)
    return Told(events, fold(events), counters, None if usage is None else usage.model)


def told_by(dialect: str, chunks: Iterable[object]) -> Told:
    """The SDK's own stream through `wrap`; an exception of the SDK is kept."""
    sink, faults, error = MemorySink(), list[PublishError](), None
    with Publisher(SETTINGS, sink=sink, on_fault=faults.append) as publisher:
        of = publisher.stream(dialect=dialect, **REQUEST)
        try:
            for _ in of.wrap(chunks):
                pass
        except Exception as e:  # noqa: BLE001 - which one is the SDK's choice
            error = e
    return _told(sink, error, faults)


async def told_by_async(dialect: str, chunks: AsyncIterable[object]) -> Told:
    """As `told_by`, for asyncio."""
    sink, faults, error = MemorySink(), list[PublishError](), None
    async with AsyncPublisher(SETTINGS, sink=sink, on_fault=faults.append) as publisher:
        of = publisher.stream(dialect=dialect, **REQUEST)
        try:
            async for _ in of.wrap(chunks):
                pass
        except Exception as e:  # noqa: BLE001 - which one is the SDK's choice
            error = e
    return _told(sink, error, faults)


def _told(sink: MemorySink, error: Exception | None, faults: Sequence[PublishError]) -> Told:
    events, counters, model = list[KeyedEvent](), None, None
    for out in sink.records:
        if out.topic == SETTINGS.events_topic:
            event = decode_event(out.key, out.value)
            events.append(KeyedEvent(decode_call_key(out.key), StreamEvent(event.seq, event.body)))
        else:
            usage = decode_usage(out.key, out.value)
            counters, model = dict(usage.provider), usage.model
    return Told(events, fold(events), counters, model, error, tuple(faults))


def bodies(told: Told) -> dict[str, list[Body]]:
    """The events of each call, in order."""
    found: dict[str, list[Body]] = {}
    for key, event in told.events:
        found.setdefault(key.call_id, []).append(event.body)
    return found


def difference(sdk: Told, raw: Told, loses: frozenset[str]) -> Kind | None:
    """How the SDK's verdicts differ from those of the bytes; None when they do not."""
    if sdk.error is not None:
        return "raises"
    if not sdk.outcomes and raw.outcomes:
        return "unseen"
    if len(sdk.completed) != len(raw.completed):
        return "refused" if len(sdk.completed) < len(raw.completed) else "unproven"
    if _texts(sdk) != _texts(raw):
        return "arguments"
    if _identities(sdk, loses) != _identities(raw, loses):
        return "identity"
    return "reason" if _reasons(sdk) != _reasons(raw) else None


def _texts(told: Told) -> list[bytes]:
    return sorted(one.arguments for one in told.completed)


def _reasons(told: Told) -> list[str]:
    return sorted(one.reason for one in told.outcomes if not isinstance(one, CallCompleted))


def _identities(told: Told, loses: frozenset[str]) -> list[str]:
    return sorted(
        repr(
            (
                one.key.response_id if "response_id" not in loses else None,
                one.key.call_id if "call_id" not in loses else None,
                one.tool,
                one.output_index,
                one.item_id,
                one.model if "model" not in loses else None,
            )
        )
        for one in told.outcomes
    )
