"""Synthetic Responses streams, and what the events on the way out fold to.

Rules:
    Two calls, interleaved: a publisher that mixes them up cannot pass.
"""

from collections.abc import Iterable

from processor.codec.records import decode_event
from processor.core.events import CallAborted, ResponseEnded, StreamEvent
from processor.core.outcomes import Outcome
from processor.publisher import MemorySink, Publisher, PublisherSettings, StreamPublisher
from processor.publisher.errors import PublishError
from processor.publisher.ports import OutRecord
from processor.publisher.settings import OnPublishError
from tests.builders import assembly

DIALECT = "openai-responses"
ARGUMENTS = {"call_A": '{"order_id":"ORDER-1001"}', "call_B": '{"city":"Paris"}'}
AT_MS = 1_700_000_000_000


def head(at: int, call_id: str, item_id: str, tool: str) -> dict[str, object]:
    """The event that begins a call."""
    item = {"id": item_id, "type": "function_call", "call_id": call_id, "name": tool}
    return {
        "type": "response.output_item.added",
        "output_index": at,
        "item": {**item, "arguments": "", "status": "in_progress"},
    }


def fragment(at: int, item_id: str, text: str) -> dict[str, object]:
    """One fragment of a call."""
    return {
        "type": "response.function_call_arguments.delta",
        "item_id": item_id,
        "output_index": at,
        "delta": text,
    }


def close(at: int, item_id: str, call_id: str, tool: str) -> list[dict[str, object]]:
    """The two events that end a call, each with its copy of the arguments."""
    text = ARGUMENTS[call_id]
    item = {"id": item_id, "type": "function_call", "call_id": call_id, "name": tool}
    return [
        {
            "type": "response.function_call_arguments.done",
            "item_id": item_id,
            "output_index": at,
            "arguments": text,
        },
        {
            "type": "response.output_item.done",
            "output_index": at,
            "item": {**item, "arguments": text, "status": "completed"},
        },
    ]


def envelope(kind: str, status: str, usage: object = None) -> dict[str, object]:
    """An event about the response as a whole."""
    response = {"id": "resp_0001", "object": "response", "status": status, "model": "gpt-test"}
    return {"type": kind, "response": {**response, "output": [], "usage": usage}}


def interleaved() -> list[dict[str, object]]:
    """A whole response with two calls whose fragments alternate."""
    usage = {"input_tokens": 61, "output_tokens": 18, "total_tokens": 79}
    chunks = [
        envelope("response.created", "in_progress"),
        head(0, "call_A", "fc_A", "lookup_order"),
        head(1, "call_B", "fc_B", "get_weather"),
        fragment(0, "fc_A", '{"order'),
        fragment(1, "fc_B", '{"city":"Pa'),
        fragment(0, "fc_A", '_id":"ORDER-1001"}'),
        fragment(1, "fc_B", 'ris"}'),
        *close(0, "fc_A", "call_A", "lookup_order"),
        *close(1, "fc_B", "call_B", "get_weather"),
        envelope("response.completed", "completed", usage),
    ]
    return [{**chunk, "sequence_number": number} for number, chunk in enumerate(chunks)]


#: The chunks of `interleaved` up to which both calls are open.
OPEN_COUNT = 7


class Rig:
    """A publisher on a sink in memory, one stream of it, and every fault it told."""

    def __init__(
        self,
        on_publish_error: OnPublishError = "report",
        sink: MemorySink | None = None,
        *,
        block_ms: int = 50,
        record_bytes_max: int = 1_000_000,
    ) -> None:
        self.sink = sink or MemorySink()
        self.told: list[PublishError] = []
        self.now_s = 0.0
        self.publisher = Publisher(
            PublisherSettings(
                bootstrap="unused:9092",
                on_publish_error=on_publish_error,
                block_ms=block_ms,
                record_bytes_max=record_bytes_max,
            ),
            sink=self.sink,
            on_fault=self.told.append,
            clock_ms=lambda: AT_MS,
            monotonic=self._monotonic,
        )

    def stream(self) -> StreamPublisher:
        """A stream of the request that all tests publish."""
        return self.publisher.stream(dialect=DIALECT, tenant="acme", request_id="req_1")

    def _monotonic(self) -> float:
        # Time passes only by being looked at, so that a bound is reached without waiting.
        self.now_s += 0.01
        return self.now_s


def events_of(records: Iterable[OutRecord]) -> dict[str, list[StreamEvent]]:
    """The events on the events topic, by call id, in order."""
    found: dict[str, list[StreamEvent]] = {}
    for out in records:
        if out.topic == "toolcalls.events.v1":
            call_id = out.key.decode().rsplit("/", 1)[1]
            found.setdefault(call_id, []).append(decode_event(out.key, out.value))
    return found


def ends_of(records: Iterable[OutRecord]) -> dict[str, list[str]]:
    """How each call ended on the topic: outcomes of `ResponseEnded`, reasons of `CallAborted`."""
    ends: dict[str, list[str]] = {}
    for call_id, events in events_of(records).items():
        ends[call_id] = [
            event.body.outcome if isinstance(event.body, ResponseEnded) else event.body.reason
            for event in events
            if isinstance(event.body, ResponseEnded | CallAborted)
        ]
    return ends


def folded(records: Iterable[OutRecord]) -> dict[str, Outcome]:
    """What the assembler says of each call when it reads `records`; open calls are absent."""
    fold = assembly()
    outcomes: dict[str, Outcome] = {}
    events = (out for out in records if out.topic == "toolcalls.events.v1")
    for offset, out in enumerate(events):
        outcome = fold.apply(out.key, decode_event(out.key, out.value), offset, 1_000 + offset)
        if outcome is not None:
            assert outcome.key.call_id not in outcomes
            outcomes[outcome.key.call_id] = outcome
    return outcomes
