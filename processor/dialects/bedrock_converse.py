"""AWS Bedrock ConverseStream events, as decoded from their frames.

Rules (botocore `data/bedrock-runtime/2023-09-30/service-2.json`; reports about gateways):
    An event is `{"event": name, "payload": {...}}` with the names of the frame's headers, or
    `{name: {...}}` as botocore yields it; an exception has the same two forms.
    No payload names the response. A call's id and tool are told once, by `contentBlockStart`; the
    block index leads its fragments and its stop to it. What proves it is in `blocks`.
    `messageStop` has the stop reason; `metadata` follows it, has the usage, and ends the stream,
    which is complete without it too. An exception in between revokes a success.
    Blocks of text have no start. Tools of type `server_tool_use` are none of our calls.
    Unknown events are skipped. There are no sequence numbers, so an event that cannot be read
    refuses the whole response.
"""

from collections.abc import Callable
from typing import ClassVar, Final

from processor.core.events import ResponseOutcome
from processor.dialects.blocks import Blocks
from processor.dialects.calls import Calls
from processor.dialects.fields import (
    Chunk,
    Malformed,
    id_or_none,
    name_or_none,
    number_or_none,
    object_or_none,
    text_or_none,
    vendor_word,
)
from processor.dialects.usage import CounterNames

_OUTCOME_OF_STOP: Final[dict[str, ResponseOutcome]] = {
    "tool_use": "completed",
    "end_turn": "completed",
    "stop_sequence": "completed",
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "malformed_tool_use": "failed",
    "malformed_model_output": "failed",
}
#: Stop reasons by which the provider itself disowns the calls.
_FLAGGED: Final = frozenset({"malformed_tool_use", "malformed_model_output"})


def refusal(chunk: Chunk) -> str | None:
    """Why a first chunk is not of this dialect; None when it is."""
    if "chunk" in chunk:
        return "it wraps another vendor's event: decode its bytes and name that dialect"
    if "output" in chunk and "stopReason" in chunk:
        return "it is a whole response, not a stream of events"
    try:
        if _exception(chunk) is None and _event(chunk)[0] not in BedrockAdapter.HANDLERS:
            return "the first event is none of a converse stream"
    except Malformed:
        return "the first event cannot be read"
    return None


class BedrockAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("inputTokens",),
        output_tokens=("outputTokens",),
        total_tokens=("totalTokens",),
        cached_input_tokens=("cacheReadInputTokens",),
        reasoning_tokens=(),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._blocks = Blocks(calls)

    def observe(self, chunk: Chunk) -> None:
        """One event or exception."""
        exception = _exception(chunk)
        if exception is not None:
            self._calls.abort_all("stream_error")
            self._calls.end_all("failed", vendor_word(exception))
            return
        name, payload = _event(chunk)
        handle = self.HANDLERS.get(name)
        if handle is not None:
            handle(self, payload)

    def damaged(self) -> None:
        """What was lost may have been part of any call, begun or not."""
        self._calls.refuse_all("malformed_event")

    def sentinel(self) -> None:
        """Not of this dialect, but some gateways send it: an end of input."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """The stop reason decides; without one nothing has ended."""
        self._blocks.end("cancelled" if cancelled else "stream_ended", is_clean=True)

    def _message_start(self, _: Chunk) -> None:
        self._blocks.start_message()

    def _block_start(self, payload: Chunk) -> None:
        index = _index(payload)
        tool = object_or_none(object_or_none(payload, "start") or {}, "toolUse")
        kind = None if tool is None else text_or_none(tool, "type")
        if tool is None or kind == "server_tool_use":
            self._blocks.start_other(index, is_providers=tool is not None)
            return
        self._blocks.start_call(
            index,
            id_or_none(tool, "toolUseId"),
            name_or_none(tool, "name"),
            tool.get("input"),
            refusal=None if kind is None else "unsupported_call_type",
        )

    def _block_delta(self, payload: Chunk) -> None:
        index, delta = _index(payload), object_or_none(payload, "delta")
        if delta is None:
            raise Malformed
        tool = object_or_none(delta, "toolUse")
        if tool is None:
            self._blocks.append_other(index)
        else:
            self._blocks.append(index, tool.get("input"))

    def _block_stop(self, payload: Chunk) -> None:
        self._blocks.stop(_index(payload))

    def _message_stop(self, payload: Chunk) -> None:
        reason = text_or_none(payload, "stopReason")
        if reason is None:
            raise Malformed
        if reason in _FLAGGED:
            self._calls.refuse_all("provider_flagged")
        outcome = _OUTCOME_OF_STOP.get(reason, "unknown")
        self._blocks.see_stop_reason(outcome, vendor_word(reason))

    def _metadata(self, payload: Chunk) -> None:
        usage = object_or_none(payload, "usage")
        if usage is not None:
            self._calls.see_usage(usage)
        if self._blocks.has_stop_reason:
            self._blocks.end("stream_ended", is_clean=True)

    HANDLERS: ClassVar[dict[str, Callable[["BedrockAdapter", Chunk], None]]] = {
        "messageStart": _message_start,
        "contentBlockStart": _block_start,
        "contentBlockDelta": _block_delta,
        "contentBlockStop": _block_stop,
        "messageStop": _message_stop,
        "metadata": _metadata,
    }


def _exception(chunk: Chunk) -> str | None:
    """The name of an exception, in either form."""
    named = text_or_none(chunk, "exception")
    return named or next((name for name in chunk if name.endswith("Exception")), None)


def _event(chunk: Chunk) -> tuple[str, Chunk]:
    """Name and payload, in either form; an empty name for an event that is not known."""
    name, field = text_or_none(chunk, "event"), "payload"
    if name is None:
        members = [name for name in chunk if name in BedrockAdapter.HANDLERS]
        if len(members) > 1:
            raise Malformed
        name = field = members[0] if members else ""
    return name, object_or_none(chunk, field) or {}


def _index(payload: Chunk) -> int:
    index = number_or_none(payload, "contentBlockIndex")
    if index is None:
        raise Malformed
    return index
