"""Anthropic Messages events, and the servers that follow them more or less.

Rules (anthropic-sdk-python `types/raw_*_event.py`, `types/stop_reason.py`; the vendor's pages on
streaming and on fine-grained tool streaming; reports about compatible servers):
    A call's id and tool are told once, by `content_block_start`; the index leads its fragments and
    its stop to it. What proves it is in `blocks`.
    `message_delta` has the stop reason, and may come several times. `message_stop` is the clean end
    of the message: without it a success ends no call that waits for the response.
    `max_tokens` refuses every call, whole blocks too, for no field says which one was cut; a
    refusal refuses every call; a `fallback` block refuses the calls before it, which are of a model
    that declined. `pause_turn` and what is not known are no success.
    Blocks of any type but `tool_use` are none of our calls. Unknown events are skipped.
    There are no sequence numbers, so a chunk that cannot be read, or a block that stops without
    having started, refuses the whole response.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, cast

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
    "refusal": "refusal",
}
#: Blocks that never have an input; of other types, known or not, it is the provider's.
_WITHOUT_INPUT: Final = frozenset({"text", "thinking", "redacted_thinking", "fallback"})


def refusal(chunk: Chunk) -> str | None:
    """Why a first chunk is not of this dialect; None when it is."""
    kind = chunk.get("type")
    if kind == "message":
        return "it is a whole message, not a stream of events"
    if isinstance(kind, str) and (kind == "ping" or kind in AnthropicAdapter.HANDLERS):
        return None
    if kind == "error" and isinstance(chunk.get("error"), Mapping):
        # The same shape with a number is another vendor's.
        return None if "sequence_number" not in chunk else "its events are numbered"
    return "the first event has no type of a message event"


class AnthropicAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("input_tokens",),
        output_tokens=("output_tokens",),
        total_tokens=(),
        cached_input_tokens=("cache_read_input_tokens",),
        reasoning_tokens=("output_tokens_details.thinking_tokens",),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._blocks = Blocks(calls)

    def observe(self, chunk: Chunk) -> None:
        """One event."""
        kind = text_or_none(chunk, "type")
        if kind == "error" or (kind is None and chunk.get("error")):
            self._calls.abort_all("stream_error")
            self._calls.end_all("failed", _error_word(chunk))
            return
        if kind is None:
            raise Malformed
        handle = self.HANDLERS.get(kind)
        if handle is not None:
            handle(self, chunk)

    def damaged(self) -> None:
        """What was lost may have been part of any call, begun or not."""
        self._calls.refuse_all("malformed_event")

    def sentinel(self) -> None:
        """Not of this dialect, but some servers send it: an end of input."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """No event has ended the message: a stop reason of success is not enough."""
        self._blocks.end("cancelled" if cancelled else "stream_ended", is_clean=False)

    def _message_start(self, chunk: Chunk) -> None:
        message = _object(chunk, "message")
        self._calls.see_model(message.get("model"))
        self._see_usage(message)
        self._calls.see_response_id(id_or_none(message, "id"))
        self._blocks.start_message()

    def _block_start(self, chunk: Chunk) -> None:
        index, of = _index(chunk), _object(chunk, "content_block")
        kind = text_or_none(of, "type")
        if kind is None:
            raise Malformed
        if kind == "tool_use":
            call_id, tool = id_or_none(of, "id"), name_or_none(of, "name")
            self._blocks.start_call(index, call_id, tool, of.get("input"))
            return
        if kind == "fallback":
            self._calls.abort_all("refusal")
        self._blocks.start_other(index, is_providers=kind not in _WITHOUT_INPUT)

    def _block_delta(self, chunk: Chunk) -> None:
        index, delta = _index(chunk), _object(chunk, "delta")
        kind = text_or_none(delta, "type")
        if kind is None:
            raise Malformed
        if kind == "input_json_delta":
            self._blocks.append(index, delta.get("partial_json"))
        else:
            self._blocks.append_other(index)

    def _block_stop(self, chunk: Chunk) -> None:
        if not self._blocks.stop(_index(chunk)):
            # Every block has a start here; the lost one may have been a `fallback`.
            self._calls.refuse_all("missing_start")

    def _message_delta(self, chunk: Chunk) -> None:
        self._see_usage(chunk)
        reason = text_or_none(object_or_none(chunk, "delta") or {}, "stop_reason")
        if reason is not None:
            outcome = _OUTCOME_OF_STOP.get(reason, "unknown")
            self._blocks.see_stop_reason(outcome, vendor_word(reason))

    def _message_stop(self, _: Chunk) -> None:
        self._blocks.end("stream_ended", is_clean=True)

    def _see_usage(self, of: Chunk) -> None:
        usage = object_or_none(of, "usage")
        if usage is not None:
            self._calls.see_usage(usage)

    HANDLERS: ClassVar[dict[str, Callable[["AnthropicAdapter", Chunk], None]]] = {
        "message_start": _message_start,
        "content_block_start": _block_start,
        "content_block_delta": _block_delta,
        "content_block_stop": _block_stop,
        "message_delta": _message_delta,
        "message_stop": _message_stop,
    }


def _index(chunk: Chunk) -> int:
    index = number_or_none(chunk, "index")
    if index is None:
        raise Malformed
    return index


def _object(of: Chunk, name: str) -> Chunk:
    found = object_or_none(of, name)
    if found is None:
        raise Malformed
    return found


def _error_word(chunk: Chunk) -> str | None:
    """The type of an error, if it is a word."""
    error = chunk.get("error")
    kind = cast("Chunk", error).get("type") if isinstance(error, Mapping) else None
    return vendor_word(kind) if isinstance(kind, str) else None
